"""/metrics, /healthz, /readyz and the routes that the broker adds, by aiohttp on the broker's own loop.

Owns the HTTP socket. Importing aiohttp takes longer than starting a broker. So the first connection imports
it in a thread, while the client waits and the loop continues.

Invariants: /healthz answers 200 as long as the loop runs; /readyz answers 200 only while requests are served,
else 503; both answer at once and without authentication. Bytes from a peer that are not HTTP are one
throttled event without a traceback; a traceback is always a bug of the broker.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import structlog

from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.net.acceptor import Acceptor
from tidelog.broker.net.endpoints import bind_error
from tidelog.broker.net.handshakes import Handshakes
from tidelog.broker.net.tls_transport import TlsTransport
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.security.tls import ListenerTls

if TYPE_CHECKING:
    from aiohttp import web

    from tidelog.broker.net.http_places import HttpPlaces

    Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
    Middleware = Callable[[web.Request, Answer], Awaitable[web.StreamResponse]]

logger = structlog.get_logger(__name__)

_CLOSE_SECONDS = 1.0
_IDLE_SECONDS = 75.0
"""How long a connection may be without a whole request; aiohttp's own default is an hour."""
METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BACKLOG = 128
_RECEIVE_BYTES = 16 * 1024
_OPEN_PATHS = frozenset(("/healthz", "/readyz"))
"""What answers everyone: it shows only that the broker runs."""


class HttpServer:
    """The HTTP side of one broker on an already bound socket."""

    def __init__(
        self,
        listening: socket.socket,
        metrics: Metrics,
        is_ready: Callable[[], bool],
        events: PeerEvents,
        add_routes: Callable[[web.Application], None] | None = None,
        more_metrics: Callable[[], Awaitable[bytes]] | None = None,
        tls: ListenerTls | None = None,
        checks: Sequence[Middleware] = (),
    ) -> None:
        """`add_routes` is called once with the application when that is made, and adds routes to it.
        `more_metrics` gives what /metrics shows beside `metrics`. `checks` let those in who may ask.
        """
        self._socket = listening
        self._add_routes = add_routes
        self._more_metrics = more_metrics
        self._tls = tls
        self._handshakes = Handshakes(events, metrics)
        self._checks = checks
        self._metrics = metrics
        self._is_ready = is_ready
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._runner: web.AppRunner | None = None
        self._places: HttpPlaces | None = None
        self._starting: asyncio.Task[None] | None = None
        self._acceptor: Acceptor | None = None
        self.port = int(listening.getsockname()[1]) if listening.family != socket.AF_UNIX else None

    def start(self) -> None:
        """Listen. Raises BindError when another process has begun to listen there."""
        try:
            self._socket.listen(_BACKLOG)
        except OSError as error:
            host = str(self._socket.getsockname()[0])
            raise bind_error(host, self.port or 0, "http.port", error) from None
        self._loop.add_reader(self._socket.fileno(), self._first_connection)

    def _first_connection(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._starting = self._loop.create_task(self._serve())
        self._starting.add_done_callback(_report)

    async def _serve(self) -> None:
        await self._loop.run_in_executor(None, import_libraries)
        from aiohttp import web

        from tidelog.broker.net.http_places import MOST_BODY_BYTES, HttpConnection, HttpPlaces, name_server

        self._places = places = HttpPlaces(_IDLE_SECONDS)
        checks = (*self._checks, places.work)
        # A method cannot be marked as a middleware, a partial can.
        middlewares = [
            web.middleware(partial(each)) for each in (_refuse_broken_bodies, *map(_unless_open, checks))
        ]
        application = web.Application(middlewares=middlewares, client_max_size=MOST_BODY_BYTES)
        application.on_response_prepare.append(name_server)
        application.router.add_get("/metrics", self._answer_metrics)
        application.router.add_get("/healthz", self._answer_health)
        application.router.add_get("/readyz", self._answer_ready)
        if self._add_routes is not None:
            self._add_routes(application)
        self._runner = web.AppRunner(application, handle_signals=False, shutdown_timeout=_CLOSE_SECONDS)
        await self._runner.setup()
        serve, tls, errors = cast("web.Server", self._runner.server), self._tls, _logger_to(self._events)

        def connection() -> HttpConnection:
            return HttpConnection(
                places, serve, logger=errors, access_log=None, keepalive_timeout=_IDLE_SECONDS
            )

        def connect() -> asyncio.BaseProtocol:
            if tls is None:
                return connection()
            return TlsTransport(tls, self._handshakes, lambda: _Buffered(connection()))

        # It takes the bound socket over, with the connections that wait in its backlog.
        self._acceptor = Acceptor(self._socket, connect, lambda _: True)
        self._acceptor.start(_BACKLOG)

    @property
    def connections(self) -> int:
        """How many are open."""
        return 0 if self._places is None else len(self._places)

    async def _answer_metrics(self, request: web.Request) -> web.Response:
        from aiohttp import web

        more = b"" if self._more_metrics is None else await self._more_metrics()
        body = self._metrics.render() + more
        return web.Response(body=body, headers={"Content-Type": METRICS_CONTENT_TYPE})

    async def _answer_health(self, request: web.Request) -> web.Response:
        from aiohttp import web

        return web.Response(text="ok\n")

    async def _answer_ready(self, request: web.Request) -> web.Response:
        from aiohttp import web

        ready = self._is_ready()
        return web.Response(text="ready\n" if ready else "not ready\n", status=200 if ready else 503)

    async def stop(self) -> None:
        """Close the socket and the connections."""
        if self._starting is None:
            self._loop.remove_reader(self._socket.fileno())
        else:
            await asyncio.wait([self._starting])
        if self._acceptor is not None:
            self._acceptor.close()
        self._handshakes.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._socket.close()


class _Buffered(asyncio.BufferedProtocol):
    """A protocol that takes bytes, on a transport that fills buffers."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self.connection_made = protocol.connection_made  # type: ignore[method-assign]
        self.connection_lost = protocol.connection_lost  # type: ignore[method-assign]
        self.pause_writing = protocol.pause_writing  # type: ignore[method-assign]
        self.resume_writing = protocol.resume_writing  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(self._buffer[:nbytes]))


def _unless_open(check: Middleware) -> Middleware:
    """`check` before every path that does not answer everyone."""

    async def answer(request: web.Request, handler: Answer) -> web.StreamResponse:
        return await (handler(request) if request.path in _OPEN_PATHS else check(request, handler))

    return answer


async def _refuse_broken_bodies(request: web.Request, handler: Answer) -> web.StreamResponse:
    """A body that cannot be read (its chunks, its compression) is the sender's fault, not ours."""
    from aiohttp import web
    from aiohttp.web_protocol import RequestPayloadError

    try:
        return await handler(request)
    except RequestPayloadError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None


def _logger_to(events: PeerEvents) -> logging.Logger:
    """What aiohttp logs to: a logger of its own, so that no program's logging is changed."""
    logger = logging.Logger("tidelog.http", logging.ERROR)
    logger.addHandler(_ToEvents(events))
    return logger


class _ToEvents(logging.Handler):
    """Turns log records of aiohttp into events. aiohttp logs every failure of a request with a traceback."""

    def __init__(self, events: PeerEvents) -> None:
        super().__init__()
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        from aiohttp.http_exceptions import HttpProcessingError
        from aiohttp.web_protocol import RequestPayloadError

        error = record.exc_info[1] if record.exc_info else None
        peer = str(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
        if isinstance(error, HttpProcessingError | RequestPayloadError | ConnectionError | TimeoutError):
            self._events.warning("http_request_bad", peer, peer=peer, reason=" ".join(str(error).split()))
        else:
            self._events.error(
                "http_request_failed", peer, peer=peer, error=record.getMessage(), exc_info=error
            )


def _report(starting: asyncio.Task[None]) -> None:
    if not starting.cancelled() and (error := starting.exception()) is not None:
        logger.error(
            "http_not_served",
            error=repr(error),
            advice="clients are served, metrics and health checks are not: check the installation",
        )


def import_libraries() -> None:
    """Load what serves HTTP."""
    import aiohttp.web  # noqa: F401
    import prometheus_client  # noqa: F401
