"""The connections of the HTTP port: how many are allowed, and which are closed for new ones.

A health check must be answered whatever other peers do: an orchestrator restarts a broker whose check fails.
So a connection is safe only while its request is in progress. A request is in progress once its client has
authenticated and its body has arrived, until it begins an endless answer. All other connections wait: for a
head, for a body, for the refusal of a wrong password, or idle. Owns the set of open connections.

Invariants: at most `MOST_CONNECTIONS` are open, and `MOST_PER_ADDRESS` of one address; beyond that the oldest
waiting connection of the address that has the most is closed. At most `MOST_AT_WORK` requests are in
progress; further ones get 503; in a turn of the loop one of them begins. At most `MOST_UNREAD` answers wait
for their clients; beyond that the oldest is closed.

Event loop only. It imports aiohttp: `http` imports it with the first connection.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from tidelog.broker.limits.turns import Turns
from tidelog.broker.net.http_console import Known

MOST_CONNECTIONS: Final = 256
MOST_PER_ADDRESS: Final = 192
MOST_AT_WORK: Final = 32
MOST_UNREAD: Final = 32
MOST_BODY_BYTES: Final = 64 * 1024
"""The largest body that a route takes is one fault in JSON."""
_SERVER = "tidelog"
"""Without versions: they help only those who look for a version with a known fault."""


class HttpConnection(web.RequestHandler):
    """One connection, which reports its begin and its end to the places of its port."""

    __slots__ = ("_places", "host", "known")

    def __init__(self, places: HttpPlaces, server: web.Server, **arguments: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **arguments)
        self._places = places
        self.host = ""
        self.known: Known | None = None
        """Who asks, in the console of a port with security."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if isinstance(peer, tuple) else ""
        self._places.opened(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._places.closed(self)
        super().connection_lost(exc)

    def handle_error(self, *args: Any, **kwargs: Any) -> web.StreamResponse:
        """What aiohttp answers to a request that it cannot parse, for which it emits no signal."""
        response = super().handle_error(*args, **kwargs)
        response.headers["Server"] = _SERVER
        return response

    def leave_work(self) -> None:
        """From now on the request waits, as one that sends an endless answer does."""
        self._places.left_work(self)

    @property
    def unread_bytes(self) -> int:
        """What waits for the client to read."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()


class HttpPlaces:
    """Bounds the connections of one HTTP port, and its requests in progress."""

    def __init__(self, body_seconds: float) -> None:
        """A body that has not arrived within `body_seconds` is refused."""
        self._body_seconds = body_seconds
        self._open: dict[HttpConnection, None] = {}
        self._at_work: set[object] = set()
        self._turns = Turns()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: HttpConnection) -> None:
        """Take `connection`, and close another one if there are too many."""
        self._open[connection] = None
        if not connection.host:
            return  # It comes from the HTTP port of several processes, which has these limits itself.
        if sum(each.host == connection.host for each in self._open) > MOST_PER_ADDRESS:
            self._close_oldest_waiting(connection.host)
        elif len(self._open) > MOST_CONNECTIONS:
            waiting = Counter(each.host for each in self._open if each not in self._at_work)
            self._close_oldest_waiting(waiting.most_common(1)[0][0])

    def closed(self, connection: HttpConnection) -> None:
        self._open.pop(connection, None)

    def left_work(self, connection: HttpConnection) -> None:
        self._at_work.discard(connection)

    def _close_oldest_waiting(self, host: str) -> None:
        waiting = (each for each in self._open if each.host == host and each not in self._at_work)
        self._close(next(waiting))

    def _close(self, connection: HttpConnection) -> None:
        self.closed(connection)
        connection.force_close()

    def _close_unread(self) -> None:
        unread = [each for each in self._open if each.unread_bytes]
        if len(unread) >= MOST_UNREAD:
            self._close(unread[0])

    async def read_body(self, request: web.Request) -> None:
        """Return once the body is here. Raises HTTPRequestTimeout."""
        try:
            async with asyncio.timeout(self._body_seconds):
                await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout(
                text=f"the body has to arrive within {self._body_seconds:g} seconds\n"
            ) from None

    async def work(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """What `handler` answers, once the body is here; 503 with too many requests in progress, 408 for a
        body that is late. For aiohttp: a middleware.
        """
        await self.read_body(request)
        if len(self._at_work) >= MOST_AT_WORK:
            raise web.HTTPServiceUnavailable(
                text=f"{MOST_AT_WORK} requests are in progress, which is the limit; try again\n",
                headers={"Retry-After": "1"},
            )
        self._close_unread()
        self._at_work.add(request.protocol)
        try:
            await self._turns.next()
            return await handler(request)
        finally:
            self._at_work.discard(request.protocol)


async def name_server(_: web.Request, response: web.StreamResponse) -> None:
    """Replace aiohttp's `Server` header. For aiohttp: a signal."""
    response.headers["Server"] = _SERVER
