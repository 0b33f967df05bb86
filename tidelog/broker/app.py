"""A whole broker: the order in which its parts are opened, and closed in reverse.

Owns `Broker`, which runs in any running event loop (also in that of a test), and `run`, the whole run of a
broker process. Invariants: no globals, so several brokers may share a loop; addresses are bound before the
data folder is opened; clients are accepted once everything below is open; `stop` answers the requests in
flight, flushes and writes snapshots, and may be called again.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import structlog

from tidelog.broker.clock import SteadyClock, clock_ms
from tidelog.broker.cluster.controller import live_brokers
from tidelog.broker.cluster.store import ClusterStore, StoreError
from tidelog.broker.collector import PERIOD_SECONDS, Collector
from tidelog.broker.configuration.broker_config import HTTP_LISTENER, BrokerConfig
from tidelog.broker.configuration.cluster_settings import UNIX
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.coordinator.offset_metrics import OffsetMetrics
from tidelog.broker.handlers.context import Handler
from tidelog.broker.initial_objects import TopicMaking, make_users
from tidelog.broker.net.dispatch import Dispatcher
from tidelog.broker.net.endpoints import BindError, Endpoint, bind, bind_endpoints
from tidelog.broker.net.http import HttpServer
from tidelog.broker.net.http_console import ConsoleRoutes
from tidelog.broker.net.metering import Meter
from tidelog.broker.net.server import Server
from tidelog.broker.observability.history import History
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.opening import open_services
from tidelog.broker.security.signing_keys import KeysError
from tidelog.broker.security.tls import ListenerTls
from tidelog.broker.served_apis import build_handlers
from tidelog.broker.services import Services
from tidelog.broker.storage.disk import HANDLES_ADVICE, Disk, is_out_of_handles
from tidelog.broker.storage.manager import DataFolderError
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.settings import ConfigError

if TYPE_CHECKING:
    from aiohttp import web

    from tidelog.broker.fault_injection.injection import FaultInjector
    from tidelog.broker.net.http import Middleware
    from tidelog.broker.net.http_console import Site as ConsoleSite
    from tidelog.broker.net.inherited import Inherited

logger = structlog.get_logger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FILES_WANTED = 65_536
# From malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_FREE_BYTES_KEPT = 16 << 20
_MAPPED_FROM_BYTES = 4 << 20
_SWITCH_SECONDS = 0.0005
"""How long a busy loop may block a thread that returns from fdatasync; Python's default is 5 ms."""


class StartError(Exception):
    """The broker cannot start; the message is one line that says why and what to do."""


class Broker:
    """A running broker. `await Broker.start(config)` makes it; `async with` stops it at the end."""

    def __init__(
        self,
        config: BrokerConfig,
        metrics: Metrics,
        endpoints: list[Endpoint],
        services: Services,
        server: Server,
        http: HttpServer | None,
        faults: FaultInjector | None,
        topic_making: TopicMaking,
    ) -> None:
        self.config = config
        self.metrics = metrics
        self.services = services
        self._server = server
        self._http = http
        self.faults = faults
        """None where faults are not enabled."""
        self._topic_making = topic_making
        self._stopping: asyncio.Task[None] | None = None
        self.ports = {endpoint.config.name: endpoint.port for endpoint in endpoints}
        """Port of each listener by its name, in the order of `listeners`."""
        self.port = endpoints[0].port
        """Port of the first listener."""
        self.http_port = http.port if http is not None else None
        self.is_ready = False

    @classmethod
    async def start(
        cls,
        config: BrokerConfig,
        *,
        disk: Disk | None = None,
        store: ClusterStore | None = None,
        inherited: Inherited | None = None,
    ) -> Self:
        """Open the data folder and serve. Raises StartError; then nothing is left open.

        `disk` replaces the system calls on the logs, for tests with a disk that fails; `store` the store that
        the settings name. The broker closes it, and `inherited`.
        """
        sockets = _Sockets(config, inherited)
        config = sockets.as_bound(config)
        services: Services | None = None
        server: Server | None = None
        metrics = Metrics()
        try:
            services = await open_services(
                config,
                metrics,
                clock_ms,
                listeners=[endpoint.listener_at(None) for endpoint in sockets.endpoints],
                steady_ms=SteadyClock().now_ms,
                store=store,
                disk=disk,
            )
            if config.has_open_store:
                advice = (
                    "who reaches etcd may make users and register brokers: enable TLS and authentication"
                    " there, and set cluster.store with https:, cluster.store.user, cluster.store.password"
                )
                logger.warning("store_without_security", cluster_store=config.cluster_store, advice=advice)
            if any(listener.security_protocol.has_sasl for listener in config.listener_configs):
                await services.authentication.start(has_peers=services.membership is not None)
            if config.users:
                await make_users(services)
            own_handlers = build_handlers(services)
            handlers, faults = _with_faults(config, services, own_handlers)
            events = services.events
            dispatcher = Dispatcher(handlers, metrics, events, services.turns)
            services.quotas.follow(partial(_set_meter, dispatcher, services, metrics))
            if services.membership is not None:
                from tidelog.broker.handlers.leader_hints import LeaderHints

                dispatcher.leader_hints = LeaderHints(services)
            server = Server(
                services.settings,
                dispatcher,
                metrics,
                events,
                services.handles,
                services.memory,
                services.quotas.of_connections,
            )
            console = None
            if config.console_enable:
                console = services.console = ConsoleRoutes(
                    _console_loader(services, faults, own_handlers, server)
                )
                if sockets.http is not None:
                    services.history = History(metrics, services.clock_ms, services.start_ms)
                    services.history.start()
            others = [] if sockets.http_tls is None else [sockets.http_tls]
            server.start([*sockets.endpoints, *sockets.shared], *others)
            http = None
            broker: Self
            if sockets.http is not None:
                add_routes = partial(_add_routes, faults, console)
                more = partial(_offset_metrics, services)
                http = HttpServer(
                    sockets.http,
                    metrics,
                    lambda: broker.is_ready,
                    events,
                    add_routes,
                    more,
                    sockets.http_tls,
                    _http_checks(services, sockets),
                )
                http.start()
            if services.membership is not None:
                await services.membership.join()
                _warn_of_single_copies(services)
            topic_making = TopicMaking(services)
            await topic_making.begin()
            broker = cls(config, metrics, sockets.endpoints, services, server, http, faults, topic_making)
            broker.is_ready = True
            return broker
        except BaseException as error:
            # The server first: libuv ends the process when a socket that the loop watches is closed.
            if server is not None:
                await server.stop(0)
            sockets.close()
            if services is not None:
                await services.close()
            reason = reason_of(error, config.data_dir)
            if reason is None:
                raise
            raise StartError(reason) from error

    @property
    def bootstrap_servers(self) -> str:
        """The address to which a client in this process connects."""
        return self.config.listener_configs[0].local_address

    async def stop(self) -> None:
        """Wait for replicas that catch up, then for requests in flight (each for at most
        `shutdown.timeout.ms`), flush, write snapshots, close."""
        await self._end(clean=True)

    async def abandon(self) -> None:
        """End as after `kill -9`: nothing more is answered, flushed or written."""
        await self._end(clean=False)

    async def _end(self, *, clean: bool) -> None:
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop(clean))
        await asyncio.shield(self._stopping)

    async def _stop(self, clean: bool) -> None:
        self.is_ready = False
        await self._topic_making.stop()
        if not clean:
            await self._server.abort()
        if self.faults is not None:
            self.faults.release()
        if clean:
            if await self.services.hand_over(self.config.shutdown_timeout_ms):
                # Here clients learn the new leaders; many an old one takes a refused connection worse.
                await self._server.until_left(self.config.shutdown_linger_ms)
            cut_off = await self._server.stop(self.config.shutdown_timeout_ms)
            if cut_off:
                logger.warning("connections_cut_off", connections=cut_off)
        await self.services.close(clean=clean)
        if self._http is not None:
            await self._http.stop()
        self.services.users.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def _warn_of_single_copies(services: Services) -> None:
    config, live = services.config, len(live_brokers(services.catalog))
    if live > 1 and config.default_replication_factor == 1 and not config.cluster_store.startswith(UNIX):
        advice = (
            "a lost broker takes records with it: set default.replication.factor (3 with three brokers) and "
            "min.insync.replicas=2"
        )
        logger.warning("new_topics_have_one_replica", live_brokers=live, advice=advice)


def _set_meter(dispatcher: Dispatcher, services: Services, metrics: Metrics) -> None:
    """Requests are charged while a client has a quota."""
    of_clients = services.quotas.of_clients
    dispatcher.meter = None if of_clients.is_empty else Meter(of_clients, metrics.throttles)


class _Sockets:
    """The addresses of a broker. They are bound before anything else is started. Raises StartError."""

    def __init__(self, config: BrokerConfig, inherited: Inherited | None) -> None:
        self.http_tls: ListenerTls | None = None
        self.http = None if inherited is None else inherited.http
        self.has_own_http = self.http is None and config.http_port >= 0
        try:
            if self.has_own_http and config.http_security_protocol == SecurityProtocol.SSL:
                self.http_tls = ListenerTls(config.of_listener(HTTP_LISTENER), HTTP_LISTENER)
            self.endpoints = bind_endpoints(config)
            self.shared = [] if inherited is None else inherited.endpoints(self.endpoints)
            try:
                if self.has_own_http:
                    self.http = bind(http_host(config), config.http_port, "http.port")
            except BindError:
                self.close()
                raise
        except (BindError, ConfigError) as error:
            raise StartError(str(error)) from None

    def as_bound(self, config: BrokerConfig) -> BrokerConfig:
        """`config` with the ports that the system chose, so that DescribeConfigs shows them."""
        config = config.with_ports([endpoint.port for endpoint in self.endpoints])
        if self.http is None or not self.has_own_http:
            return config
        port = int(self.http.getsockname()[1])
        return config.with_settings({"http.host": http_host(config), "http.port": port})

    def close(self) -> None:
        for endpoint in (*self.endpoints, *self.shared):
            endpoint.socket.close()
        if self.http is not None:
            self.http.close()


def _with_faults(
    config: BrokerConfig, services: Services, handlers: Mapping[ApiKey, Handler]
) -> tuple[Mapping[ApiKey, Handler], FaultInjector | None]:
    """The handlers; where faults are enabled, each is wrapped by the fault injector."""
    if not config.faults_enable:
        return handlers, None
    from tidelog.broker.fault_injection.injection import FaultInjector

    faults = FaultInjector(services)
    return faults.around(handlers), faults


async def _offset_metrics(services: Services) -> bytes:
    offsets = OffsetMetrics(
        services.groups.machines(),
        services.catalog,
        services.replicas,
        services.config.metrics_max_offset_series,
    )
    text = await services.turns.run(offsets.exposition())
    if services.telemetry is not None:
        text += await services.turns.run(services.telemetry.exposition())
    return text


def http_host(config: BrokerConfig) -> str:
    """The address that the HTTP port listens on."""
    return config.http_host or config.listener_configs[0].host


def _http_checks(services: Services, sockets: _Sockets) -> list[Middleware]:
    """What lets only those in who may ask."""
    from tidelog.broker.net.http_origins import OriginCheck

    checks: list[Middleware] = [OriginCheck(services).answer]
    config = services.config
    if config.is_secured:
        from tidelog.broker.net.http_authentication import HttpAuthentication, is_local

        if sockets.has_own_http and sockets.http_tls is None and not is_local(config.http_host):
            advice = "set http.security.protocol=SSL, or let the HTTP port listen on 127.0.0.1 only"
            logger.warning("http_passwords_in_clear", http_host=config.http_host, advice=advice)
        is_tls = config.http_security_protocol == SecurityProtocol.SSL
        is_behind_proxy = not sockets.has_own_http
        checks.append(HttpAuthentication(services, is_tls=is_tls, is_behind_proxy=is_behind_proxy).answer)
    return checks


def _console_loader(
    services: Services, faults: FaultInjector | None, handlers: Mapping[ApiKey, Handler], server: Server
) -> Callable[[], Callable[[], ConsoleSite]]:
    """What imports the console with its first visitor."""

    def load() -> Callable[[], ConsoleSite]:
        from tidelog.broker.console.route import Console
        from tidelog.broker.console.site import Site

        return lambda: Site(Console(services, server, faults), handlers)

    return load


def _add_routes(
    faults: FaultInjector | None, console: ConsoleRoutes | None, application: web.Application
) -> None:
    """Add what HTTP serves beside metrics and health. The first connection to the HTTP port loads it."""
    from tidelog.broker.net.http_faults import FaultRoutes

    FaultRoutes(faults).add_to(application)
    if console is not None:
        console.add_to(application)


def not_started(error: Exception, data_dir: Path) -> int:
    """Log why; the exit code."""
    logger.error("broker_not_started", error=reason_of(error, data_dir) or str(error))
    return 1


def reason_of(error: BaseException, data_dir: Path) -> str | None:
    """One line for a failure that the environment caused; None for any other."""
    if isinstance(error, BindError | DataFolderError | StoreError | KeysError | ConfigError):
        return str(error)
    if is_out_of_handles(error):
        return f"cannot open all that {data_dir} holds: {HANDLES_ADVICE}"
    if isinstance(error, OSError):
        where = error.filename or data_dir
        return f"cannot use {where}: {error.strerror or error}; data.dir must be a folder that can be written"
    return None


def started_event(broker: Broker) -> dict[str, object]:
    """The fields of `broker_started`."""
    config = broker.config
    return {
        "port": broker.port,
        "http_port": broker.http_port,
        "listeners": [listener.listened for listener in config.listener_configs],
        "advertised_listeners": [listener.advertised for listener in config.listener_configs],
        "data_dir": str(config.data_dir.absolute()),
        "node_id": config.node_id,
        "cluster_id": broker.services.catalog.cluster_id,
    }


def _log_started(broker: Broker) -> None:
    logger.info("broker_started", **started_event(broker))


def _follow_signals(asked: asyncio.Future[str], ask: Callable[[str], None]) -> None:
    for number in _SIGNALS:
        asked.get_loop().add_signal_handler(number, ask, number.name)


async def serve_until_asked(
    config: BrokerConfig,
    *,
    begin: Callable[[asyncio.Future[str], Callable[[str], None]], None] = _follow_signals,
    start: Callable[[BrokerConfig], Awaitable[Broker]] = Broker.start,
    started: Callable[[Broker], None] = _log_started,
) -> int:
    """Serve until SIGTERM or SIGINT; the exit code.

    One of several processes overrides how it is stopped, how it starts, and whom it informs.
    """
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[str] = loop.create_future()

    def ask(name: str) -> None:
        if asked.done():
            logger.info("broker_already_stopping", signal=name)
        else:
            asked.set_result(name)

    begin(asked, ask)
    gc.disable()  # The start makes objects that stay, a million of them for ten thousand partitions.
    try:
        broker = await start(config)
    except StartError as error:
        return not_started(error, config.data_dir)
    started(broker)
    if config.faults_enable:
        logger.warning(
            "faults_enabled",
            advice="all who can connect to the HTTP port can break this broker: for tests only",
        )
    collector = Collector()
    while not (await asyncio.wait((asked,), timeout=PERIOD_SECONDS))[0]:
        collector.collect_old()
    logger.info("broker_stopping", signal=asked.result())
    await broker.stop()
    logger.info("broker_stopped")
    for number in _SIGNALS:  # Once more is too late to change the exit code.
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    return 0


def _allow_many_files() -> None:
    """Raise the soft limit of open files: a connection and a segment take one each, and 1,024 are too few."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(_FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _keep_freed_memory() -> None:
    """Let glibc keep some memory that was freed.

    New pages for answers of megabytes cost more than the rest of a Fetch. Source: mallopt(3), which other C
    libraries lack.
    """
    import ctypes

    with suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _FREE_BYTES_KEPT)
        # Else nothing above 128 KiB is taken from what was kept.
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)


def run(serve: Coroutine[Any, Any, int]) -> int:
    """Run what serves on uvloop until it ends; returns its exit code. Logging must be set up."""
    import uvloop

    _allow_many_files()
    _keep_freed_memory()
    sys.setswitchinterval(_SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(serve)
    sys.stdout.flush()
    return code
