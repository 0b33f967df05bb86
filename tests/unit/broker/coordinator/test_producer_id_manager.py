"""Producer ids of several brokers over one store: none is given twice, and each knows those of the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.unit.broker.conftest import Clock
from tests.waiting import until
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.coordinator.producer_id_manager import ProducerIds
from tidelog.broker.coordinator.producer_ids import BLOCK_SIZE
from tidelog.protocol.errors import ApiError, ErrorCode

BROKERS = 3


class Brokers:
    """The producer ids of some brokers, which follow one store."""

    def __init__(self, clusters: list[Cluster]) -> None:
        self.clock = Clock()
        self.clusters = clusters
        self.ids = [ProducerIds(cluster, self.clock) for cluster in clusters]

    @classmethod
    async def opened(cls, folder: Path) -> Brokers:
        store = SqliteStore(folder / "cluster.db", node_id=1)
        return cls([Cluster(await store.load(), store) for _ in range(BROKERS)])

    async def next_of(self, ids: ProducerIds) -> int:
        """As a client that comes again where it is told to."""
        while True:
            try:
                return await ids.next()
            except ApiError as error:
                if error.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    raise
                self.clock.now_ms += 1_000

    async def close(self) -> None:
        for ids in self.ids:
            await ids.close()
        await self.clusters[0].close()


@pytest.fixture
async def brokers(tmp_path: Path) -> Brokers:
    return await Brokers.opened(tmp_path)


async def test_brokers_that_reserve_at_the_same_moment_never_get_one_block(brokers: Brokers) -> None:
    async def many(ids: ProducerIds) -> list[int]:
        return [await brokers.next_of(ids) for _ in range(2 * BLOCK_SIZE)]

    given = await asyncio.gather(*map(many, brokers.ids))
    assert len(set().union(*given)) == BROKERS * 2 * BLOCK_SIZE
    await brokers.close()


async def test_every_broker_knows_the_ids_that_another_issued(brokers: Brokers) -> None:
    highest = -1
    for ids in brokers.ids * 3:
        for _ in range(BLOCK_SIZE // 2):
            highest = max(highest, await brokers.next_of(ids))
        await until(lambda: all(each.bound() > highest for each in brokers.ids))  # noqa: B023
    await brokers.close()


async def test_an_id_outside_of_all_blocks_was_never_issued(brokers: Brokers) -> None:
    given = await brokers.next_of(brokers.ids[0])
    await until(lambda: brokers.ids[0].bound() == given + 1)
    assert brokers.ids[1].bound() == brokers.clusters[1].catalog.next_producer_id
    await brokers.close()
