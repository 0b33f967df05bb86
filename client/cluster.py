"""The way to the cluster: which broker leads what, and a connection to it.

Owns: the connections (at most one a node), reconnecting with exponential backoff and jitter, and the
metadata, refreshed when it is too old and whenever somebody found it wrong.
Invariants:
- one metadata request is under way at a time; whoever asks meanwhile shares the next one;
- a broker that fails is not dialled again before its backoff has passed, however many ask;
- listeners are called on every change that may let a waiting request go: new metadata, a connection made or
  lost. They are called from the event loop and must not block or raise.
Callers: producer, sender, consumer, fetcher, admin; all on one event loop.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from client.backoff import Backoff
from client.connection import Connection
from client.errors import (
    BrokerUnavailableError,
    ClientClosedError,
    ClientError,
    broker_error,
)
from client.events import logger
from client.metadata import EMPTY, ClusterImage, TopicInfo, apply_metadata
from client.metrics import ClientMetrics
from client.types import TopicPartition
from protocol.errors import ErrorCode
from protocol.schema import ApiKey

__all__ = ["Cluster", "ClusterConfig", "parse_servers"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """How to reach the cluster. All times in milliseconds."""

    bootstrap_servers: str | list[str] = "127.0.0.1:9092"
    client_id: str = "tidelog"
    request_timeout_ms: int = 40_000
    connect_timeout_ms: int = 10_000
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    allow_auto_create_topics: bool = False

    def __post_init__(self) -> None:
        parse_servers(self.bootstrap_servers)
        for name in self.__slots__:
            if name.endswith("_ms") and getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, expected milliseconds above 0")


def parse_servers(servers: str | list[str]) -> list[tuple[str, int]]:
    """("host", port) for each of "host:port,host:port" or of a list of such; port 9092 where none is given.

    Raises ValueError for what is not an address. IPv6 addresses stand in brackets: "[::1]:9092".
    """
    texts = servers.split(",") if isinstance(servers, str) else servers
    found: list[tuple[str, int]] = []
    for text in texts:
        host, colon, port = text.strip().rpartition(":")
        if not colon or port.endswith("]"):
            host, port = text.strip(), "9092"
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"bootstrap_servers has {text.strip()!r}, expected host:port")
        found.append((host, int(port)))
    if not found:
        raise ValueError("bootstrap_servers is empty, expected host:port")
    return found


class _Address(NamedTuple):
    """Where to dial; connections of different lanes do not wait for each other's answers."""

    host: str
    port: int
    lane: str = ""


class _Link:
    """What is known of the way to one node."""

    __slots__ = ("connection", "dialling", "failures", "retry_at")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.dialling: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.retry_at = 0.0


class Cluster:
    """One per client. `start` before use, `close` at the end."""

    def __init__(self, config: ClusterConfig, rng: random.Random | None = None) -> None:
        self.config = config
        self.image: ClusterImage = EMPTY
        self.metrics = ClientMetrics()
        self._rng = rng or random.Random()
        self._reconnect = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, self._rng)
        self._retry = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self._rng)
        self._topics: set[str] = set()
        self._listeners: list[Callable[[], None]] = []
        self._links: dict[_Address, _Link] = {}
        self._refresh_task: asyncio.Task[None] | None = None
        self._refreshed_at = 0.0
        self._age_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop

    async def start(self) -> None:
        """Find a broker and learn who else there is. Raises BrokerUnavailableError within
        request_timeout_ms."""
        self._loop = asyncio.get_running_loop()
        deadline = self._loop.time() + self.config.request_timeout_ms / 1000
        failures = 0
        while True:
            try:
                await self.refresh()
                return
            except ClientError as error:
                failures += 1
                delay = self._retry.delay_ms(failures) / 1000
                if not error.retriable or self._loop.time() + delay >= deadline:
                    await self.close()
                    raise
                await asyncio.sleep(delay)

    async def close(self) -> None:
        """Close every connection. Harmless when closed."""
        self._is_closed = True
        if self._age_timer is not None:
            self._age_timer.cancel()
        for link in self._links.values():
            if link.connection is not None:
                link.connection.close(ClientClosedError("the client was closed"))
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` on each change of metadata or connections."""
        self._listeners.append(listener)

    # Metadata

    def watch_topics(self, topics: Iterable[str]) -> None:
        """Keep the metadata of these topics from the next refresh on."""
        self._topics.update(topics)

    def request_refresh(self) -> None:
        """Somebody found the metadata wrong: refresh it soon, at most once every retry_backoff_ms."""
        if self._refresh_task is None and not self._is_closed:
            since = self._loop.time() - self._refreshed_at
            delay = max(0.0, self.config.retry_backoff_ms / 1000 - since)
            self._refresh_task = self._spawn(self._refresh_after(delay))

    async def refresh(self) -> ClusterImage:
        """The metadata as of now or later. Raises BrokerUnavailableError or what the broker refused with."""
        if self._refresh_task is not None:
            # It may have been asked before the caller's topics were watched.
            await asyncio.wait([self._refresh_task])
        if self._refresh_task is None:
            self._require_open()
            self._refresh_task = self._spawn(self._refresh_after(0.0))
        await _result(self._refresh_task)
        return self.image

    async def topic(self, name: str) -> TopicInfo:
        """The topic with at least one partition, waiting up to request_timeout_ms for it to appear.

        Raises UnknownTopicError, AuthorizationError or another BrokerError, or BrokerUnavailableError.
        """
        deadline = self._loop.time() + self.config.request_timeout_ms / 1000
        failures = 0
        while True:
            info = self.image.topics.get(name)
            if info is not None and info.partitions and info.error is ErrorCode.NONE:
                return info
            if info is not None and not info.error.retriable and info.error is not ErrorCode.NONE:
                self._topics.discard(name)
                raise broker_error(info.error, f"topic {name!r}")
            is_hopeless = info is not None and not self.config.allow_auto_create_topics
            delay = self._retry.delay_ms(failures) / 1000 if failures else 0.0
            if self._loop.time() + delay >= deadline or (is_hopeless and failures > 3):
                self._topics.discard(name)
                code = info.error if info is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if code is ErrorCode.NONE:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise broker_error(code, f"topic {name!r}")
            failures += 1
            if delay:
                await asyncio.sleep(delay)
            self._topics.add(name)
            try:
                await self.refresh()
            except ClientError as error:
                if not error.retriable:
                    raise

    async def _refresh_after(self, delay: float) -> None:
        try:
            if delay:
                await asyncio.sleep(delay)
            await self._fetch_metadata()
        finally:
            self._refresh_task = None
            self._refreshed_at = self._loop.time()
            self._arm_age_timer()
            self._notify()

    async def _fetch_metadata(self) -> None:
        topics = sorted(self._topics)
        answer = await self.call_any(
            ApiKey.METADATA,
            {
                "topics": [{"name": name} for name in topics],
                "allow_auto_topic_creation": self.config.allow_auto_create_topics,
            },
        )
        self.image = apply_metadata(self.image, answer)
        self._drop_strangers()

    def _arm_age_timer(self) -> None:
        if self._age_timer is not None:
            self._age_timer.cancel()
        if not self._is_closed:
            age = self.config.metadata_max_age_ms / 1000
            self._age_timer = self._loop.call_later(age, self.request_refresh)

    def _drop_strangers(self) -> None:
        """Close connections to addresses that are neither a node's nor to be tried at the next bootstrap."""
        wanted = {(node.host, node.port) for node in self.image.nodes.values()}
        for address, link in list(self._links.items()):
            if wanted and (address.host, address.port) not in wanted and link.dialling is None:
                del self._links[address]
                if link.connection is not None:
                    link.connection.close()

    # Connections

    def connection(self, node_id: int) -> Connection | None:
        """A connection to the node that is ready; None while there is none, and then one is being made."""
        node = self.image.nodes.get(node_id)
        if node is None or self._is_closed:
            return None
        address = _Address(node.host, node.port)
        link = self._link(address)
        if link.connection is not None:
            return link.connection
        if link.dialling is None:
            self._dial(address, link)
        return None

    async def connected(self, node_id: int, lane: str = "") -> Connection:
        """A connection to the node, one for each lane: brokers answer in order, so that what waits long (a
        fetch) needs its own. Raises BrokerUnavailableError."""
        node = self.image.nodes.get(node_id)
        if node is None:
            raise BrokerUnavailableError(f"no broker has the id {node_id}")
        return await self._connected(_Address(node.host, node.port, lane))

    async def leader_connection(self, key: TopicPartition) -> Connection:
        """A connection to the partition's leader. Raises BrokerUnavailableError when it has none now."""
        leader = self.image.leader(key)
        if leader < 0:
            self.request_refresh()
            raise BrokerUnavailableError(f"{key.topic}-{key.partition} has no leader at the moment")
        return await self.connected(leader)

    async def call_any(self, api_key: ApiKey, values: dict[str, object]) -> Any:
        """Ask any broker, one after the other. Raises the last error when none answers."""
        error: ClientError = BrokerUnavailableError("no broker is known")
        for address in self._candidates():
            try:
                connection = await self._connected(address)
                return await connection.call(api_key, values)
            except ClientError as caught:
                error = caught
        raise error

    def _candidates(self) -> list[_Address]:
        """Addresses to try: connected nodes first, then the other nodes, then the bootstrap servers."""
        nodes = [_Address(node.host, node.port) for node in self.image.nodes.values()]
        bootstrap = [_Address(host, port) for host, port in parse_servers(self.config.bootstrap_servers)]
        self._rng.shuffle(nodes)
        self._rng.shuffle(bootstrap)
        known = list(dict.fromkeys(nodes + bootstrap))
        return sorted(known, key=lambda address: self._link(address).connection is None)

    def _link(self, address: _Address) -> _Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = _Link()
        return link

    async def _connected(self, address: _Address) -> Connection:
        self._require_open()
        link = self._link(address)
        if link.connection is not None:
            return link.connection
        return await _result(link.dialling or self._dial(address, link))

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the client was closed")

    def _dial(self, address: _Address, link: _Link) -> asyncio.Task[Connection]:
        task = link.dialling = self._spawn(self._open(address, link))
        return task

    async def _open(self, address: _Address, link: _Link) -> Connection:
        host, port, _ = address
        try:
            wait = link.retry_at - self._loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            connection = await Connection.open(
                host,
                port,
                client_id=self.config.client_id,
                request_timeout_ms=self.config.request_timeout_ms,
                connect_timeout_ms=self.config.connect_timeout_ms,
                on_close=lambda closed, error: self._on_closed(link, closed, error),
            )
        except ClientError as error:
            link.failures += 1
            link.retry_at = self._loop.time() + self._reconnect.delay_ms(link.failures) / 1000
            where = f"{host}:{port}"
            logger.info("connection_failed", address=where, error=str(error), failures=link.failures)
            self._loop.call_at(link.retry_at, self._after_failure)
            raise
        else:
            link.failures = 0
            link.connection = connection
            connection.on_writable = self._notify
            connection.metrics = self.metrics
            return connection
        finally:
            link.dialling = None
            self._loop.call_soon(self._notify)

    def _after_failure(self) -> None:
        if not self._is_closed:
            self.request_refresh()
            self._notify()

    def _on_closed(self, link: _Link, connection: Connection, error: ClientError) -> None:
        if link.connection is not connection:
            return
        link.connection = None
        if not self._is_closed:
            logger.info("connection_lost", address=connection.address, error=str(error))
            self.request_refresh()
            self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            if not isinstance(error, ClientError):
                logger.error("background_task_failed", exc_info=error)


async def _result(task: "asyncio.Task[_T]") -> _T:
    """What a task that others share gives; its end by `close` is no cancellation of the caller."""
    await asyncio.wait([task])
    if task.cancelled():
        raise ClientClosedError("the client was closed meanwhile")
    return task.result()
