"""A whole broker as a node: everything from its connections to its log files is what a real one runs.

Owns the lives of the broker: it is started on the same folder again after each death. Only the sockets, the
clock, the threads, the disk's caches and the catalog's store are simulated.
"""

import asyncio
import random
from contextvars import Context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from tests.simulation.virtual_disk import Platter, VirtualCommits, VirtualDisk, VirtualStore
from tests.simulation.virtual_loop import Node, VirtualLoop
from tests.simulation.virtual_network import Network
from tidelog.broker.cluster.catalog import Listener
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.net.connection import Connection
from tidelog.broker.net.dispatch import Dispatcher
from tidelog.broker.net.server import Server
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.replicas.group_commit import GroupCommit
from tidelog.broker.served_apis import build_handlers
from tidelog.broker.services import Services, open_services

ADDRESS: Final = "virtual:1"
_LISTENER: Final = Listener("PLAINTEXT", "virtual", 1)
_LONGEST_SYNC_S: Final = 0.02
_ENDPOINT: Final[Any] = SimpleNamespace(
    config=SimpleNamespace(security_protocol=SecurityProtocol.PLAINTEXT),
    listener_at=lambda _: _LISTENER,
)


class VirtualBroker:
    """`start` begins a life; `services` is what the present one serves with, None before it does."""

    def __init__(self, network: Network, folder: Path, rng: random.Random, settings: dict[str, Any]) -> None:
        self.network = network
        self.loop: VirtualLoop = network.loop
        self.rng = rng
        self.lives = 0
        self.power_cuts = 0
        self.bytes_lost = 0
        self.failures: list[str] = []
        """Why lives could not begin."""
        self.services: Services | None = None
        self.node: Node
        self.disk: VirtualDisk
        self._settings = settings
        self._platter = Platter(folder)
        self._commits = VirtualCommits()

    def start(self, dies_at_write: int | None = None) -> None:
        """Begin a life, which ends at that write if one is given."""
        self.lives += 1
        self.node = Node(self.loop, f"broker {self.lives}")
        self.node.on_death = self._died
        self.disk = VirtualDisk(self._platter, self.node)
        self.die_soon(dies_at_write)
        serving = self.node.start(self._serve(self.node, self.disk))
        serving.add_done_callback(self._served, context=Context())

    def die_soon(self, writes: int | None) -> None:
        """Die at one of the next writes to a log or a checkpoint."""
        self.disk.dies_at_write = writes
        self.disk.does_last_write = self.rng.random() < 0.5

    async def _serve(self, node: Node, disk: VirtualDisk) -> None:
        config = BrokerConfig(data_dir=self._platter.folder, **self._settings)
        metrics = Metrics()
        services = await open_services(
            config,
            metrics,
            self.loop.now_ms,
            listeners=[_LISTENER],
            steady_ms=self.loop.now_ms,
            store=VirtualStore(self._commits, node),
            disk=disk,
        )
        dispatcher = Dispatcher(build_handlers(services), metrics, services.events, services.turns)
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
        self.services = services
        self.network.endpoint.node = node
        self.network.endpoint.accept = lambda: Connection(server, _ENDPOINT, next(numbers))

    def _served(self, task: asyncio.Task[None]) -> None:
        if (error := task.exception()) is not None and not self.node.is_dead:
            self.failures.append(f"{self.node.name} did not start: {error!r}")

    def _died(self) -> None:
        self.services = None
        self.network.endpoint.accept = None
        node = self.node
        # Not within the step in which it died, which may still hold files.
        self.loop.call_soon(self._bury, node, self.disk, context=Context())

    def _bury(self, node: Node, disk: VirtualDisk) -> None:
        self.network.cut_of(node)
        disk.close_all()
        if self.rng.random() < 0.5:
            self.power_cuts += 1
            self.bytes_lost += self._platter.cut_power(self.rng)
        # Now and then the next life ends within its recovery, or soon after.
        dies_at_write = self.rng.randint(1, 12) if self.rng.random() < 0.15 else None
        self.loop.call_later(0.01 + self.rng.random() * 0.3, self.start, dies_at_write, context=Context())


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
