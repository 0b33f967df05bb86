"""What asks a broker's console in tests: requests and event streams by aiohttp.

Invariant: each answer of the API, and each event of a stream, is as the OpenAPI file describes it.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, NamedTuple

import aiohttp
import jsonschema_rs

from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.app import Broker
from tidelog.broker.console.openapi import ITEM, describe
from tidelog.broker.console.route import pattern_of
from tidelog.broker.console.routes import ROUTES


@cache
def _described() -> list[tuple[str, re.Pattern[str], dict[str, Any]]]:
    """Method, pattern of the path, and what the OpenAPI file says of each status."""
    paths = _document()["paths"]
    return [
        (route.method, pattern_of(route.path), paths[route.path][route.method.lower()]["responses"])
        for route in ROUTES
    ]


@cache
def _document() -> dict[str, Any]:
    return describe(ROUTES, "0")


def check_described(method: str, path: str, status: int, value: object, *, is_item: bool = False) -> None:
    """Raise ValidationError unless the OpenAPI file describes this answer, or event of a stream."""
    path = path.partition("?")[0]
    for known, pattern, responses in _described():
        if known == method and pattern.fullmatch(path):
            (media,) = responses[str(status)]["content"].values()
            schema = media[ITEM] if is_item else media["schema"]
            jsonschema_rs.validate({**schema, "components": _document()["components"]}, value)


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
            found = Answer(answer.status, answer.headers, await answer.text())
        if found.text and answer.content_type == "application/json":
            check_described(method, path, found.status, found.json)
        return found

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
            yield _events(answer, path)


async def _events(answer: aiohttp.ClientResponse, path: str) -> AsyncIterator[tuple[str, Any]]:
    name = "message"
    async with asyncio.timeout(DEADLINE_SECONDS):
        async for line in answer.content:
            field, _, text = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = text
            elif field == "data":
                value = json.loads(text)
                if name == "message":
                    check_described("GET", path, 200, value, is_item=True)
                yield name, value
                name = "message"
