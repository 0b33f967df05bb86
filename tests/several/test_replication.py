"""Replicas of several brokers: what was acknowledged is on each of them, once, whoever leads."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.raw import connected
from tests.several.brokers import Brokers, brokers
from tests.unit.broker.storage.support import batch, state
from tests.waiting import until
from tidelog.broker.cluster.catalog import Topic
from tidelog.broker.replicas.topics import NewTopic
from tidelog.client import Consumer, Producer
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

SHORT = {"broker_session_timeout_ms": 1_000}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with brokers(tmp_path, **SHORT) as running:
        await running[1].services.topics.create(
            "t", NewTopic(num_partitions=3, replication_factor=3, configs={"min.insync.replicas": "2"})
        )
        await running.agreed()
        yield running


async def in_sync(cluster: Brokers, count: int, topic: str = "t") -> Topic:
    await until(lambda: all(len(each.isr) == count for each in cluster.topic(topic).partitions))
    await cluster.agreed()
    return cluster.topic(topic)


async def values(cluster: Brokers, count: int) -> list[bytes]:
    async with Consumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        return [(await consumer.getone()).value or b"" for _ in range(count)]


def delete_before(offset: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "offset": offset}
    return {"topics": [{"name": "t", "partitions": [partition]}], "timeout_ms": 30_000}


async def test_what_is_acknowledged_is_on_all_in_sync_replicas(cluster: Brokers) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(30):
            await producer.send_and_wait("t", b"%d" % number, partition=number % 3)
    for broker in cluster.running.values():
        for index in range(3):
            assert broker.services.replicas["t", index].log.flushed_end_offset == 10
    assert sorted(await values(cluster, 30)) == sorted(b"%d" % number for number in range(30))


async def test_a_killed_leader_is_replaced_and_catches_up(cluster: Brokers) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        leader = cluster.leader_of("t", 0)
        await cluster.kill(leader)
        await in_sync(cluster, 2)
        for number in (1, 2):
            await producer.send_and_wait("t", b"%d" % number, partition=0)
        await cluster.start(leader)
        await in_sync(cluster, 3)
        assert cluster[leader].services.replicas["t", 0].log.flushed_end_offset == 3
        await producer.send_and_wait("t", b"3", partition=0)
    assert await values(cluster, 4) == [b"0", b"1", b"2", b"3"]


async def test_a_follower_without_what_was_deleted_starts_over_with_the_leaders_producers(
    cluster: Brokers,
) -> None:
    leader = cluster.leader_of("t", 0)
    follower = leader % 3 + 1
    async with connected(cluster[leader].port) as client:
        assert (await client.produce(batch(7, 0, 0, 2)))[0] == ErrorCode.NONE
        await cluster.kill(follower)
        for sequence in (2, 4, 6, 8):
            await client.produce(batch(7, 0, sequence, 2))
        # Within the last batch, from which the follower has to begin.
        deleted = await client.ask(ApiKey.DELETE_RECORDS, 2, delete_before(9))
        assert deleted.topics[0].partitions[0].low_watermark == 9
        # Answered when the other live replica has followed.
        assert [broker.services.replicas["t", 0].log.start_offset for broker in cluster.running.values()] == [
            9,
            9,
        ]
        await cluster.start(follower)
        await in_sync(cluster, 3)
        logs = [cluster[node_id].services.replicas["t", 0].log for node_id in (leader, follower)]
        await until(lambda: [log.start_offset for log in logs] == [9, 9])
        assert state(logs[1]) == state(logs[0])
        assert len(state(logs[1])[7].batches) == 5
        await client.produce(batch(7, 0, 10, 2))
        assert state(logs[1]) == state(logs[0])
