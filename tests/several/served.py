"""Brokers of one cluster as users start them: one, `--processes 3`, or three `tidelog serve` over real etcd.

Owns what differs between these ways, so that what uses a cluster runs over each. Each broker is killed as by
kill -9, and serves again at the same address and in the same folder.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from faults.etcd import running_etcd
from faults.process import BrokerProcess
from tests.several.processes import Processes, processes
from tests.waiting import DEADLINE_SECONDS
from tidelog.client import Admin

ONE, PROCESSES, ETCD = "one", "processes", "etcd"
SEVERAL = (PROCESSES, ETCD)
WAYS = (ONE, *SEVERAL)
COUNT = 3
_SESSION_MS = "3000"


class Served(ABC):
    """A cluster that runs. Its brokers are counted from 0."""

    count: int
    bootstrap_servers: str
    data_dirs: Sequence[Path]
    """Those that a user knows of."""

    @asynccontextmanager
    async def without(self, broker: int) -> AsyncIterator[None]:
        """Kill a broker now; when the block has ended, it leads its partitions again."""
        await self._kill(broker)
        try:
            yield
        finally:
            await self._start(broker)
            await self._has_leaders()

    async def _has_leaders(self) -> None:
        async with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not all(  # noqa: ASYNC110 (the broker does not signal it)
                    each.leader >= 0 for topic in await admin.describe_topics() for each in topic.partitions
                ):
                    await asyncio.sleep(0.05)

    @abstractmethod
    async def stop(self) -> None:
        """By SIGTERM, all of them."""

    @abstractmethod
    async def _kill(self, broker: int) -> None: ...

    @abstractmethod
    async def _start(self, broker: int) -> None: ...


class _ServedByBrokers(Served):
    def __init__(self, brokers: Sequence[BrokerProcess]) -> None:
        self._brokers = brokers
        self.count = len(brokers)
        self.bootstrap_servers = ",".join(f"127.0.0.1:{each.port}" for each in brokers)
        self.data_dirs = [each.data_dir for each in brokers]

    async def stop(self) -> None:
        for broker in self._brokers:
            await broker.terminate()

    async def _kill(self, broker: int) -> None:
        await self._brokers[broker].kill_9()

    async def _start(self, broker: int) -> None:
        await self._brokers[broker].start()


class _ServedByProcesses(Served):
    def __init__(self, broker: Processes) -> None:
        self._broker = broker
        self.count = broker.count
        self.bootstrap_servers = broker.bootstrap_servers
        self.data_dirs = [broker.data_dir]

    async def stop(self) -> None:
        await self._broker.stop()

    async def _kill(self, broker: int) -> None:
        await self._broker.kill_and_await(str(broker))

    async def _start(self, broker: int) -> None:
        """It has started again by itself."""


@asynccontextmanager
async def served(way: str, folder: Path, **settings: str) -> AsyncIterator[Served]:
    """A cluster with its data in `folder`, started in one of WAYS with these settings."""
    if way == PROCESSES:
        async with processes(folder / "data", COUNT, **settings) as broker:
            yield _ServedByProcesses(broker)
        return
    async with AsyncExitStack() as stack:
        places = {folder / "broker": settings}
        if way == ETCD:
            (folder / "etcd").mkdir(parents=True)
            etcd = await stack.enter_async_context(running_etcd(folder / "etcd"))
            store = {"cluster.store": etcd.store}
            session = {"broker.session.timeout.ms": _SESSION_MS}
            places = {
                folder / f"broker-{number}": settings | store | session | {"node.id": str(number)}
                for number in range(1, COUNT + 1)
            }
        yield _ServedByBrokers(
            [
                await stack.enter_async_context(BrokerProcess(place, settings=given))
                for place, given in places.items()
            ]
        )
