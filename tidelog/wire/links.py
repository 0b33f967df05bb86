"""The connections to brokers: at most one per address and lane, opened when needed.

Owns: connecting, and reconnecting with exponential backoff and jitter.
Invariants:
- after a failure no new connection to the address is tried before its backoff has passed, however many
  callers need one;
- `on_change` is called when a connection was opened or lost, or may be tried again. `on_trouble` is called
  when an address failed or a connection broke, because the metadata may be wrong, and `on_silence` while a
  broker does not answer.
Source: KIP-144 for the backoff.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

from tidelog.wire.asked_apis import AskedApis
from tidelog.wire.backoff import Backoff
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.connection import Connection
from tidelog.wire.errors import AuthenticationError, ClientClosedError, ClientError
from tidelog.wire.events import logger
from tidelog.wire.metrics import RequestMetrics
from tidelog.wire.opening import open_connection

_T = TypeVar("_T")
Spawn = Callable[[Coroutine[Any, Any, Connection]], "asyncio.Task[Connection]"]


class Address(NamedTuple):
    """Where to connect. Connections of different lanes do not wait for each other's answers."""

    host: str
    port: int
    lane: str = ""


class _Link:
    """The state of one address. `retry_at` is in seconds of the loop's clock."""

    __slots__ = ("connection", "dialling", "failures", "retry_at")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.dialling: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.retry_at = 0.0


class Links:
    """Opens connections to the brokers of one cluster, and opens lost ones again. `spawn` runs a coroutine as
    a task; closing the cluster cancels it."""

    def __init__(
        self,
        config: ClusterConfig,
        asked: AskedApis,
        metrics: RequestMetrics,
        rng: random.Random,
        *,
        spawn: Spawn,
        on_change: Callable[[], None],
        on_trouble: Callable[[], None],
        on_silence: Callable[[], None] | None = None,
    ) -> None:
        self._config = config
        self._asked = asked
        self._metrics = metrics
        self._backoff = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, rng)
        self._spawn = spawn
        self._on_change = on_change
        self._on_trouble = on_trouble
        self._on_silence = on_silence
        self._links: dict[Address, _Link] = {}
        self.is_closed = False
        self.refusal: AuthenticationError | None = None
        """Why a broker did not accept this client, until one accepts it."""

    def ready(self, address: Address) -> Connection | None:
        """A connection that takes requests. If there is none, None, and one is being opened."""
        link = self._link(address)
        if link.connection is None and link.dialling is None:
            _ = self._dial(address, link)
        return link.connection

    async def connected(self, address: Address) -> Connection:
        """A connection, opened if there is none. Raises BrokerUnavailableError."""
        link = self._link(address)
        if link.connection is not None:
            return link.connection
        return await result_of(link.dialling or self._dial(address, link))

    def by_readiness(self, addresses: Iterable[Address]) -> list[Address]:
        """`addresses`: connected ones first, then those that may be tried at once; else in their order. Last
        those of brokers that do not answer."""
        silent = {
            (each.host, each.port)
            for each, link in self._links.items()
            if link.connection is not None and link.connection.is_silent
        }

        def wait(address: Address) -> tuple[bool, bool, float]:
            link, is_silent = self._links.get(address), (address.host, address.port) in silent
            if link is None:
                return is_silent, True, 0.0
            return is_silent, link.connection is None, link.retry_at if link.failures else 0.0

        return sorted(addresses, key=wait)

    def keep_only(self, wanted: set[tuple[str, int]]) -> None:
        """Close the connections to every other address, except those that are just being opened."""
        for address, link in list(self._links.items()):
            if (address.host, address.port) not in wanted and link.dialling is None:
                del self._links[address]
                connection, link.connection = link.connection, None
                if connection is not None:
                    connection.close()

    def close(self) -> None:
        """Close every connection. No callback is called any more."""
        self.is_closed = True
        for link in self._links.values():
            if link.connection is not None:
                link.connection.close(ClientClosedError("the client was closed"))
        self._links.clear()

    def _link(self, address: Address) -> _Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = _Link()
        return link

    def _dial(self, address: Address, link: _Link) -> "asyncio.Task[Connection]":
        task = link.dialling = self._spawn(self._open(address, link))
        return task

    async def _open(self, address: Address, link: _Link) -> Connection:
        loop = asyncio.get_running_loop()
        host, port, _ = address
        try:
            wait = link.retry_at - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            connection = await open_connection(
                host,
                port,
                self._config,
                self._asked,
                on_close=lambda closed, error: self._on_closed(link, closed, error),
            )
        except Exception as error:
            if isinstance(error, AuthenticationError):
                self.refusal = error
            link.failures += 1
            link.retry_at = loop.time() + self._backoff.delay_ms(link.failures) / 1000
            where = f"{host}:{port}"
            logger.info("connection_failed", address=where, error=str(error), failures=link.failures)
            loop.call_at(link.retry_at, self._after_failure)
            raise
        else:
            link.failures = 0
            self.refusal = None
            link.connection = connection
            connection.on_writable, connection.on_silence = self._on_change, self._on_silence
            connection.metrics = self._metrics
            return connection
        finally:
            link.dialling = None
            loop.call_soon(self._on_change)

    def _after_failure(self) -> None:
        if not self.is_closed:
            self._on_trouble()
            self._on_change()

    def _on_closed(self, link: _Link, connection: Connection, error: ClientError) -> None:
        if link.connection is not connection:
            return
        link.connection = None
        if not self.is_closed:
            logger.info("connection_lost", address=connection.address, error=str(error))
            self._on_trouble()
            self._on_change()


async def result_of(task: "asyncio.Task[_T]") -> _T:
    """The result of a shared task. If closing cancels the task, the caller gets ClientClosedError."""
    await asyncio.wait([task])
    if task.cancelled():
        raise ClientClosedError("the client was closed meanwhile")
    return task.result()
