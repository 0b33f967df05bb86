"""What a leader does with a follower's requests: the other broker is a session and a socket of this test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from tests.conformance.raw import RawClient, connected
from tests.several.brokers import Brokers, brokers
from tests.waiting import until
from tidelog.broker.cluster.catalog import (
    BrokerRegistered,
    BrokerRegistration,
    PartitionAssignment,
    PartitionsChanged,
    Topic,
    TopicConfigsChanged,
    TopicCreated,
)
from tidelog.broker.cluster.registration import replica_epoch_of
from tidelog.broker.cluster.store import BrokerSession
from tidelog.broker.cluster.store_sharing import StoreMember
from tidelog.broker.replicas.in_sync_sets import InSyncSets
from tidelog.broker.replicas.topics import NewTopic
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    encode_fetch_request,
)
from tidelog.protocol.records import RecordBatchBuilder, iter_batches
from tidelog.protocol.schema import ApiKey

FETCH_VERSION = 17
TOPIC_ID = uuid4()


class Follower:
    """Broker 2, which fetches from broker 1 what a test wants."""

    def __init__(self, client: RawClient, replica_epoch: int) -> None:
        self._client = client
        self._epoch = replica_epoch
        self.leader_epoch = 0

    async def fetch(
        self, offset: int, *, last_epoch: int = -1, replica_epoch: int = -1, max_wait_ms: int = 0
    ) -> FetchPartitionResult:
        partition = FetchPartition(0, self.leader_epoch, offset, last_epoch, 0, 1 << 20)
        epoch = self._epoch if replica_epoch < 0 else replica_epoch
        topics = [(TOPIC_ID, [partition])]
        request = FetchRequest(2, max_wait_ms, 1, 1 << 20, 0, 0, -1, topics, replica_epoch=epoch)
        body = encode_fetch_request(FETCH_VERSION, request)
        await self._client.send(ApiKey.FETCH, FETCH_VERSION, body)
        answer: FetchResponse = await self._client.receive()
        return answer.topics[0][1][0]


def batch() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, b"value")
    return bytes(builder.build())


def isr(cluster: Brokers) -> tuple[int, ...]:
    return cluster.topic("t").partitions[0].isr


@asynccontextmanager
async def led(
    folder: Path, lag_ms: int, **configs: str
) -> AsyncIterator[tuple[Brokers, RawClient, Follower]]:
    """Broker 1, which leads the topic `t`, a client of it, and the follower."""
    async with brokers(folder, [1], replica_lag_time_max_ms=lag_ms, shutdown_timeout_ms=0) as cluster:
        other = StoreMember(cluster.store)
        broker = BrokerRegistration(2, (), uuid4())
        await other.begin_session(BrokerSession(2, broker.incarnation))
        change = cluster[1].services.cluster.change
        await change(lambda _: BrokerRegistered(broker))
        topic = Topic("t", TOPIC_ID, (PartitionAssignment(1, 0, (1, 2), (1, 2)),), configs)
        await change(lambda _: TopicCreated(topic))
        await cluster.agreed()
        async with connected(cluster[1].port) as client, connected(cluster[1].port) as of_follower:
            yield cluster, client, Follower(of_follower, replica_epoch_of(broker.incarnation))
        await other.end_session()


async def test_acks_all_waits_for_what_the_follower_holds_durably(tmp_path: Path) -> None:
    async with led(tmp_path, 1 << 30) as (cluster, client, follower):
        replica = cluster[1].services.replicas["t", 0]
        waiting = asyncio.create_task(follower.fetch(0, max_wait_ms=10_000))
        await client.send_batch(batch())
        result = await waiting  # Woken by the append, long before its time.
        assert [header.base_offset for _, header in iter_batches(bytes(result.records))] == [0]
        await until(lambda: replica.log.flushed_end_offset == 1)
        assert (await client_of(cluster, 0)).high_watermark == 0
        assigned = cluster.topic("t").partitions[0]._replace(leader_epoch=1, partition_epoch=1)
        await cluster[1].services.cluster.change(lambda _: PartitionsChanged(TOPIC_ID, {0: assigned}))
        await cluster.agreed()
        # It leads anew, and does not know what its follower holds of what was there before.
        latest = {"partition_index": 0, "timestamp": -1}
        values = {"replica_id": -1, "topics": [{"name": "t", "partitions": [latest]}]}
        async with connected(cluster[1].port) as another:
            listed = await another.ask(ApiKey.LIST_OFFSETS, 7, values)
            assert listed.topics[0].partitions[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE
            # Who has read all of it from the leader before does not find its log cut.
            epoch = {"partition": 0, "current_leader_epoch": 1, "leader_epoch": 0}
            values = {"replica_id": -1, "topics": [{"topic": "t", "partitions": [epoch]}]}
            ended = await another.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, values)
            assert ended.topics[0].partitions[0].end_offset == 1
        assert (await follower.fetch(1)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        follower.leader_epoch = 1
        for stale in (1, follower._epoch ^ 1):
            await follower.fetch(1, replica_epoch=stale)
        assert replica.high_watermark == 0
        assert (await follower.fetch(1, last_epoch=0)).high_watermark == 1
        answer = await client.receive_result()
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        # It ended that epoch earlier, or does not know it.
        assert (await follower.fetch(2, last_epoch=0)).diverging_epoch == (0, 1)
        assert (await follower.fetch(1, last_epoch=3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert isr(cluster) == (1, 2)


async def test_who_joined_counts_also_while_this_broker_follows_earlier_changes(tmp_path: Path) -> None:
    async with led(tmp_path, 1 << 30) as (cluster, client, follower):
        services = cluster[1].services
        replica, sets = services.replicas["t", 0], services.in_sync_sets
        assert sets is not None
        alone = cluster.topic("t").partitions[0]._replace(isr=(1,), partition_epoch=1)
        await services.cluster.change(lambda _: PartitionsChanged(TOPIC_ID, {0: alone}))
        async with services.partitions.disk_work:
            making = asyncio.create_task(services.topics.create("u", NewTopic(num_partitions=2)))
            await until(services.topics._reconciler._busy.locked)
            await follower.fetch(0)
            await until(lambda: sets.counts().expands == 1)
            assert isr(cluster) == (1, 2)
            await client.send_batch(batch())
            await until(lambda: replica.log.flushed_end_offset == 1)
            assert replica.high_watermark == 0
        await making
        assert (await follower.fetch(1, last_epoch=0)).high_watermark == 1
        assert (await client.receive_result()).error_code == ErrorCode.NONE


async def client_of(cluster: Brokers, offset: int) -> FetchPartitionResult:
    """What a consumer is given."""
    async with connected(cluster[1].port) as client:
        return await client.fetch(offset)


async def look_for_late(sets: InSyncSets, lag_ms: int) -> None:
    """From now on, and every half of this time: the next look of before may be days away."""
    sets._lag_ms = lambda: lag_ms
    await sets.stop()
    sets.start()


async def test_a_late_follower_leaves_and_joins_again_when_it_has_all(tmp_path: Path) -> None:
    async with led(tmp_path, 1 << 30, **{"min.insync.replicas": "2"}) as (cluster, client, follower):
        counts = cluster[1].services.in_sync_sets
        assert counts is not None
        await client.send_batch(batch())
        await until(lambda: cluster[1].services.replicas["t", 0].log.end_offset == 1)
        await follower.fetch(1)
        assert (await client.receive_result()).error_code == ErrorCode.NONE
        await client.send_batch(batch())
        await look_for_late(counts, 100)
        await until(lambda: isr(cluster) == (1,))
        assert cluster.topic("t").partitions[0].elr == (2,)
        await until(lambda: counts.counts() == (1, 1, 1, 0, 1, 0))
        await look_for_late(counts, 1 << 30)  # It would leave again while the test is stopped.
        async with connected(cluster[1].port) as another:
            assert (await another.produce(batch()))[0] == ErrorCode.NOT_ENOUGH_REPLICAS
            assert (await another.produce(batch(), acks=1))[0] == ErrorCode.NONE
        await follower.fetch(0)
        assert isr(cluster) == (1,)
        assert (await client_of(cluster, 0)).high_watermark == 1
        await follower.fetch(3)
        await until(lambda: isr(cluster) == (1, 2))
        assert (await client.receive_result()).error_code == ErrorCode.NONE
        assert cluster.topic("t").partitions[0].elr == ()
        await until(lambda: counts.counts() == (1, 0, 0, 0, 1, 1))
        await client.send_batch(batch())
        await look_for_late(counts, 100)
        await until(lambda: cluster.topic("t").partitions[0].elr == (2,))
        change = cluster[1].services.cluster.change
        await change(lambda _: TopicConfigsChanged(TOPIC_ID, {"min.insync.replicas": "1"}))
        # First nobody else is eligible, then the leader alone commits.
        assert (await client.receive_result()).error_code == ErrorCode.NONE
        assert (isr(cluster), cluster.topic("t").partitions[0].elr) == ((1,), ())
