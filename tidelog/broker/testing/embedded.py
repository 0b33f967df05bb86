"""A whole broker inside a test: on a free port and a folder of its own, removed with the test.

Owns `EmbeddedBroker`, which runs in the loop of the test, and `ThreadedBroker`, which has a thread and a loop
of its own, so that blocking clients (confluent-kafka, kafka-python) and any test can use it.

Invariants: the temporary folder is removed at the end, however the test ended, while a given folder is kept;
a restart keeps the port and the folder; nothing is global, so any number may run side by side.
"""

import asyncio
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from tidelog.broker.app import Broker, StartError
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.fault_injection.injection import FaultInjector
from tidelog.broker.replicas.topics import NewTopic

__all__ = ["EmbeddedBroker", "StartError", "ThreadedBroker"]

_T = TypeVar("_T")
_TIMEOUT_S = 30.0


class EmbeddedBroker:
    """`async with EmbeddedBroker() as broker:` serves on `broker.bootstrap_servers` until the block ends.

    `settings` have Kafka's names (`{"log.segment.bytes": 65536}`, see `tidelog config`); a value that is out
    of bounds raises ConfigError here. `data_dir` is kept at the end; without it a temporary folder is used.
    Call all methods in the loop that ran `start`.
    """

    def __init__(
        self, *, data_dir: Path | str | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        wanted: dict[str, Any] = {"http.port": -1, "group.initial.rebalance.delay.ms": 0, **(settings or {})}
        if "listeners" not in wanted:
            wanted.setdefault("port", 0)
        self._config = BrokerConfig().with_settings(wanted)
        self._kept_dir = None if data_dir is None else Path(data_dir)
        self._is_placed = False
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        """The running broker itself. Raises RuntimeError while none runs."""
        if self._broker is None:
            raise RuntimeError(
                "the embedded broker does not run: enter it with `async with`, or restart() it"
            )
        return self._broker

    @property
    def is_running(self) -> bool:
        return self._broker is not None

    @property
    def port(self) -> int:
        """The port of its first listener; the same after a restart. 0 before the first start, if the system
        chooses it."""
        return self._config.listener_configs[0].port

    @property
    def bootstrap_servers(self) -> str:
        """The setting `bootstrap.servers` of a Kafka client: `127.0.0.1:PORT`."""
        return self._config.listener_configs[0].local_address

    @property
    def data_dir(self) -> Path:
        """The folder of its files."""
        return self._config.data_dir

    async def start(self) -> None:
        """Serve; does nothing while it runs. Raises StartError when it cannot."""
        if self._broker is not None:
            return
        if not self._is_placed:
            folder = self._kept_dir or Path(tempfile.mkdtemp(prefix="tidelog-"))
            self._config = self._config.with_settings({"data.dir": folder})
            self._is_placed = True
        try:
            self._broker = await Broker.start(self._config)
        except BaseException:
            self._remove()
            raise
        # A restart must use the port that the clients know.
        self._config = self._config.with_ports(list(self._broker.ports.values()))

    async def stop(self) -> None:
        """Stop it as SIGTERM would; nothing is removed, and `start` serves the same data again."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.stop()

    async def crash(self) -> None:
        """End it as `kill -9` would: clients lose their connections without answers, nothing is flushed."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.abandon()

    async def restart(self) -> None:
        """Stop it if it runs, then serve again on the same port and folder."""
        await self.stop()
        await self.start()

    async def create_topic(
        self, name: str | None = None, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and return its name; without a name it gets a new one.

        Raises protocol.errors.ApiError for a name that exists and for invalid settings.
        """
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        await self.broker.services.topics.create(
            name, NewTopic(num_partitions=partitions, configs=configs or {})
        )
        return name

    def order_fault(self, fault: str, **fields: object) -> dict[str, Any]:
        """Make it fail as `tidelog fault` does: `fault` is drop, delay, error, cut, forget, expire,
        sequence or expire_locks. `fields` are those of `broker.fault_injection`: topic, partition, client_id,
        api, skip, count (None: until cleared), when, delay_ms, error. Returns the order as taken, with its
        id. Faults end with the broker. Raises FaultError, and ApiError for a partition that does not exist.
        """
        return self._injector().take({"fault": fault, **fields})

    def faults(self) -> dict[str, list[dict[str, Any]]]:
        """The orders that still apply ("faults") and those that are finished, with their hits."""
        return self._injector().rules.describe()

    def clear_faults(self) -> None:
        """End all faults."""
        self._injector().rules.clear(None)

    def _injector(self) -> FaultInjector:
        if self.broker.faults is None:
            raise RuntimeError("this broker takes no faults: start it with the setting faults.enable=true")
        return self.broker.faults

    async def close(self) -> None:
        """Stop it and remove its temporary folder; it can be started again, empty."""
        try:
            await self.stop()
        finally:
            self._remove()

    def _remove(self) -> None:
        if self._kept_dir is None and self._is_placed:
            shutil.rmtree(self.data_dir, ignore_errors=True)
            self._is_placed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class ThreadedBroker:
    """`with ThreadedBroker() as broker:` is an EmbeddedBroker on a thread of its own.

    The test may block, or run loops of its own, meanwhile. Every method waits until it is done, and may be
    called from any thread.
    """

    def __init__(
        self, *, data_dir: Path | str | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        self._embedded = EmbeddedBroker(data_dir=data_dir, settings=settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def broker(self) -> Broker:
        """The running broker. Only read it: it has another thread. Raises RuntimeError while none runs."""
        return self._embedded.broker

    @property
    def is_running(self) -> bool:
        return self._embedded.is_running

    @property
    def port(self) -> int:
        """As EmbeddedBroker's."""
        return self._embedded.port

    @property
    def bootstrap_servers(self) -> str:
        """As EmbeddedBroker's."""
        return self._embedded.bootstrap_servers

    @property
    def data_dir(self) -> Path:
        """As EmbeddedBroker's."""
        return self._embedded.data_dir

    def start(self) -> None:
        """Serve; does nothing while it runs. Raises StartError when it cannot."""
        self._do(self._embedded.start)

    def stop(self) -> None:
        """Stop it as SIGTERM would; nothing is removed."""
        self._do(self._embedded.stop)

    def crash(self) -> None:
        """End it as `kill -9` would."""
        self._do(self._embedded.crash)

    def restart(self) -> None:
        """Stop it if it runs, then serve again on the same port and folder."""
        self._do(self._embedded.restart)

    def create_topic(
        self, name: str | None = None, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and return its name; without a name it gets a new one. Raises ApiError."""
        return self._do(lambda: self._embedded.create_topic(name, partitions=partitions, configs=configs))

    def order_fault(self, fault: str, **fields: object) -> dict[str, Any]:
        """As EmbeddedBroker's."""

        async def order() -> dict[str, Any]:
            return self._embedded.order_fault(fault, **fields)

        return self._do(order)

    def faults(self) -> dict[str, list[dict[str, Any]]]:
        """As EmbeddedBroker's."""

        async def faults() -> dict[str, list[dict[str, Any]]]:
            return self._embedded.faults()

        return self._do(faults)

    def clear_faults(self) -> None:
        """As EmbeddedBroker's."""

        async def clear() -> None:
            self._embedded.clear_faults()

        self._do(clear)

    def close(self) -> None:
        """Stop it, remove its temporary folder and end its thread."""
        if self._thread is None or self._loop is None:
            return
        try:
            self._do(self._embedded.close)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_TIMEOUT_S)
            self._thread = self._loop = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        if self._loop is None:
            import uvloop

            self._loop = uvloop.new_event_loop()
            self._thread = threading.Thread(
                target=_run_loop, args=(self._loop,), name="tidelog-broker", daemon=True
            )
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(_TIMEOUT_S)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """The main function of the thread: run until the loop is stopped, then end what it started."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
