"""/faults on the HTTP port: used by `tidelog fault` and by tests in any language.

GET lists the orders (`{"faults": [...], "finished": [...]}`). POST takes one as a JSON object and answers
with the order as taken. Its fields are `fault` and those of `rules.parse_order`, of `producer_changes` for
forget, expire and sequence, of `share_locks` for expire_locks: all are in `broker.fault_injection`. DELETE
removes all, DELETE /faults/ID one. Errors are `{"error": "..."}`: 400 for an invalid order, 403 where faults
are not enabled, 404 for what does not exist, 503 for a partition that is offline.

Invariants: the body must be sent as application/json, so that no web page can order a fault from a browser;
where faults are not enabled, every request gets 403 and the text says how to enable them.

Event loop only.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from tidelog.broker.fault_injection.rules import ENABLE_HINT, FaultError
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from aiohttp import web

    from tidelog.broker.fault_injection.injection import FaultInjector


class FaultRoutes:
    """The routes of one broker; `injector` is None if faults are not enabled."""

    def __init__(self, injector: FaultInjector | None) -> None:
        self._injector = injector

    def add_to(self, application: web.Application) -> None:
        router = application.router
        for method, path, answer in (
            ("GET", "/faults", self._list),
            ("POST", "/faults", self._order),
            ("DELETE", "/faults", self._clear),
            ("DELETE", "/faults/{id:[0-9]{1,18}}", self._clear),
        ):
            router.add_route(method, path, self._guarded(answer))

    def _guarded(
        self, answer: Callable[[FaultInjector, web.Request], Awaitable[tuple[int, Any]]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def guarded(request: web.Request) -> web.Response:
            from aiohttp import web

            from tidelog.broker.fault_injection.producer_changes import UnknownProducerError

            if self._injector is None:
                status, body = 403, _error(f"faults are not enabled on this broker: {ENABLE_HINT}")
            else:
                try:
                    status, body = await answer(self._injector, request)
                except UnknownProducerError as error:
                    status, body = 404, _error(str(error))
                except FaultError as error:
                    status, body = 400, _error(str(error))
                except ApiError as error:
                    offline = error.code is ErrorCode.KAFKA_STORAGE_ERROR
                    status, body = 503 if offline else 404, _error(f"{error.code.name}: {error.message}")
            return web.json_response(body, status=status)

        return guarded

    async def _list(self, injector: FaultInjector, request: web.Request) -> tuple[int, Any]:
        return 200, injector.rules.describe()

    async def _order(self, injector: FaultInjector, request: web.Request) -> tuple[int, Any]:
        if request.content_type != "application/json":
            raise FaultError("send the order as a JSON object with Content-Type: application/json")
        try:
            values = json.loads(await request.read())
        except ValueError as error:
            raise FaultError(f"the body is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise FaultError("the body must be a JSON object")
        return 201, injector.take(values)

    async def _clear(self, injector: FaultInjector, request: web.Request) -> tuple[int, Any]:
        number = request.match_info.get("id")
        cleared = injector.rules.clear(None if number is None else int(number))
        if number is not None and not cleared:
            return 404, _error(f"no active fault has the number {number}")
        return 200, {"cleared": cleared}


def _error(message: str) -> dict[str, str]:
    return {"error": message}
