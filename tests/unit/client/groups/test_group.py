"""Commits of one consumer: their order, and what they cover."""

import asyncio
from collections.abc import Mapping

from tidelog.client import ConsumerRecord, OffsetAndMetadata, TimestampType, TopicPartition
from tidelog.client.cluster import Cluster
from tidelog.client.cluster_config import ClusterConfig
from tidelog.client.consumer_config import ConsumerConfig
from tidelog.client.groups.group import Group
from tidelog.client.partition_reader import PartitionReader
from tidelog.client.progress import Progress

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Offsets:
    """Takes commits; each waits until it is let through."""

    def __init__(self) -> None:
        self.arrived: list[dict[TopicPartition, int]] = []
        self.stored: dict[TopicPartition, int] = {}
        self.gate = asyncio.Event()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        plain = {key: each.offset for key, each in offsets.items()}
        self.arrived.append(plain)
        await self.gate.wait()
        self.stored |= plain


def made(offsets: Offsets, positions: Mapping[TopicPartition, int]) -> tuple[Group, Progress]:
    readers = {key: PartitionReader(key, check_crc=True) for key in positions}
    for key, position in positions.items():
        readers[key].seek(position)
    progress = Progress()
    group = Group(
        ConsumerConfig(group_id="g"),
        Cluster(ClusterConfig()),
        readers,
        progress,
        read=lambda partitions: None,
        fetch_more=lambda: None,
        on_data=lambda: None,
    )
    group.offsets = offsets  # type: ignore[assignment]
    return group, progress


async def test_a_commit_that_takes_long_does_not_come_after_a_later_one() -> None:
    offsets = Offsets()
    group, _ = made(offsets, {KEY: 10})
    readers = group._readers
    slow = asyncio.create_task(group._commit_finished(frozenset(readers)))
    await asyncio.sleep(0)
    readers[KEY].seek(20)
    later = asyncio.create_task(group._commit_finished(frozenset(readers)))
    by_hand = asyncio.create_task(group.commit({KEY: OffsetAndMetadata(15)}))
    await asyncio.sleep(0)
    assert offsets.arrived == [{KEY: 10}]
    offsets.gate.set()
    await asyncio.gather(slow, later, by_hand)
    assert offsets.arrived == [{KEY: 10}, {KEY: 20}, {KEY: 15}]
    assert offsets.stored == {KEY: 15}


async def test_an_automatic_commit_covers_what_is_finished_and_is_new() -> None:
    offsets = Offsets()
    offsets.gate.set()
    group, progress = made(offsets, {KEY: 10, OTHER: 5})
    progress.returned = ConsumerRecord("t", 0, 9, 0, TimestampType.CREATE_TIME, None, b"", (), -1, 0, -1)
    await group._commit_finished(frozenset({KEY, OTHER}))
    progress.finish()
    await group._commit_finished(frozenset({KEY, OTHER}))
    await group._commit_finished(frozenset({KEY, OTHER}))
    assert offsets.arrived == [{KEY: 9, OTHER: 5}, {KEY: 10}, {}]
