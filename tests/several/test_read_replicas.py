"""Consumers read replicas in their rack (KIP-392): what is committed, also when a replica ends."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.raw import connected
from tests.several.brokers import Brokers, brokers
from tests.several.test_replication import made
from tests.unit.broker.test_services import batch
from tests.waiting import until
from tidelog.client import Consumer, Producer, TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

KEY = TopicPartition("t", 0)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    # A follower's fetch may wait for long, and is answered when more is committed.
    settings = {"replica_fetch_wait_max_ms": 600_000, "replica_selector_class": "RackAwareReplicaSelector"}
    async with brokers(tmp_path, (1,), broker_rack="rack-1", **settings) as running:
        for node_id in (2, 3):
            await running.start(node_id, broker_rack=f"rack-{node_id}")
        await made(running, "t", 3, configs={"min.insync.replicas": "2"})
        yield running


def consumer(cluster: Brokers, rack: int, **more: Any) -> Consumer:
    return Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        client_rack=f"rack-{rack}",
        auto_offset_reset="earliest",
        **more,
    )


def node_read(reader: Consumer) -> int | None:
    return reader._readers[KEY].read_replica


async def test_a_consumer_reads_the_replica_in_its_rack_and_the_leader_when_that_ends(
    cluster: Brokers,
) -> None:
    leader = cluster.leader_of("t", 0)
    follower = leader % 3 + 1
    async with (
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
        consumer(cluster, follower) as near,
        consumer(cluster, leader) as at_leader,
    ):
        for reader in (near, at_leader):
            reader.assign([KEY])
        for number in range(20):
            await producer.send_and_wait("t", b"%d" % number, partition=0)
            for reader in (near, at_leader):
                assert (await reader.getone()).value == b"%d" % number
        await until(lambda: node_read(near) == follower)
        assert node_read(at_leader) is None
        await cluster.kill(follower)
        await producer.send_and_wait("t", b"20", partition=0)
        assert (await near.getone()).value == b"20"
        assert node_read(near) is None
        await cluster.start(follower, broker_rack=f"rack-{follower}")
        await until(lambda: node_read(near) == follower)
        await producer.send_and_wait("t", b"21", partition=0)
        assert (await near.getone()).value == b"21"


async def test_a_replica_shows_committed_transactions_as_the_leader_does(cluster: Brokers) -> None:
    leader = cluster.leader_of("t", 0)
    follower = leader % 3 + 1
    async with (
        Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x") as producer,
        consumer(cluster, follower, isolation_level="read_committed") as near,
    ):
        near.assign([KEY])
        for number in range(4):
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"%d" % number, partition=0)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
        assert [(await near.getone()).value for _ in range(2)] == [b"0", b"2"]
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"open", partition=0)
        replica = cluster[follower].services.replicas["t", 0]
        await until(lambda: replica.high_watermark == 9)
        await until(lambda: node_read(near) == follower)
        assert await near.getmany(timeout_ms=100) == {}
        await producer.commit_transaction()
        assert (await near.getone()).value == b"open"


async def test_a_replica_gives_nothing_that_is_not_committed(cluster: Brokers) -> None:
    leader = cluster.leader_of("t", 0)
    follower = leader % 3 + 1
    topic_id = cluster.topic("t").topic_id
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"committed", partition=0)
    replica = cluster[follower].services.replicas["t", 0]
    await until(lambda: replica.high_watermark == 1)
    # Written here, as by a leader whose other followers do not answer.
    epoch = replica.leader_epoch.to_bytes(4, "big")
    written = batch(b"not committed")
    replica.append_as_follower((1).to_bytes(8, "big") + written[8:12] + epoch + written[16:], 0)
    assert replica.log.end_offset == 2

    async with connected(cluster[follower].port) as client:

        async def fetched(offset: int, rack: str) -> tuple[int, int, bool]:
            wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            topics = [{"topic_id": topic_id, "partitions": [wanted]}]
            values = {"max_wait_ms": 0, "min_bytes": 0, "topics": topics, "rack_id": rack}
            result = (await client.ask(ApiKey.FETCH, 16, values)).topics[0][1][0]
            return result.error_code, result.high_watermark, bool(result.records)

        assert await fetched(0, "elsewhere") == (ErrorCode.NONE, 1, True)
        assert await fetched(1, "elsewhere") == (ErrorCode.NONE, 1, False)
        assert await fetched(2, "elsewhere") == (ErrorCode.NONE, 1, False)
        assert (await fetched(3, "elsewhere"))[0] == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await fetched(0, ""))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
