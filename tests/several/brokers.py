"""Some brokers in one process, over one store: started, stopped, killed and started again, each by its id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.waiting import until
from tidelog.broker.app import Broker
from tidelog.broker.cluster.catalog import PartitionsChanged, Topic
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store_sharing import StoreSharing
from tidelog.broker.configuration.broker_config import BrokerConfig

QUICK = {
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 6,
    "transaction_state_log_num_partitions": 6,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 100,
}


class Brokers:
    """Those that run, by their ids."""

    def __init__(self, folder: Path, store: StoreSharing, settings: dict[str, Any]) -> None:
        self.running: dict[int, Broker] = {}
        self._folder = folder
        self._store = store
        self._settings = settings
        self._ports: dict[int, dict[str, int]] = {}

    async def start(self, node_id: int, **settings: Any) -> Broker:
        """A broker in its own folder; once more at its addresses of before. `listeners` are names."""
        wanted = {**self._settings, **settings}
        ports = self._ports.get(node_id, {})
        if "listeners" in wanted:
            names = wanted["listeners"]
            wanted["listeners"] = [f"{name}://127.0.0.1:{ports.get(name, 0)}" for name in names]
        else:
            wanted["port"] = next(iter(ports.values()), 0)
        config = BrokerConfig(
            node_id=node_id, data_dir=self._folder / f"broker-{node_id}", http_port=-1, **QUICK, **wanted
        )
        broker = await Broker.start(config, store=self._store.member())
        self.running[node_id] = broker
        self._ports[node_id] = broker.ports
        return broker

    async def stop(self, node_id: int) -> None:
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
            return len({broker.services.catalog.revision for broker in self.running.values()}) == 1

        await until(is_agreed)
        for broker in self.running.values():
            await broker.services.topics.settled()

    async def lead(self, topic: str, partition: int, leader_id: int) -> None:
        """Let a broker, or with -1 none, lead a partition from now on, in the next epoch."""
        found = self.topic(topic)
        before = found.partitions[partition]
        now = before._replace(leader_id=leader_id, leader_epoch=before.leader_epoch + 1)
        some = next(iter(self.running.values()))
        await some.services._cluster.change(lambda _: PartitionsChanged(found.topic_id, {partition: now}))
        await self.agreed()


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
