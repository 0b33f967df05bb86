"""A schema registry on loopback: an HTTP server that says what it is told, also what no registry should."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class Registry:
    """A server that answers paths with what is in `answers`, and notes what it was asked. Each schema that is
    registered gets the next id."""

    def __init__(self) -> None:
        self.answers: dict[str, web.Response | Mapping[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.registered: list[Mapping[str, Any]] = []
        self.url = ""

    def has(self, number: int, schema: object, **more: object) -> None:
        self.answers[f"/schemas/ids/{number}"] = {"schema": json.dumps(schema), **more}

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, request.headers.get("Authorization", "")))
        answer = self.answers.get(request.rel_url.raw_path_qs)
        if isinstance(answer, web.Response):
            return answer
        return web.json_response(answer) if answer else web.json_response({"error_code": 40403}, status=404)

    async def register(self, request: web.Request) -> web.Response:
        if request.rel_url.raw_path in self.answers:
            return await self.answer(request)
        body = await request.json()
        self.registered.append(body)
        number = len(self.registered)
        self.answers[f"/schemas/ids/{number}"] = body
        return web.json_response({"id": number})


@asynccontextmanager
async def running_registry() -> AsyncIterator[Registry]:
    made = Registry()
    application = web.Application()
    application.router.add_get("/{path:.*}", made.answer)
    application.router.add_post("/{path:.*}", made.register)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    made.url = f"http://{host}:{port}"
    try:
        yield made
    finally:
        await runner.cleanup()
