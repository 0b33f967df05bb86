"""What asks a broker's console in tests: requests and event streams by aiohttp."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.app import Broker


class Answer(NamedTuple):
    """An answer whose body is here."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Visitor:
    """Asks one broker, with these headers in each request."""

    def __init__(
        self,
        broker: Broker,
        headers: Mapping[str, str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.address = f"http{'s' if context else ''}://127.0.0.1:{broker.http_port}"
        self._headers = dict(headers or {})
        self._context = context

    async def ask(
        self,
        method: str,
        path: str,
        values: object = None,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
    ) -> Answer:
        """`values` are sent as JSON, `data` as they are; a redirect is not followed."""
        body: dict[str, Any] = {"data": data} if values is None else {"json": values}
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            aiohttp.ClientSession(headers=self._headers) as session,
            session.request(
                method,
                self.address + path,
                headers=headers,
                ssl=self._context or True,
                allow_redirects=False,
                **body,
            ) as answer,
        ):
            return Answer(answer.status, answer.headers, await answer.text())

    async def get(self, path: str) -> Answer:
        return await self.ask("GET", path)

    async def begin(self, path: str) -> Answer:
        """The answer, without its body if it goes on for long."""
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            aiohttp.ClientSession(headers=self._headers) as session,
            session.get(self.address + path, ssl=self._context or True) as answer,
        ):
            text = "" if answer.status == 200 else await answer.text()
            return Answer(answer.status, answer.headers, text)

    @asynccontextmanager
    async def follow(self, path: str) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        """The events of a stream: (name, value), `message` for one without a name."""
        async with (
            aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout()) as session,
            session.get(self.address + path, ssl=self._context or True) as answer,
        ):
            assert answer.status == 200, await answer.text()
            yield _events(answer)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    name = "message"
    async with asyncio.timeout(DEADLINE_SECONDS):
        async for line in answer.content:
            field, _, text = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = text
            elif field == "data":
                yield name, json.loads(text)
                name = "message"
