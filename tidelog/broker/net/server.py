"""All client connections that the listening sockets accepted.

Owns the set of connections, its bound, and how connections end. Invariants: at most `max.connections` are
served, and no more than leave the logs their file handles; one more is closed with a log event; a connection
that sent no request for `connections.max.idle.ms` and waits for no answer is closed; one whose client reads
no answers for that long is cut off; `stop` returns when no connection is left.

Event loop only.
"""

import asyncio
import itertools
import time
from collections.abc import Collection, Iterable
from functools import partial

from tidelog.broker.configuration.address_overrides import canonical_host, connections_by_address
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.limits.connection_limits import ConnectionLimits
from tidelog.broker.limits.handle_budget import HandleBudget
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.queued_memory import QueuedMemory
from tidelog.broker.net.acceptor import Acceptor
from tidelog.broker.net.connection import Connection
from tidelog.broker.net.dispatch import Dispatcher
from tidelog.broker.net.endpoints import Endpoint, bind_error
from tidelog.broker.net.handshakes import Handshakes
from tidelog.broker.net.memory_guard import MemoryGuard
from tidelog.broker.net.tls_transport import TlsTransport
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.security.tls import CertificateWatch, ListenerTls
from tidelog.broker.storage.disk import HANDLES_ADVICE
from tidelog.broker.tasks import is_set_within

BACKLOG = 1024
_IDLE_CHECKS = 10
_LONGEST_CHECK_SECONDS = 60.0
_CLOSE_SECONDS = 1.0


class Server:
    """All client connections of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        dispatcher: Dispatcher,
        metrics: Metrics,
        events: PeerEvents,
        handles: HandleBudget,
        memory: QueuedMemory,
        limits: ConnectionLimits,
    ) -> None:
        self._settings = settings
        self.events = events
        self._handles = handles
        self.limits = limits
        self.dispatcher = dispatcher
        self.metrics = metrics
        self.loop = asyncio.get_running_loop()
        self._connections: set[Connection] = set()
        self.guard = MemoryGuard(self._connections, memory, events, metrics, self.loop)
        self.handshakes = Handshakes(events, metrics, self._may_begin_tls)
        self._watch: CertificateWatch | None = None
        self._ids = itertools.count(1)
        self._acceptors: list[Acceptor] = []
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._none_left = asyncio.Event()
        self._none_left.set()

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self._settings.config

    @property
    def connections(self) -> Collection[Connection]:
        """Those that are open; a copy is needed if the loop continues meanwhile."""
        return self._connections

    def start(self, endpoints: Iterable[Endpoint], *others: ListenerTls) -> None:
        """Accept clients on these sockets, which the server owns from now on. Raises BindError.

        The certificates of `others` are watched too.
        """
        endpoints = list(endpoints)
        watched = [*(each.tls for each in endpoints if each.tls is not None), *others]
        self._watch = CertificateWatch(watched)
        self.metrics.certificates = lambda: {
            each.name: each.certificate.expires.timestamp() for each in watched
        }
        for endpoint in endpoints:
            accepted = partial(self._accepted, endpoint)
            acceptor = Acceptor(
                endpoint.socket, accepted, self._admits, accepts_in_seconds=self._accepts_in_seconds
            )
            self._acceptors.append(acceptor)
            try:
                acceptor.start(BACKLOG)
            except OSError as error:
                # Two sockets may be bound to one port while neither of them listens.
                host, port = endpoint.socket.getsockname()[:2]
                raise bind_error(host, port, endpoint.config.setting, error) from None
        self._schedule_idle_check()

    def _accepted(self, endpoint: Endpoint) -> asyncio.BufferedProtocol:
        """The protocol of an accepted socket."""
        connect = partial(self._connection, endpoint)
        return connect() if endpoint.tls is None else TlsTransport(endpoint.tls, self.handshakes, connect)

    def _connection(self, endpoint: Endpoint) -> Connection:
        return Connection(self, endpoint, next(self._ids))

    def _accepts_in_seconds(self) -> float:
        """How long further connections wait in the backlog, so that they are not accepted too often."""
        return self.limits.accepts_in_seconds(self.config.max_connection_creation_rate, self.loop.time())

    def _admits(self, peer: str) -> bool:
        """Whether one more connection gets a file handle, and its address may connect so often."""
        host = canonical_host(peer.rpartition(":")[0])
        now = self.loop.time()
        self.limits.accepted(now)
        if not self.limits.may_connect(host, now):
            advice = "find out why it connects so often, or raise its quota connection_creation_rate"
        elif not self._handles.admits(len(self._connections) + len(self.handshakes)):
            advice = HANDLES_ADVICE
        else:
            return True
        self._refused(host, peer, advice)
        return False

    def connection_opened(self, connection: Connection) -> bool:
        """Whether the connection may stay open."""
        config, host = self.config, connection.state.client_host
        if len(self._connections) >= config.max_connections:
            advice = "raise max.connections, or close clients that are not needed"
            self._refused(host, connection.peer, advice, max_connections=config.max_connections)
            return False
        if not self._has_room(host, connection.peer, self.limits.connections(host)):
            return False
        if self._is_stopping:
            return False
        self._connections.add(connection)
        self.limits.opened(host)
        self._none_left.clear()
        self.metrics.connections = len(self._connections)
        return True

    def _may_begin_tls(self, host: str, handshakes: int) -> bool:
        return self._has_room(host, host, self.limits.connections(host) + handshakes)

    def _has_room(self, host: str, peer: str, connections: int) -> bool:
        """Whether an address with this number of connections may have one more."""
        overrides = connections_by_address(self.config.max_connections_per_ip_overrides)
        most = overrides.get(host, self.config.max_connections_per_ip)
        if connections < most:
            return True
        advice = "close connections of this address that are not needed, or raise max.connections.per.ip"
        self._refused(host, peer, advice, max_connections_per_ip=most)
        return False

    def _refused(self, host: str, peer: str, advice: str, **limit: int) -> None:
        self.metrics.connection_refused()
        connections = len(self._connections)
        self.events.warning(
            "connection_refused", host, peer=peer, connections=connections, **limit, advice=advice
        )

    def connection_closed(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self.limits.closed(connection.state.client_host)
        self.metrics.connections = len(self._connections)
        if not self._connections:
            self._none_left.set()

    def _schedule_idle_check(self) -> None:
        limit_ms = self.config.connections_max_idle_ms
        if limit_ms >= 0:
            delay = min(limit_ms / 1000 / _IDLE_CHECKS, _LONGEST_CHECK_SECONDS)
            self._idle_timer = self.loop.call_later(delay, self._close_idle)

    def _close_idle(self) -> None:
        moment = time.perf_counter() - self.config.connections_max_idle_ms / 1000
        for connection in [one for one in self._connections if one.is_idle_since(moment)]:
            self.events.info("connection_closed_idle", connection.state.client_host, peer=connection.peer)
            connection.finish()
        # A normal close waits for the client to read. A client that never reads must not stay for ever.
        for connection in [one for one in self._connections if one.is_stuck_since(moment)]:
            self.events.info("connection_closed_stuck", connection.state.client_host, peer=connection.peer)
            connection.abort()
        self._schedule_idle_check()

    def _end_arrivals(self) -> None:
        self._is_stopping = True
        for acceptor in self._acceptors:
            acceptor.close()
        self.handshakes.close()
        if self._watch is not None:
            self._watch.close()
        self.guard.close()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    async def until_left(self, timeout_ms: int) -> None:
        """Return when no connection is open, at the latest after `timeout_ms`."""
        await is_set_within(self._none_left, timeout_ms / 1000)

    async def stop(self, timeout_ms: int) -> int:
        """Answer the requests in flight, then close all; returns how many connections `timeout_ms` cut off.

        Listening ends first. A waiting Fetch is answered at once.
        """
        self._end_arrivals()
        unfinished: set[asyncio.Future[None]] = set()
        if self._connections:
            drained = [connection.drain() for connection in self._connections]
            _, unfinished = await asyncio.wait(drained, timeout=timeout_ms / 1000)
        for connection in list(self._connections):
            connection.close()
        # A client that does not read keeps its answers in the broker's buffer: it is cut off after a short
        # time.
        if not await is_set_within(self._none_left, _CLOSE_SECONDS):
            for connection in list(self._connections):
                connection.abort()
            await self._none_left.wait()
        return len(unfinished)

    async def abort(self) -> None:
        """Close all connections at once and answer nothing, as when a process is killed."""
        self._end_arrivals()
        for connection in list(self._connections):
            connection.abort()
        await self._none_left.wait()
