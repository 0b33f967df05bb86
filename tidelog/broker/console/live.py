"""Answers that go on: events for pages that are open, and lines for downloads.

Owns how many there are, and when one ends: when its visitor leaves or no longer may see it, or the broker
stops. Invariants: a visitor has at most `MOST_OF_VISITOR` of them, all together `MOST`; a stream does not
count as a request in progress, and can be replaced like an idle connection; the next value is asked for when
the last one is sent, so a slow visitor gets fewer values and no queue grows.

Event loop only. Source: the HTML standard, server-sent events.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final, TypeAlias

from aiohttp import web

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.others import Values
from tidelog.broker.console.route import EVENT_STREAM, ApiRoute
from tidelog.broker.net.http_console import HEADERS, NO_STORE
from tidelog.broker.net.http_places import HttpConnection
from tidelog.protocol.errors import ApiError, ErrorCode

Check: TypeAlias = Callable[[], None]
MOST: Final = 128
MOST_OF_VISITOR: Final = 16
LOOK_SECONDS: Final = 1.0
"""How often a stream looks for a new value, where nothing calls it."""
_ALIVE_SECONDS: Final = 5.0
"""How often a stream without values looks whether its visitor is still there."""
_ALIVE: Final = b": alive\n\n"


class Streams:
    """Sends the streams of one broker's console, and bounds how many there are."""

    def __init__(self) -> None:
        self._of_visitors: Counter[tuple[str, str]] = Counter()
        self._stopping = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """End all of them soon."""
        if not self._stopping.done():
            self._stopping.set_result(None)

    async def answer(
        self, request: web.Request, caller: Caller, route: ApiRoute, values: Values, check: Check
    ) -> web.StreamResponse:
        """Send `values` until they end; `check` raises ApiError once the caller may not see them any more."""
        visitor = (caller.user, caller.host)
        async with aclosing(values):
            if self._of_visitors[visitor] >= MOST_OF_VISITOR or self._of_visitors.total() >= MOST:
                message = f"a visitor may follow {MOST_OF_VISITOR} streams, all together {MOST}: close a page"
                raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
            self._of_visitors[visitor] += 1
            try:
                return await self._send(request, route, values, check)
            finally:
                self._of_visitors[visitor] -= 1
                if not self._of_visitors[visitor]:
                    del self._of_visitors[visitor]

    async def _send(
        self, request: web.Request, route: ApiRoute, values: Values, check: Check
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={**HEADERS, **NO_STORE})
        response.content_type = route.stream
        is_events = route.stream == EVENT_STREAM
        try:
            await response.prepare(request)
            if request.method == "HEAD":
                return response
            if isinstance(request.protocol, HttpConnection):
                request.protocol.leave_work()
            try:
                async for value in self._until_left(request, values, check):
                    if value is not None:
                        await response.write(_event(value) if is_events else value)
                    elif is_events:
                        await response.write(_ALIVE)
                if is_events:
                    await response.write(_event({}, "end"))
            except ApiError as error:
                if not is_events:  # A download without its end is none.
                    raise ConnectionAbortedError(error.message) from None
                await response.write(_event({"code": error.code.name, "message": error.message}, "refused"))
        except ConnectionResetError:
            pass  # The visitor has left.
        return response

    async def _until_left(self, request: web.Request, values: Values, check: Check) -> AsyncIterator[Any]:
        """The values, and None every `_ALIVE_SECONDS` without one."""
        while not self._stopping.done():
            following = asyncio.ensure_future(anext(values, _END))
            try:
                while not following.done():
                    ends = (following, self._stopping)
                    await asyncio.wait(ends, timeout=_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                    if self._stopping.done() or request.transport is None or request.transport.is_closing():
                        return
                    check()
                    if not following.done():
                        yield None
            finally:
                if not following.done():
                    following.cancel()
                    await asyncio.wait((following,))
            value = following.result()
            if value is _END:
                return
            yield value


_END: Final = object()


def _event(value: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()
