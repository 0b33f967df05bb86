"""A replica: the high watermark is what is durable, and whoever waits for it is told once."""

import asyncio
import errno
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.unit.broker import test_services
from tests.unit.broker.conftest import OpenServices
from tests.waiting import until
from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.replicas.leader import ACKS_ALL
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.storage.checkpoints import CLEANED_OFFSET
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.log_types import Read
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import RecordBatchBuilder, TransactionMarker
from tidelog.protocol.types import Buffer

NOW_MS = 1_700_000_000_000


def batch(*values: bytes) -> bytes:
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(NOW_MS, None, value)
    return bytes(builder.build())


class Told:
    """Records what a waiter and a watcher are told, in order."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def partition_committed(self, slot: int) -> None:
        self.events.append(slot)

    def partition_failed(self, slot: int, code: ErrorCode) -> None:
        self.events.append((slot, code))

    def replica_changed(self, replica: Replica) -> None:
        self.events.append(("changed", replica.high_watermark, replica.stopped))


@pytest.fixture
async def replica(open_here: OpenServices) -> Replica:
    services = await open_here()
    await services.topics.create("t")
    return services.replicas["t", 0]


async def test_the_high_watermark_is_the_durable_end(replica: Replica) -> None:
    replica.append_as_leader(batch(b"a", b"b"), NOW_MS)
    assert (replica.high_watermark, replica.log.end_offset) == (0, 2)
    assert not replica.read(Read(0, 1000, replica.ends.high_watermark)).records
    assert replica.ends == (2, 0, 0, 0)
    await replica.committed(2)
    assert (replica.high_watermark, replica.log.flushed_end_offset) == (2, 2)
    assert replica.read(Read(0, 1000, replica.ends.high_watermark)).next_offset == 2
    assert replica.ends == (2, 2, 2, 2)


async def test_the_records_of_a_coordinator_are_reported_once_they_are_durable(replica: Replica) -> None:
    replica.append_as_leader(batch(b"v"), NOW_MS)
    written = replica.append_as_coordinator(batch(b"a", b"b"), NOW_MS)
    assert (replica.log.end_offset, replica.high_watermark, written.done()) == (3, 0, False)
    assert (await written)[:2] == (1, 2)
    assert replica.high_watermark == 3


async def test_a_coordinator_gets_no_records_that_did_not_become_durable(replica: Replica) -> None:
    written = replica.append_as_coordinator(batch(b"a"), NOW_MS)
    replica.fail(OSError("the disk is gone"))
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.KAFKA_STORAGE_ERROR):
        await written
    with pytest.raises(ApiError):
        replica.append_as_coordinator(batch(b"b"), NOW_MS)


@pytest.mark.parametrize("found_by", ["append", "flush", "checkpoint"])
async def test_a_broken_invariant_takes_the_partition_offline_with_its_numbers(
    open_here: OpenServices, found_by: str
) -> None:
    services = await open_here()
    await services.topics.create("t")
    replica, other = services.replicas["t", 0], None
    await services.topics.create("other")
    other = services.replicas["other", 0]
    replica.leader_epoch = 3
    waiting = replica.append_as_coordinator(batch(b"v"), NOW_MS)
    with capture_logs() as events:
        if found_by == "append":
            replica.leader_epoch = 2
            with pytest.raises(ApiError):
                replica.append_as_leader(batch(b"v"), NOW_MS)
        else:
            replica.log.start_offset = 9
            if found_by == "checkpoint":
                await services.maintenance.checkpoint()
        with pytest.raises(ApiError) as caught:
            await waiting
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    (event,) = [event for event in events if event["event"] == "partition_offline"]
    assert "written 3, now 2" in event["error"] or "start_offset 9, flushed_end_offset 0" in event["error"]
    assert "fault of the broker" in event["advice"]
    assert replica.stopped == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await other.append_as_coordinator(batch(b"v"), NOW_MS)).base_offset == 0


async def test_bytes_become_visible_with_the_watermark(replica: Replica) -> None:
    size = len(batch(b"v"))
    replica.append_as_leader(batch(b"v"), NOW_MS)
    assert replica.visible_bytes == 0
    await replica.committed(1)
    assert replica.visible_bytes == size


async def test_watchers_hear_of_every_move_until_they_leave(replica: Replica) -> None:
    told = Told()
    replica.watch(told)
    replica.append_as_leader(batch(b"v"), NOW_MS)
    await replica.committed(1)
    replica.unwatch(told)
    replica.append_as_leader(batch(b"v"), NOW_MS)
    await replica.committed(2)
    assert told.events == [("changed", 1, None)]


async def test_stopping_tells_waiters_and_watchers_and_refuses_what_comes_later(replica: Replica) -> None:
    told = Told()
    replica.watch(told)
    replica.when(replica.progress.committed, replica.append_as_leader(batch(b"v"), NOW_MS), told, 7)
    replica.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    replica.stop(ErrorCode.KAFKA_STORAGE_ERROR)
    assert told.events == [("changed", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    await asyncio.sleep(0)
    assert told.events[1:] == [(7, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER):
        replica.append_as_leader(batch(b"v"), NOW_MS)
    with pytest.raises(ApiError):
        await replica.committed(1)


@pytest.mark.parametrize(
    ("known", "code"),
    [(3, None), (-1, None), (2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
async def test_a_clients_leader_epoch_is_held_against_ours(
    replica: Replica, known: int, code: ErrorCode | None
) -> None:
    replica.leader_epoch = 3
    if code is None:
        replica.check_leader_epoch(known)
        return
    with pytest.raises(ApiError, check=lambda error: error.code == code):
        replica.check_leader_epoch(known)


async def test_batches_carry_the_epoch_they_were_written_in(replica: Replica) -> None:
    replica.append_as_leader(batch(b"v"), NOW_MS)
    replica.leader_epoch = 6
    replica.append_as_leader(batch(b"v"), NOW_MS)
    assert [replica.log.leader_epoch_for(offset) for offset in (0, 1)] == [0, 6]
    assert replica.end_offset_for_epoch(0) == (0, 1)
    assert replica.end_offset_for_epoch(6) == (6, 2)


async def test_without_durable_acks_a_batch_is_readable_once_written_and_flushed_by_the_checkpoint(
    open_here: OpenServices,
) -> None:
    services = await open_here()
    await services.topics.create("t", NewTopic(configs={"acks.all.durable": "false"}))
    replica, told = services.replicas["t", 0], Told()
    replica.watch(told)
    written = replica.append_as_leader(batch(b"a", b"b"), NOW_MS)
    assert replica.awaited(ACKS_ALL) is None
    assert replica.soon_durable(written).base_offset == 0
    assert told.events == [("changed", 2, None)]
    assert replica.ends == (2, 0, 2, 2)
    assert replica.read(Read(0, 1000, 2)).next_offset == 2
    await services.maintenance.checkpoint()
    assert (replica.ends, replica.log.recovery_point) == ((2, 2, 2, 2), 2)


async def test_without_durable_acks_flush_messages_and_flush_ms_still_count(open_here: OpenServices) -> None:
    services = await open_here()
    configs = {"acks.all.durable": "false", "flush.messages": "3", "flush.ms": "1"}
    await services.topics.create("t", NewTopic(configs=configs))
    replica, told = services.replicas["t", 0], Told()
    replica.append_as_leader(batch(b"1", b"2"), NOW_MS)
    assert replica.ends == (2, 0, 2, 2)
    replica.when(replica.progress.committed, replica.append_as_leader(batch(b"3"), NOW_MS), told, 7)
    assert (replica.ends, told.events) == ((3, 0, 2, 2), [])
    await replica.committed(3)
    assert (replica.ends, told.events) == ((3, 3, 3, 3), [7])
    replica.append_as_leader(batch(b"4"), NOW_MS)
    await until(lambda: replica.log.flushed_end_offset == 4)


async def test_without_durable_acks_a_marker_counts_once_it_is_durable(
    open_here: OpenServices,
) -> None:
    services = await open_here(acks_all_durable=False)
    await services.topics.create("t")
    replica = services.replicas["t", 0]
    producer_id = await services.producer_ids.next()
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, None, b"v")
    part = builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    replica.append_as_leader(bytes(part), NOW_MS, permit=lambda begins: None)
    marker = TransactionMarker(producer_id, 0, 0, is_commit=True)
    marked = replica.append_marker(marker, NOW_MS)
    replica.append_as_leader(batch(b"later"), NOW_MS)
    assert replica.ends == (3, 0, 3, 0)
    assert not marked.done()
    assert (await marked).base_offset == 1
    assert replica.ends == (3, 3, 3, 3)


async def test_durable_acks_asked_for_again_flush_what_was_only_written_and_wait_for_that(
    open_here: OpenServices,
) -> None:
    services = await open_here(acks_all_durable=False)
    await services.topics.create("t")
    replica, told = services.replicas["t", 0], Told()
    written = replica.append_as_leader(batch(b"v"), NOW_MS)
    replica.reconfigure(replace(replica.log.config, acks_all_durable=True))
    replica.when(replica.progress.committed, written, told, 7)
    assert (replica.ends, told.events) == ((1, 0, 1, 1), [])
    await until(lambda: replica.log.flushed_end_offset == 1)
    assert told.events == [7]
    replica.append_as_leader(batch(b"v"), NOW_MS)
    assert replica.ends == (2, 1, 1, 1)


async def test_without_durable_acks_what_is_written_is_read_as_soon_as_there_is_no_follower_any_more(
    open_here: OpenServices,
) -> None:
    services = await open_here(acks_all_durable=False)
    await services.topics.create("t")
    replica = services.replicas["t", 0]
    replica.lead(PartitionAssignment(1, 1, (1, 2), (1,)))
    replica.append_as_leader(batch(b"1"), NOW_MS)
    assert replica.ends == (1, 0, 0, 0)
    replica.lead(PartitionAssignment(1, 2, (1,), (1,)))
    replica.append_as_leader(batch(b"2"), NOW_MS)
    assert replica.ends == (2, 0, 2, 2)


class FullDisk(Disk):
    """It has no space for the checkpoint of gaps."""

    is_full = True

    def replace_file(self, path: Path, buffers: Iterable[Buffer], **how: bool) -> None:
        if self.is_full and path.name == CLEANED_OFFSET:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().replace_file(path, buffers, **how)


async def test_a_damaged_checkpoint_of_gaps_on_a_full_disk_takes_no_partition_offline(tmp_path: Path) -> None:
    services = await test_services.opened(tmp_path)
    await services.topics.create("t")
    await test_services.stored(services, b"before")
    await services.close(clean=False)
    checkpoint = tmp_path / "t-0" / CLEANED_OFFSET
    checkpoint.write_text("0\n1\nmany\n")
    disk = FullDisk()
    services = await test_services.opened(tmp_path, disk=disk)
    await test_services.stored(services, b"while it is full")
    assert services.replicas["t", 0].high_watermark == 2
    disk.is_full = False
    await test_services.stored(services, b"later")
    assert checkpoint.read_text() == "0\n1\n1\n"
    assert await services.close() is None
    services = await test_services.opened(tmp_path)
    assert services.replicas["t", 0].high_watermark == 3
    await services.close()


class Broken:
    """Fails whatever it is told."""

    def partition_committed(self, slot: int) -> None:
        raise RuntimeError("it fails")

    def partition_failed(self, slot: int, code: ErrorCode) -> None:
        raise RuntimeError("it fails")

    def replica_changed(self, replica: Replica) -> None:
        raise RuntimeError("it fails")


async def test_one_that_fails_when_it_is_told_keeps_no_other_waiting(open_here: OpenServices) -> None:
    services = await open_here()
    await services.topics.create("t", NewTopic(2))
    replicas = [services.replicas["t", index] for index in range(2)]
    told = [Told(), Told()]

    def wait(replica: Replica, told: Told, slot: int) -> None:
        written = replica.append_as_leader(batch(b"v"), NOW_MS)
        for waiter in (Broken(), told):
            replica.when(replica.progress.committed, written, waiter, slot)

    for replica, each in zip(replicas, told, strict=True):
        wait(replica, each, 7)
        for watcher in (Broken(), each):
            replica.watch(watcher)
    with capture_logs() as logs:
        await asyncio.gather(*(replica.committed(1) for replica in replicas))
        assert [each.events for each in told] == [[7, ("changed", 1, None)]] * 2
        wait(replicas[0], told[0], 8)
        replicas[0].stop(ErrorCode.KAFKA_STORAGE_ERROR)
        await until(lambda: (8, ErrorCode.KAFKA_STORAGE_ERROR) in told[0].events)
    assert {each["event"] for each in logs} == {"waiting_request_failed"}


@pytest.mark.parametrize("step", ["begin_flush", "finish_flush"])
async def test_a_flush_with_an_error_that_nobody_expects_keeps_no_other_log_waiting(
    open_here: OpenServices, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("it fails")

    services = await open_here()
    await services.topics.create("t", NewTopic(2))
    bad, good = (services.replicas["t", index] for index in range(2))
    monkeypatch.setattr(bad.log, step, fail)
    for replica in (bad, good):
        replica.append_as_leader(batch(b"v"), NOW_MS)
    lost, kept = bad.committed(1), good.committed(1)
    with capture_logs() as logs:
        await kept
        with pytest.raises(ApiError) as caught:
            await lost
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [(each["event"], each["error"]) for each in logs] == [
        ("partition_offline", "RuntimeError('it fails')")
    ]
