"""Some brokers in one process, over one store: started, stopped, killed and started again, each by its id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.waiting import until
from tidelog.broker.app import Broker
from tidelog.broker.cluster.catalog import NO_LEADER, Topic
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import BrokerSession, Commit
from tidelog.broker.cluster.store_sharing import StoreMember, StoreSharing
from tidelog.broker.configuration.broker_config import BrokerConfig

QUICK = {
    "group_initial_rebalance_delay_ms": 0,
    "shutdown_linger_ms": 0,
    "offsets_topic_num_partitions": 6,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_num_partitions": 6,
    "transaction_state_log_replication_factor": 1,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 100,
}


class Member(StoreMember):
    """The store as one broker has it, which may lose its session, and the way to the store."""

    def __init__(self, sharing: StoreSharing) -> None:
        super().__init__(sharing)
        self.is_reachable = asyncio.Event()
        self.is_reachable.set()
        self.hears = asyncio.Event()
        self.hears.set()
        self.commits = 0
        self._lost: BrokerSession | None = None

    async def lose_session(self) -> None:
        self._lost = self._session
        await self.end_session()

    async def regain_session(self) -> None:
        assert self._lost is not None
        await self.begin_session(self._lost)

    async def commit(self, *arguments: Any, **more: Any) -> None:
        await self.is_reachable.wait()
        self.commits += 1
        await super().commit(*arguments, **more)

    async def watch(self, revision: int) -> AsyncIterator[Commit]:
        async for commit in super().watch(revision):
            await self.is_reachable.wait()
            await self.hears.wait()
            yield commit

    async def watch_sessions(self) -> AsyncIterator[frozenset[BrokerSession]]:
        async for living in super().watch_sessions():
            await self.is_reachable.wait()
            yield living


class Brokers:
    """Those that run, by their ids."""

    def __init__(self, folder: Path, store: StoreSharing, settings: dict[str, Any]) -> None:
        self.running: dict[int, Broker] = {}
        self._folder = folder
        self.store = store
        self._settings = settings
        self._ports: dict[int, dict[str, int]] = {}
        self.members: dict[int, Member] = {}

    async def start(self, node_id: int, **settings: Any) -> Broker:
        """A broker in its own folder; once more at its addresses of before. `listeners` are names."""
        wanted = {**self._settings, **settings}
        ports = self._ports.get(node_id, {})
        if "listeners" in wanted:
            names = wanted["listeners"]
            wanted["listeners"] = [f"{name}://127.0.0.1:{ports.get(name, 0)}" for name in names]
        else:
            wanted["port"] = next(iter(ports.values()), 0)
        wanted = {"data_dir": self._folder / f"broker-{node_id}", "http_port": -1, **QUICK, **wanted}
        config = BrokerConfig(node_id=node_id, **wanted)
        member = Member(self.store)
        broker = await Broker.start(config, store=member)
        self.running[node_id], self.members[node_id] = broker, member
        self._ports[node_id] = broker.ports
        return broker

    async def stop(self, node_id: int) -> None:
        self.members[node_id].is_reachable.set()
        await self.running.pop(node_id).stop()

    async def kill(self, node_id: int) -> None:
        """As kill -9."""
        await self.running.pop(node_id).abandon()

    def __getitem__(self, node_id: int) -> Broker:
        return self.running[node_id]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.running.values())

    def topic(self, name: str) -> Topic:
        """As any broker knows it."""
        found = next(iter(self.running.values())).services.catalog.topic(name)
        assert found is not None
        return found

    def leader_of(self, topic: str, partition: int) -> int:
        return self.topic(topic).partitions[partition].leader_id

    async def agreed(self) -> None:
        """Every broker knows what any of them knows, and has done what follows."""

        def is_agreed() -> bool:
            return len({broker.services.catalog.revision for broker in self._hearing()}) == 1

        await until(is_agreed)
        for broker in self._hearing():
            await broker.services.topics.settled()

    async def make_internal_topics(self) -> None:
        """Those of groups and of transactions, before anybody needs them."""
        for broker in self.running.values():
            await broker.services.groups.make_topic()
            await broker.services.transactions.make_topic()
        await self.agreed()

    async def lose_session(self, node_id: int) -> None:
        """As if it had been paused: the others take it for dead, and it learns of that."""
        await self.members[node_id].lose_session()
        await self.fenced(node_id)

    async def regain_session(self, node_id: int) -> None:
        await self.members[node_id].regain_session()
        await self.leading(node_id)

    async def cut_off(self, node_id: int) -> None:
        """It cannot reach the store any more, and its session ends."""
        self.members[node_id].is_reachable.clear()
        await self.members[node_id].lose_session()

    async def reconnect(self, node_id: int) -> None:
        self.members[node_id].is_reachable.set()
        await self.regain_session(node_id)

    async def fenced(self, node_id: int) -> None:
        """Every broker that hears of the catalog knows that this one is fenced, and leads nothing."""
        await until(lambda: all(_is_fenced(each, node_id) for each in self._hearing()))
        await self.agreed()

    async def leading(self, node_id: int) -> None:
        """Every broker knows that this one leads all that it alone holds."""
        await until(lambda: all(_leads_its_own(each, node_id) for each in self._hearing()))
        await self.agreed()

    def _hearing(self) -> list[Broker]:
        return [each for node_id, each in self.running.items() if self.members[node_id].is_reachable.is_set()]


def _led(broker: Broker, node_id: int) -> Iterator[int]:
    """The leader of each partition that is on one broker alone, as another one knows it."""
    for topic in broker.services.catalog.topics():
        for assigned in topic.partitions:
            if assigned.replicas == (node_id,):
                yield assigned.leader_id


def _is_fenced(broker: Broker, node_id: int) -> bool:
    is_fenced = broker.services.catalog.brokers[node_id].is_fenced
    return is_fenced and set(_led(broker, node_id)) <= {NO_LEADER}


def _leads_its_own(broker: Broker, node_id: int) -> bool:
    is_fenced = broker.services.catalog.brokers[node_id].is_fenced
    return not is_fenced and set(_led(broker, node_id)) <= {node_id}


@asynccontextmanager
async def brokers(
    folder: Path, node_ids: Sequence[int] = (1, 2, 3), **settings: Any
) -> AsyncIterator[Brokers]:
    """Brokers that share a store in `folder`; all that run are stopped at the end."""
    store = SqliteStore(folder / "cluster.db", node_id=0)
    await store.load()
    sharing = StoreSharing(store)
    cluster = Brokers(folder, sharing, settings)
    try:
        for node_id in node_ids:
            await cluster.start(node_id)
        await cluster.agreed()
        yield cluster
    finally:
        for node_id in list(cluster.running):
            await cluster.stop(node_id)
        await sharing.close()
