"""The log of a partition as a journal: writes are all or none, a replay gives the last of each key."""

import asyncio
from typing import Any

import pytest

from tests.unit.broker.conftest import NOW_MS, OpenServices
from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.coordinator import log_journal
from tidelog.broker.coordinator.log_journal import LogJournal
from tidelog.broker.coordinator.offsets.offset_records import OFFSET_RECORDS, CommittedOffset, OffsetRecord
from tidelog.broker.coordinator.pending_records import InTransaction
from tidelog.broker.coordinator.record_formats import RecordFormats
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.services import Services
from tidelog.broker.storage.log_types import Read
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import RecordBatchBuilder, TransactionMarker

FORMATS = RecordFormats((OFFSET_RECORDS,))


def offset(partition: int, committed: int | None, group: str = "g") -> OffsetRecord:
    value = None if committed is None else CommittedOffset(committed, commit_timestamp_ms=NOW_MS)
    return OffsetRecord(group, "t", partition, value)


@pytest.fixture
async def services(open_here: OpenServices) -> Services:
    opened = await open_here()
    await opened.topics.create("log")
    return opened


@pytest.fixture
def replica(services: Services) -> Replica:
    return services.replicas["log", 0]


def journal_of(replica: Replica) -> LogJournal[OffsetRecord]:
    return LogJournal(replica, FORMATS, lambda: NOW_MS)


async def write(replica: Replica, *records: OffsetRecord) -> None:
    await (await journal_of(replica).write(records))


async def replayed(replica: Replica) -> list[OffsetRecord]:
    return list(await journal_of(replica).news())


async def test_the_records_of_a_write_are_one_batch_and_durable_when_its_future_is_done(
    replica: Replica,
) -> None:
    done = await journal_of(replica).write([offset(index, index) for index in range(3)])
    assert replica.log.end_offset == 3
    assert (await done).base_offset == 0
    assert replica.high_watermark == 3
    (stretch,) = replica.read(Read(0, 10_000, 3)).records
    assert len(stretch) == replica.log.size_bytes


async def test_the_last_record_of_each_key_is_replayed_in_the_order_of_the_log(replica: Replica) -> None:
    await write(replica, offset(0, 1), offset(1, 1), offset(2, 1))
    await write(replica, offset(0, 2))
    await write(replica, offset(1, None), offset(3, 9))
    assert await replayed(replica) == [offset(2, 1), offset(0, 2), offset(3, 9)]


async def test_a_write_that_was_decided_in_an_earlier_epoch_is_refused_also_by_a_leader_of_a_later_one(
    replica: Replica,
) -> None:
    decided: list[list[Any]] = [[offset(0, 1)], [TransactionMarker(1, 0, 0, True)]]
    journal = journal_of(replica)
    replica.follow(replica.leader_epoch + 1, 2)
    replica.lead(PartitionAssignment(1, replica.leader_epoch + 1, (1,), (1,)))
    for records in decided:
        with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER):
            await journal.write(records)
    assert replica.log.end_offset == 0
    for records in decided:
        await (await journal_of(replica).write(records))


async def test_what_is_superseded_is_not_held_while_the_log_is_read(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_journal, "READ_BYTES", 2_000)
    written = 500
    for number in range(written):
        await journal_of(replica).write([offset(number % 3, number)])
    held: list[int] = []
    read = LogJournal._read

    def watched(journal: LogJournal[OffsetRecord], at: int, end: int, values: Any) -> int:
        reached = read(journal, at, end, values)
        held.append(len(values.last))
        return reached

    monkeypatch.setattr(LogJournal, "_read", watched)
    assert await replayed(replica) == [offset(index % 3, index) for index in range(written - 3, written)]
    assert len(held) > 10
    assert max(held) == 3


async def test_others_have_their_turns_while_a_log_is_replayed_and_a_batch_is_written(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_journal, "READ_BYTES", 2_000)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    await write(replica, *(offset(index, index) for index in range(2_000)))
    assert turns >= 9
    for index in range(50):
        await journal_of(replica).write([offset(index, index) for _ in range(10)])
    turns = 0
    await replayed(replica)
    assert turns >= 5
    task.cancel()


async def test_a_journal_gives_its_log_once(replica: Replica) -> None:
    await write(replica, offset(0, 1))
    journal = journal_of(replica)
    assert list(await journal.news()) == [offset(0, 1)]
    await journal.write([offset(0, 2)])
    assert list(await journal.news()) == []


async def test_records_of_other_kinds_and_without_a_key_are_ignored(replica: Replica) -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, b"\x00\x07later", b"value")
    builder.append(NOW_MS, None, b"value")
    await replica.append_as_coordinator(builder.build(), NOW_MS)
    await write(replica, offset(0, 1))
    assert await replayed(replica) == [offset(0, 1)]


async def test_more_records_than_a_batch_holds_are_refused_and_nothing_is_written(services: Services) -> None:
    await services.topics.change_configs("log", lambda _: {"max.message.bytes": "1000"})
    replica = services.replicas["log", 0]
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.MESSAGE_TOO_LARGE):
        await journal_of(replica).write([offset(index, index) for index in range(100)])
    assert replica.log.end_offset == 0
    await write(replica, offset(0, 1))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00\x01\x00\x09", b"\x00\x03"),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x09"),
        (b"", b""),
    ],
)
async def test_a_record_that_says_nothing_is_an_error_that_names_the_log_and_gives_no_records(
    replica: Replica, key: bytes, value: bytes
) -> None:
    await write(replica, offset(1, 1))
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, key, value)
    await replica.append_as_coordinator(builder.build(), NOW_MS)
    for _ in range(2):
        journal = journal_of(replica)
        with pytest.raises(ApiError, match="log-0 cannot be read") as failed:
            list(await journal.news())
        assert failed.value.code == ErrorCode.CORRUPT_MESSAGE


async def test_a_damaged_batch_is_an_error_and_gives_no_records(replica: Replica) -> None:
    await write(replica, offset(0, 1))
    await write(replica, offset(1, 1))
    path = next(replica.log.folder.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.CORRUPT_MESSAGE):
        list(await journal_of(replica).news())


async def test_a_replay_ends_when_the_broker_stops(replica: Replica) -> None:
    await write(replica, offset(0, 1))
    journal = journal_of(replica)
    journal.stop_reading()
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.NOT_COORDINATOR):
        await journal.news()


async def test_a_write_that_does_not_become_durable_fails_its_future(replica: Replica) -> None:
    done = await journal_of(replica).write([offset(0, 1)])
    replica.fail(OSError(5, "the disk is gone"))
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.KAFKA_STORAGE_ERROR):
        await done
    with pytest.raises(ApiError):
        await journal_of(replica).write([offset(0, 2)])


async def test_records_of_a_transaction_count_once_it_is_committed(replica: Replica) -> None:
    """Needs a log that takes records of a producer's transaction from a coordinator."""
    await write(replica, offset(0, 1), offset(1, 1), offset(2, 1))
    journal: LogJournal[Any] = journal_of(replica)
    for producer_id in (7, 8, 9):
        records = [InTransaction(producer_id, 0, offset(producer_id - 7, 2))]
        await (await journal.write(records))
    await (await journal.write([TransactionMarker(7, 0, 0, is_commit=True)]))
    await (await journal.write([TransactionMarker(8, 0, 0, is_commit=False)]))
    assert await replayed(replica) == [
        offset(1, 1),
        offset(2, 1),
        offset(0, 2),
        InTransaction(9, 0, offset(2, 2)),
    ]
    await (await journal.write([TransactionMarker(9, 0, 0, is_commit=True)]))
    assert await replayed(replica) == [offset(1, 1), offset(0, 2), offset(2, 2)]
