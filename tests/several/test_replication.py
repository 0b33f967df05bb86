"""Replicas of several brokers: what was acknowledged is on each of them, once, whoever leads."""

import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.raw import connected
from tests.several.brokers import Brokers, brokers
from tests.several.test_topics import asked
from tests.unit.broker.storage.support import batch, state
from tests.unit.broker.test_services import batch as one_batch
from tests.waiting import until
from tidelog.broker.cluster.catalog import NO_LEADER, OFFSETS_TOPIC, Change, PartitionsChanged, Topic
from tidelog.broker.peers import peers
from tidelog.broker.replicas import fetchers, maintenance
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.storage.checkpoints import CLEANED_OFFSET, RECOVERY_POINTS
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.partition_log import FlushWork, PartitionLog
from tidelog.client import Admin, BrokerError, Consumer, LogTruncationError, Producer, TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import NodeEndpoint
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import Buffer

SHORT = {"broker_session_timeout_ms": 1_000, "replica_fetch_wait_max_ms": 50}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with brokers(tmp_path, **SHORT, shutdown_timeout_ms=60_000) as running:
        await made(running, "t", 3, configs={"min.insync.replicas": "2"})
        yield running


async def made(cluster: Brokers, name: str, factor: int, **more: Any) -> Topic:
    await cluster[1].services.topics.create(name, NewTopic(3, factor, **more))
    await cluster.agreed()
    return cluster.topic(name)


async def in_sync(cluster: Brokers, count: int, topic: str = "t") -> Topic:
    await until(lambda: all(len(each.isr) == count for each in cluster.topic(topic).partitions))
    await cluster.agreed()
    return cluster.topic(topic)


async def values(cluster: Brokers, count: int, topic: str = "t") -> list[bytes]:
    async with Consumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        return [(await consumer.getone()).value or b"" for _ in range(count)]


async def elected(cluster: Brokers, at: int, topic: str, election_type: int) -> int:
    topics = [{"topic": topic, "partitions": [0]}]
    answer = await asked(
        cluster, at, ApiKey.ELECT_LEADERS, 2, election_type=election_type, topic_partitions=topics
    )
    return int(answer.replica_election_results[0].partition_result[0].error_code)


def delete_before(offset: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "offset": offset}
    return {"topics": [{"name": "t", "partitions": [partition]}], "timeout_ms": 30_000}


async def test_a_killed_leader_is_replaced_and_catches_up(cluster: Brokers) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        leader = cluster.leader_of("t", 0)
        async with connected(cluster[leader].port) as client:
            once = batch(await client.producer_id(), 0, 0, value=b"once")
            assert await client.produce(once) == (ErrorCode.NONE, 1)
        await cluster.kill(leader)
        await in_sync(cluster, 2)
        # The answer was lost with the leader: the batch is sent again, to the next one.
        async with connected(cluster[cluster.leader_of("t", 0)].port) as client:
            assert await client.produce(once) == (ErrorCode.NONE, 1)
        for number in (1, 2):
            await producer.send_and_wait("t", b"%d" % number, partition=0)
        await cluster.start(leader)
        await in_sync(cluster, 3)
        assert cluster[leader].services.replicas["t", 0].log.flushed_end_offset == 4
        await producer.send_and_wait("t", b"3", partition=0)
    assert await values(cluster, 5) == [b"0", b"once", b"1", b"2", b"3"]


async def test_who_does_not_lead_names_the_leader_with_its_address_and_epoch(cluster: Brokers) -> None:
    await cluster.kill(cluster.leader_of("t", 0))
    topic = await in_sync(cluster, 2)
    leader, epoch = topic.partitions[0].leader_id, topic.partitions[0].leader_epoch
    endpoint = NodeEndpoint(leader, "127.0.0.1", cluster[leader].port)
    (other,) = cluster.running.keys() - {leader}
    async with connected(cluster[other].port) as client:
        once = {"index": 0, "records": batch(await client.producer_id(), 0, 0)}
        for version, named in ((10, {"name": "t"}), (13, {"topic_id": topic.topic_id})):
            values = {"acks": -1, "timeout_ms": 1000, "topic_data": [{**named, "partition_data": [once]}]}
            answer = await client.ask(ApiKey.PRODUCE, version, values)
            assert answer.topics[0][1][0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.topics[0][1][0].current_leader == (leader, epoch)
            assert answer.node_endpoints == [endpoint]
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1, "current_leader_epoch": 0}
        topics = [{"topic_id": topic.topic_id, "partitions": [wanted]}]
        fetched = await client.ask(ApiKey.FETCH, 16, {"max_wait_ms": 0, "min_bytes": 0, "topics": topics})
        result = fetched.topics[0][1][0]
        assert result.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (result.current_leader, fetched.node_endpoints) == ((leader, epoch), [endpoint])


async def test_a_broker_that_stops_hands_over_and_no_producer_gets_an_error(cluster: Brokers) -> None:
    fewest: list[int] = []

    def follow(change: Change) -> None:
        if isinstance(change.delta, PartitionsChanged):
            fewest.extend(len(each.isr) for each in change.delta.partitions.values())

    cluster[3].services.cluster.follow(follow)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for node_id in (1, 2, 3):
            for index in range(3):
                await producer.send_and_wait("t", b"", partition=index)
            await cluster.stop(node_id)
            left = await in_sync(cluster, 2)
            assert {each.leader_id for each in left.partitions} <= {1, 2, 3} - {node_id}
            for index in range(3):
                await producer.send_and_wait("t", b"", partition=index)
            # The next one stops at once, and waits until this one is in sync.
            await cluster.start(node_id)
        await in_sync(cluster, 3)
    assert min(fewest) == 2
    assert {cluster[1].services.replicas["t", index].log.end_offset for index in range(3)} == {6}


async def test_a_broker_that_is_back_leads_again_what_it_led_and_one_without_replicas_is_forgotten(
    tmp_path: Path,
) -> None:
    async with brokers(tmp_path, (1, 2), **SHORT, leader_imbalance_check_interval_seconds=1) as pair:
        await made(pair, "u", 2)
        async with Producer(bootstrap_servers=pair.bootstrap_servers) as producer:
            for node_id in (2, 1):
                await pair.stop(node_id)
                for index in range(3):
                    await producer.send_and_wait("u", b"", partition=index)
                await pair.start(node_id)
                await until(
                    lambda: all(each.leader_id == each.replicas[0] for each in pair.topic("u").partitions)
                )
                for index in range(3):
                    await producer.send_and_wait("u", b"", partition=index)
        async with Admin(bootstrap_servers=pair.bootstrap_servers) as admin:
            with pytest.raises(BrokerError, match="broker 2: expected a stopped broker, but it is live"):
                await admin.unregister_broker(2)
            await pair.stop(2)
            with pytest.raises(BrokerError, match="has replicas of u-0, u-1, u-2: move them"):
                await admin.unregister_broker(2)
            await admin.delete_topics(["u"])
            await admin.unregister_broker(2)
        assert pair[1].services.catalog.brokers.keys() == {1}


async def test_what_a_leader_had_alone_is_cut_off_when_it_follows(cluster: Brokers) -> None:
    leader = cluster.leader_of("t", 0)
    await cluster.cut_off(leader)
    stale = cluster[leader].services
    others = [broker for node_id, broker in cluster.running.items() if node_id != leader]
    await until(
        lambda: all(leader not in each.services.catalog.topic("t").partitions[0].isr for each in others)  # type: ignore[union-attr]
    )
    alone = stale.replicas["t", 0]
    alone.append_as_leader(one_batch(b"nobody else has it"), stale.clock_ms())
    await alone.flushed()
    assert alone.high_watermark == 0
    async with Producer(bootstrap_servers=others[0].bootstrap_servers) as producer:
        await until(lambda: others[0].services.leader_of("t", 0) not in (leader, NO_LEADER))
        await producer.send_and_wait("t", b"kept", partition=0)
    await served(cluster, leader, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await cluster.reconnect(leader)
    await in_sync(cluster, 3)
    assert stale.replicas["t", 0].log.flushed_end_offset == 1
    assert await values(cluster, 1) == [b"kept"]


async def served(cluster: Brokers, leader: int, code: ErrorCode) -> None:
    """From now on a leader answers consumers and producers with this code."""
    latest = {"partition_index": 0, "timestamp": -1}
    listed = {"replica_id": -1, "topics": [{"name": "t", "partitions": [latest]}]}
    asked = {"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 0}]}
    found: set[int] = set()
    async with connected(cluster[leader].port) as client:
        while found != {code}:
            offsets = await client.ask(ApiKey.LIST_OFFSETS, 7, listed)
            epochs = await client.ask(
                ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"replica_id": -1, "topics": [asked]}
            )
            found = {
                (await client.produce(batch(-1, -1, -1), acks=1))[0],
                (await client.fetch()).error_code,
                offsets.topics[0].partitions[0].error_code,
                epochs.topics[0].partitions[0].error_code,
            }


async def test_a_leader_without_the_store_serves_while_all_that_may_be_elected_fetch(
    cluster: Brokers,
) -> None:
    leader = cluster.leader_of("t", 0)
    for node_id in (1, 2, 3):
        await cluster.cut_off(node_id)
    assert cluster[leader].services.is_cut_off
    await served(cluster, leader, ErrorCode.NONE)
    await cluster.kill(leader % 3 + 1)
    await served(cluster, leader, ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_a_disk_that_fails_costs_a_broker_its_leadership(cluster: Brokers) -> None:
    leader = cluster.leader_of("t", 1)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"0", partition=1)
        cluster[leader].services.replica("t", 1).fail(OSError(errno.EIO, "I/O error"))
        await producer.send_and_wait("t", b"1", partition=1)
    assigned = cluster.topic("t").partitions[1]
    assert leader not in {assigned.leader_id, *assigned.isr}
    await until(lambda: cluster[assigned.leader_id].services.catalog.brokers[leader].offline)
    metadata = await asked(cluster, assigned.leader_id, ApiKey.METADATA, 9, topics=[{"name": "t"}])
    offline = {each.partition_index: each.offline_replicas for each in metadata.topics[0].partitions}
    assert offline == {0: [], 1: [leader], 2: []}
    leader, follower = (await made(cluster, "u", 2)).partitions[0].replicas
    await cluster.kill(follower)
    await until(lambda: cluster.topic("u").partitions[0].isr == (leader,))
    await cluster.agreed()
    cluster[leader].services.replica("u", 0).fail(OSError(errno.EIO, "I/O error"))
    # Nobody else has all, so nobody leads until its broker is started again.
    await until(lambda: cluster.leader_of("u", 0) == NO_LEADER)
    await cluster.stop(leader)
    await cluster.start(leader)
    await until(lambda: cluster.leader_of("u", 0) == leader)


async def test_what_is_acknowledged_is_on_all_in_sync_replicas_and_on_a_disk_that_replaces_a_lost_one(
    cluster: Brokers, tmp_path: Path
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(30):
            await producer.send_and_wait("t", b"%d" % number, partition=number % 3)
    for broker in cluster.running.values():
        for index in range(3):
            assert broker.services.replicas["t", index].log.flushed_end_offset == 10
    assert sorted(await values(cluster, 30)) == sorted(b"%d" % number for number in range(30))
    await cluster.kill(2)
    await in_sync(cluster, 2)
    shutil.rmtree(tmp_path / "broker-2")
    await cluster.start(2)
    await in_sync(cluster, 3)
    assert {cluster[2].services.replicas["t", index].log.flushed_end_offset for index in range(3)} == {10}


async def test_a_copy_of_a_compacted_log_knows_the_epochs_of_which_no_batch_is_left(
    cluster: Brokers, tmp_path: Path
) -> None:
    topic = await made(cluster, "c", 3, configs={"cleanup.policy": "compact", "min.insync.replicas": "2"})
    lost = topic.partitions[0].leader_id

    async def write(key: bytes) -> None:
        # Of an idempotent producer compaction keeps the last batch.
        async with Producer(
            bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=False
        ) as producer:
            await producer.send_and_wait("c", b"", key=key, partition=0)

    await write(b"stays")
    await cluster.kill(lost)
    await in_sync(cluster, 2, "c")
    await write(b"is replaced")
    await cluster.start(lost)
    await in_sync(cluster, 3, "c")
    assert await elected(cluster, lost, "c", 0) == ErrorCode.NONE
    await cluster.kill(lost)
    await in_sync(cluster, 2, "c")
    await write(b"is replaced")
    shutil.rmtree(tmp_path / f"broker-{lost}")
    leading = cluster[cluster.leader_of("c", 0)].services
    log = leading.replicas["c", 0].log
    log.roll(leading.clock_ms())
    size_bytes = log.size_bytes
    await leading.cleaner.clean_dirtiest()
    assert log.size_bytes < size_bytes
    await cluster.start(lost)
    await in_sync(cluster, 3, "c")
    ends = [
        [broker.services.replicas["c", 0].end_offset_for_epoch(epoch) for epoch in range(4)]
        for broker in cluster.running.values()
    ]
    assert ends[0] == ends[1] == ends[2], ends
    # As if it had been killed before the flush that stored the gap.
    await cluster.kill(lost)
    for name in (CLEANED_OFFSET, RECOVERY_POINTS):
        for path in (tmp_path / f"broker-{lost}").rglob(name):
            path.unlink()
    await cluster.start(lost)
    found = cluster[lost].services.replicas["c", 0].log.recovery
    assert found.truncated_bytes
    assert not found.is_damaged
    await in_sync(cluster, 3, "c")


async def test_a_log_that_cannot_be_truncated_for_lack_of_space_follows_once_there_is_space(
    cluster: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetchers, "CHANGE_RETRY_SECONDS", 0.05)
    leader, follower = (await made(cluster, "u", 2)).partitions[0].replicas
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("u", b"both", partition=0)
        await cluster.kill(follower)
        await until(lambda: cluster.topic("u").partitions[0].isr == (leader,))
        await producer.send_and_wait("u", b"lost", partition=0)
    await cluster.kill(leader)
    await cluster.start(follower)
    await until(lambda: cluster.leader_of("u", 0) == NO_LEADER)
    await cluster.agreed()
    assert await elected(cluster, follower, "u", 1) == ErrorCode.NONE
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("u", b"instead", partition=0)
    replace_file, refused = Disk.replace_file, 0

    def on_a_full_disk(disk: Disk, path: Path, buffers: Iterable[Buffer], **how: bool) -> None:
        nonlocal refused
        if path == tmp_path / f"broker-{leader}" / RECOVERY_POINTS:
            refused += 1
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        replace_file(disk, path, buffers, **how)

    with monkeypatch.context() as full:
        full.setattr(Disk, "replace_file", on_a_full_disk)
        await cluster.start(leader)
        await until(lambda: refused > 5)
        assert not cluster[leader].services.partitions.unopened
        assert not cluster[follower].services.catalog.brokers[leader].offline
    await until(lambda: len(cluster.topic("u").partitions[0].isr) == 2)
    log = cluster[leader].services.replicas["u", 0].log
    assert (log.end_offset, log.leader_epoch_for(1)) == (2, cluster.topic("u").partitions[0].leader_epoch)


async def test_a_log_that_finds_space_after_the_start_is_served_and_not_offline_any_more(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = cluster.leader_of("t", 0)
    follower = leader % 3 + 1
    await cluster.stop(follower)
    await in_sync(cluster, 2)
    opens = Disk.open

    def on_a_full_disk(disk: Disk, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        if flags & os.O_CREAT and path.parent.match(f"broker-{follower}/t-0"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opens(disk, path, flags)

    with monkeypatch.context() as full:
        full.setattr(Disk, "open", on_a_full_disk)
        monkeypatch.setattr(maintenance, "OPEN_AGAIN_INTERVAL_MS", 50)
        await cluster.start(follower)
        await until(lambda: bool(cluster[leader].services.catalog.brokers[follower].offline))
    await until(lambda: not cluster[leader].services.catalog.brokers[follower].offline)
    await in_sync(cluster, 3)
    assert cluster[follower].services.replicas["t", 0].is_follower


async def test_only_an_operator_lets_a_broker_lead_that_may_lack_records(cluster: Brokers) -> None:
    leader, follower = (await made(cluster, "u", 2)).partitions[0].replicas
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("u", b"both", partition=0)
        await cluster.kill(follower)
        await until(lambda: cluster.topic("u").partitions[0].isr == (leader,))
        await producer.send_and_wait("u", b"lost", partition=0)
    lost = TopicPartition("u", 0)
    async with AsyncExitStack() as stack:
        readers = []
        for reset in ("none", "latest"):
            reader = Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset=reset)
            readers.append(await stack.enter_async_context(reader))
            reader.assign([lost])
            reader.seek(lost, 0)
            assert [(await reader.getone()).value for _ in range(2)] == [b"both", b"lost"]
        group = {"group_id": "g", "auto_offset_reset": "none", "enable_auto_commit": False}
        async with Consumer(bootstrap_servers=cluster.bootstrap_servers, **group) as member:
            member.assign([lost])
            member.seek(lost, 0)
            epochs = [(await member.getone()).leader_epoch for _ in range(2)]
            assert epochs == [cluster.topic("u").partitions[0].leader_epoch] * 2
            await member.commit()
        await elect_uncleanly(cluster, leader, follower)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("u", b"instead", partition=0)
        with pytest.raises(LogTruncationError) as refused:
            await readers[0].getone()
        assert (refused.value.args, refused.value.diverging[lost][1]) == (({lost: 2},), 1)
        record = await readers[1].getone()
        assert (record.offset, record.value) == (1, b"instead")
        resumed = await stack.enter_async_context(
            Consumer(bootstrap_servers=cluster.bootstrap_servers, **group)
        )
        resumed.assign([lost])
        with pytest.raises(LogTruncationError):
            await resumed.getone()


async def elect_uncleanly(cluster: Brokers, leader: int, follower: int) -> None:
    await cluster.kill(leader)
    await cluster.start(follower)
    await until(lambda: cluster.leader_of("u", 0) == NO_LEADER)
    await cluster.agreed()

    assert await elected(cluster, follower, "u", 0) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert cluster.leader_of("u", 0) == NO_LEADER
    assert await elected(cluster, follower, "u", 1) == ErrorCode.NONE
    assert cluster.leader_of("u", 0) == follower
    await cluster.start(leader)
    await until(lambda: len(cluster.topic("u").partitions[0].isr) == 2)
    assert await elected(cluster, follower, "u", 1) == ErrorCode.ELECTION_NOT_NEEDED
    assert await elected(cluster, follower, "u", 0) == ErrorCode.NONE
    assert cluster.leader_of("u", 0) == leader
    assert cluster[leader].services.replicas["u", 0].log.end_offset == 1


def slow_down(log: PartitionLog) -> None:
    """Each flush waits for half a second in its thread."""
    begin_flush = log.begin_flush

    def pause() -> None:
        threading.Event().wait(0.5)

    def begin_slow_flush() -> FlushWork | None:
        work = begin_flush()
        if work is not None:
            work.before, work.lone_fd = [*work.before, pause], None
        return work

    log.begin_flush = begin_slow_flush  # type: ignore[method-assign]


async def test_a_leader_whose_disk_is_slow_loses_its_leaderships(tmp_path: Path) -> None:
    """It gives them up itself; writes are fast again, as it leaves the in-sync set too."""
    async with brokers(tmp_path, **SHORT, replica_lag_time_max_ms=2_000) as cluster:
        topic = await made(cluster, "t", 3, configs={"min.insync.replicas": "2"})
        slow = cluster.leader_of("t", 0)
        slow_down(cluster[slow].services.replicas["t", 0].log)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            number = 0
            while cluster.leader_of("t", 0) == slow or slow in cluster.topic("t").partitions[0].isr:
                await producer.send_and_wait("t", b"%d" % number, partition=0)
                number += 1
        assert {*cluster.topic("t").partitions[0].isr} == {*topic.partitions[0].replicas} - {slow}
        assert await values(cluster, number) == [b"%d" % each for each in range(number)]


async def test_internal_topics_have_as_many_replicas_as_brokers_live(tmp_path: Path) -> None:
    async with brokers(tmp_path, (1, 2), **SHORT, offsets_topic_replication_factor=3) as pair:
        await pair[1].services.topics.create(OFFSETS_TOPIC)
        assert {len(each.replicas) for each in pair.topic(OFFSETS_TOPIC).partitions} == {2}


async def test_a_follower_without_what_was_deleted_starts_over_with_the_leaders_producers(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_PIECE_BYTES", 100)  # Fewer than the snapshot has.
    leader = cluster.leader_of("t", 0)
    follower = leader % 3 + 1
    async with connected(cluster[leader].port) as client:
        producer_id = await client.producer_id()
        assert (await client.produce(batch(producer_id, 0, 0, 2)))[0] == ErrorCode.NONE
        await cluster.kill(follower)
        for sequence in (2, 4, 6, 8):
            await client.produce(batch(producer_id, 0, sequence, 2))
        # Within the last batch, from which the follower has to begin.
        deleted = await client.ask(ApiKey.DELETE_RECORDS, 2, delete_before(9))
        assert deleted.topics[0].partitions[0].low_watermark == 9
        # Answered when the other live replica has followed.
        assert {each.services.replicas["t", 0].log.start_offset for each in cluster.running.values()} == {9}
        await cluster.start(follower)
        await in_sync(cluster, 3)
        logs = [cluster[node_id].services.replicas["t", 0].log for node_id in (leader, follower)]
        await until(lambda: [log.start_offset for log in logs] == [9, 9])
        assert state(logs[1]) == state(logs[0])
        assert len(state(logs[1])[producer_id].batches) == 5
        await client.produce(batch(producer_id, 0, 10, 2))
        assert state(logs[1]) == state(logs[0])
