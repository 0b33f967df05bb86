"""A whole broker as a node: everything from its connections to its log files is what a real one runs.

Owns the lives of the broker: it is started on the same disk again after each death, as a supervisor would.
Only the sockets, the clock, the threads, the disk's caches and etcd are simulated.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextvars import Context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Self
from uuid import UUID

from tests.simulation.checked_store import CheckedStore, StoreFacts
from tests.simulation.platter import Platter
from tests.simulation.virtual_disk import VirtualDisk
from tests.simulation.virtual_etcd import VirtualEtcd
from tests.simulation.virtual_loop import Node, VirtualLoop
from tests.simulation.virtual_network import Endpoint, Network
from tidelog.broker.cluster.catalog import Listener
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.handlers.context import Handler
from tidelog.broker.net.connection import Connection
from tidelog.broker.net.dispatch import Dispatcher
from tidelog.broker.net.server import Server
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.opening import open_services
from tidelog.broker.replicas.group_commit import GroupCommit
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.served_apis import build_handlers
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError
from tidelog.protocol.schema import ApiKey

_PORT: Final = 9092
_LONGEST_SYNC_S: Final = 0.02
Handlers = Mapping[ApiKey, Handler]


class VirtualBroker:
    """`start` begins a life; `services` is what the present one serves with, None before it does.

    `opened` is called with the services of each life, and returns how its handlers are called; `failed` with
    why a life could not begin.
    """

    def __init__(
        self,
        network: Network,
        etcd: VirtualEtcd,
        facts: StoreFacts,
        node_id: int,
        folder: Path,
        rng: random.Random,
        settings: dict[str, Any],
        *,
        opened: "Callable[[VirtualBroker, Services, Handlers], Handlers]",
        failed: "Callable[[VirtualBroker, BaseException], None]",
    ) -> None:
        self.network = network
        self.etcd = etcd
        self.facts = facts
        self.node_id = node_id
        self.machine = f"broker-{node_id}"
        self.address = f"{self.machine}:{_PORT}"
        self.loop: VirtualLoop = network.loop
        self.rng = rng
        self.lives = 0
        self.power_cuts = 0
        self.services: Services | None = None
        self.node: Node
        self.disk: VirtualDisk
        self.platter = Platter(folder)
        self.keeps_dying = True
        """Whether a life may end soon after it began."""
        self.patiences_s = (1.0, 5.0)
        """How long a request to etcd may be tried. With little patience, more commits are in doubt."""
        self.settings = dict(settings)
        self._opened = opened
        self._failed = failed
        self._listener = Listener("PLAINTEXT", self.machine, _PORT)
        self._cuts_power: bool | None = None
        self._next_platter: Platter | None = None
        network.endpoints[self.address] = Endpoint()

    @property
    def is_alive(self) -> bool:
        return not self.node.is_dead

    @property
    def is_cut_off(self) -> bool:
        """Whether it refuses what needs the present image: by its own clock, which stands while it pauses."""
        services = self.services
        return services is not None and self.node.context.run(lambda: services.is_cut_off)

    def answers_of(self, replica: Replica) -> bool:
        """Whether clients get answers of this replica from this broker."""
        services = self.services
        if services is None or services.replicas.get((replica.topic, replica.partition)) is not replica:
            return False
        try:
            self.node.context.run(services.replica, replica.topic, replica.partition)
        except ApiError:
            return False
        return True

    def runs(self, incarnation: UUID) -> bool:
        """Whether this is the start of now, and accepts connections."""
        services = self.services
        return (
            self.is_alive
            and services is not None
            and services.membership is not None
            and services.membership.incarnation == incarnation
            and self.network.endpoints[self.address].accept is not None
        )

    def start(self, dies_at_write: int | None = None) -> None:
        """Begin a life, which ends at that write if one is given."""
        self.lives += 1
        self.node = Node(self.loop, f"{self.machine}, life {self.lives}", self.machine)
        self.node.on_death = self._died
        self.disk = VirtualDisk(self.platter, self.node)
        self.die_soon(dies_at_write)
        serving = self.node.start(self._serve(self.node, self.disk))
        serving.add_done_callback(self._served, context=Context())

    def die_soon(self, writes: int | None) -> None:
        """Die at one of the next writes to a log or a checkpoint."""
        self.disk.dies_at_write = writes
        self.disk.does_last_write = self.rng.random() < 0.5

    def kill(self, *, cuts_power: bool | None = None, platter: Platter | None = None) -> None:
        """End this life; the next one may have another disk. Without `cuts_power` chance decides."""
        if self.is_alive:
            self._cuts_power, self._next_platter = cuts_power, platter
            self.node.kill()

    async def stop(self) -> None:
        """End this life as SIGTERM does."""
        services, node = self.services, self.node
        if services is None:
            return

        async def end() -> None:
            await services.hand_over(services.config.shutdown_timeout_ms)
            self.network.endpoints[self.address].accept = None
            await services.close()

        ending = node.start(end())
        ending.add_done_callback(lambda _: node.is_dead or self.kill(cuts_power=False), context=Context())

    async def _serve(self, node: Node, disk: VirtualDisk) -> None:
        config = BrokerConfig(
            node_id=self.node_id,
            data_dir=self.platter.folder,
            listeners=[f"PLAINTEXT://{self.address}"],
            **self.settings,
        )
        metrics = Metrics()
        patience_s = self.rng.choice(self.patiences_s)
        store = CheckedStore(self.etcd, node, self.facts, config.broker_session_timeout_ms, patience_s)
        services = await open_services(
            config,
            metrics,
            self.loop.now_ms,
            listeners=[self._listener],
            steady_ms=self.loop.now_ms,
            store=store,
            disk=disk,
        )
        handlers = self._opened(self, services, build_handlers(services))
        dispatcher = Dispatcher(handlers, metrics, services.events, services.turns)
        server = Server(
            services.settings,
            dispatcher,
            metrics,
            services.events,
            services.handles,
            services.memory,
            services.quotas.of_connections,
        )
        numbers = iter(range(1, 1 << 30))
        listens: Any = SimpleNamespace(
            config=SimpleNamespace(security_protocol=SecurityProtocol.PLAINTEXT),
            listener_at=lambda _: self._listener,
        )
        endpoint = self.network.endpoints[self.address]
        endpoint.node = node
        endpoint.accept = lambda: Connection(server, listens, next(numbers))
        assert services.membership is not None
        await services.membership.join()
        self.services = services

    def _served(self, task: asyncio.Task[None]) -> None:
        if (error := task.exception()) is not None and not self.node.is_dead:
            self._failed(self, error)
            self.kill(cuts_power=False)

    def _died(self) -> None:
        self.services = None
        self.network.endpoints[self.address].accept = None
        # Not within the step in which it died, which may still hold files.
        self.loop.call_soon(self._bury, self.node, self.disk, context=Context())

    def _bury(self, node: Node, disk: VirtualDisk) -> None:
        self.network.cut_of(node)
        disk.close_all()
        if self._cuts_power or (self._cuts_power is None and self.rng.random() < 0.5):
            self.power_cuts += 1
            self.platter.cut_power(self.rng)
        self.platter, self._next_platter = self._next_platter or self.platter, None
        self._cuts_power = None
        # Now and then the next life ends within its recovery, or soon after.
        dies_soon = self.keeps_dying and self.rng.random() < 0.15
        dies_at_write = self.rng.randint(1, 12) if dies_soon else None
        self.loop.call_later(0.01 + self.rng.random() * 0.3, self.start, dies_at_write, context=Context())


class ThreadsAtOnce:
    """`ThreadPoolExecutor` without threads."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """As many as are wanted."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """All is done."""

    def map(self, work: Callable[[Any], Any], arguments: Iterable[Any]) -> Iterable[Any]:
        return [work(each) for each in arguments]

    def submit(self, work: Callable[[], Any]) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(work())
        return done


class VirtualGroupCommit(GroupCommit):
    """Syncs on the virtual loop, each after a delay of its own."""

    def _begin(self, log: Any) -> None:
        work = log.begin_flush()
        if work is not None:
            self._flushing.add(log)
            loop: Any = self._loop
            loop.call_later(loop.rng.random() ** 2 * _LONGEST_SYNC_S, self._sync, log, work)

    def _sync(self, log: Any, work: Any) -> None:
        outcome: BaseException | None = None
        try:
            work.run()
        except Exception as error:
            outcome = error
        self._finished.append((log, work, outcome))
        self._collect()
