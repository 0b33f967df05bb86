"""Appending to, reading from and searching one partition's log."""

from pathlib import Path
from struct import Struct

import pytest

from tests.unit.broker.storage.support import (
    NOW_MS,
    FaultyDisk,
    append,
    batch,
    flush,
    open_log,
    state,
)
from tidelog.broker.storage.disk import ColdRead
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import decode_batch, read_batch_header
from tidelog.protocol.records.header import write_header

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path / "topic-0")


def refused(log: PartitionLog, data: bytes, *, now_ms: int = NOW_MS) -> ErrorCode:
    end, size, before = log.end_offset, log.size_bytes, state(log)
    with pytest.raises(ApiError) as caught:
        append(log, data, now_ms=now_ms)
    assert (log.end_offset, log.size_bytes, state(log)) == (end, size, before)
    return caught.value.code


def changed(data: bytes, **fields: int) -> bytes:
    copy = bytearray(data)
    write_header(copy, read_batch_header(data)._replace(**fields))
    return bytes(copy)


def test_the_batch_is_stored_as_it_came_but_for_offset_and_leader_epoch(log: PartitionLog) -> None:
    append(log, batch())
    sent = batch(5, 2, 0, 4, compression=Compression.LZ4)
    append(log, memoryview(sent), leader_epoch=7)
    (records,) = log.read(Read(1, 1 << 20, 5)).records
    found = read_batch_header(records)
    assert (found.base_offset, found.partition_leader_epoch) == (1, 7)
    assert bytes(records[16:]) == sent[16:]
    assert [record.offset for record in decode_batch(records)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (batch()[:40], ErrorCode.INVALID_RECORD),
        (batch()[:-1], ErrorCode.INVALID_RECORD),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (batch()[:16] + b"\x01" + batch()[17:], ErrorCode.INVALID_RECORD),
        (changed(batch(), base_offset=1), ErrorCode.INVALID_RECORD),
        (batch()[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (changed(batch(count=2), record_count=3), ErrorCode.INVALID_RECORD),
        (changed(batch(count=2), last_offset_delta=5), ErrorCode.INVALID_RECORD),
        (changed(batch(), record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
        (changed(batch(), record_count=2**31 - 1, last_offset_delta=2**31 - 2), ErrorCode.INVALID_RECORD),
        (changed(batch(), attributes=0x20), ErrorCode.INVALID_RECORD),
        (changed(batch(), attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (changed(batch(), attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
        (changed(batch(1, 0, 0), base_sequence=-1), ErrorCode.INVALID_RECORD),
        (changed(batch(1, 0, 0), attributes=0x10), ErrorCode.INVALID_TXN_STATE),
        (batch(value=b"v" * 1_048_588), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(timestamp=NOW_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
        (batch(1, 0, 1), ErrorCode.UNKNOWN_PRODUCER_ID),
        (batch(5000, 0, 0), ErrorCode.UNKNOWN_PRODUCER_ID),
    ],
)
def test_what_is_wrong_with_a_batch_is_answered_and_nothing_stored(
    log: PartitionLog, data: bytes, code: ErrorCode
) -> None:
    assert refused(log, data) == code


def test_the_crc_is_checked_before_the_producer(log: PartitionLog) -> None:
    damaged = bytearray(batch(5000, 0, 0))
    damaged[-1] ^= 1
    assert refused(log, bytes(damaged)) == ErrorCode.CORRUPT_MESSAGE


def test_log_append_time_is_the_brokers_and_the_crc_still_right(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(message_timestamp_type="LogAppendTime"))
    result = append(log, batch(1, 0, 0, 2, timestamp=5), now_ms=NOW_MS + 9)
    assert result.log_append_time_ms == NOW_MS + 9
    (records,) = log.read(Read(0, 1 << 20, 2)).records
    assert {record.timestamp for record in decode_batch(records)} == {NOW_MS + 9}
    assert append(log, batch(1, 0, 0, 2, timestamp=5), now_ms=NOW_MS + 50).log_append_time_ms == NOW_MS + 9


def test_cold_pages_are_signalled_and_can_be_read_without_nowait(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path, disk=disk)
    append(log, batch())
    disk.cold = True
    with pytest.raises(ColdRead):
        log.read(Read(0, 100, 1, nowait=True))
    assert log.read(Read(0, 100, 1)).next_offset == 1


def test_segments_roll_earlier_by_a_part_of_the_jitter_that_is_their_own(tmp_path: Path) -> None:
    config = LogConfig(segment_ms=1000, segment_jitter_ms=900)
    ages = []
    for number in range(5):
        log = open_log(tmp_path / f"topic-{number}", config=config)
        append(log, batch(timestamp=NOW_MS))
        age_ms = 0
        while log.segment_count == 1:
            age_ms += 10
            append(log, batch(timestamp=NOW_MS + age_ms))
        ages.append(age_ms)
    assert all(100 < age_ms <= 1010 for age_ms in ages)
    assert len(set(ages)) > 1


def test_segments_roll_when_an_index_is_full(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(index_interval_bytes=0, segment_index_bytes=80))
    for number in range(30):
        append(log, batch(timestamp=NOW_MS + number))
    assert log.segment_count > 3
    log.close(clean=True)
    assert all(path.stat().st_size <= 80 for path in tmp_path.glob("*index"))


def test_segments_roll_before_a_relative_offset_overflows(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    log.end_offset = 2**31
    append(log, batch())
    assert sorted(path.name for path in tmp_path.glob("*.log"))[1].startswith("0" * 19 + "1")


def test_files_are_kafkas_byte_for_byte(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(index_interval_bytes=150))
    size = len(batch(count=2))
    for number in range(5):
        append(log, batch(count=2, timestamp=NOW_MS + 10 * number))
    log.close(clean=True)
    base = tmp_path / f"{0:020d}"
    assert base.with_suffix(".log").stat().st_size == 5 * size
    offsets = list(Struct(">ii").iter_unpack(base.with_suffix(".index").read_bytes()))
    assert 75 < size <= 150
    assert offsets == [(5, 2 * size), (9, 4 * size)]
    times = list(Struct(">qi").iter_unpack(base.with_suffix(".timeindex").read_bytes()))
    assert times == [(NOW_MS + 21, 5), (NOW_MS + 41, 9)]
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_timestamp_finds_the_first_record_that_is_not_older(tmp_path: Path, codec: Compression) -> None:
    log = open_log(tmp_path, config=SMALL)
    timestamps = []
    for number in range(60):
        timestamp = NOW_MS + number * 10 - (500 if number % 7 == 3 else 0)
        append(log, batch(count=3, timestamp=timestamp, step_ms=2, compression=codec))
        timestamps += [timestamp, timestamp + 2, timestamp + 4]
    for target in range(NOW_MS - 510, NOW_MS + 610):
        expected = next((i for i, timestamp in enumerate(timestamps) if timestamp >= target), None)
        found = log.offset_for_timestamp(target)
        assert (found and found.offset) == expected, target
        if found is not None:
            assert found.timestamp == timestamps[found.offset]


def test_nothing_is_durable_until_a_flush_is_finished(log: PartitionLog) -> None:
    assert log.begin_flush() is None
    append(log, batch(count=3))
    work = log.begin_flush()
    assert work is not None
    append(log, batch())
    assert log.flushed_end_offset == 0
    work.run()
    assert log.flushed_end_offset == 0
    log.finish_flush(work)
    assert (log.flushed_end_offset, log.end_offset) == (3, 4)


def test_a_flush_covers_every_segment_that_was_rolled_since_the_last(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path, config=SMALL, disk=disk)
    for _ in range(30):
        append(log, batch())
    flush(log)
    expected = {segment.log.fd for segment in log._segments.segments}
    assert expected <= set(disk.synced)
    disk.synced.clear()
    append(log, batch())
    flush(log)
    assert disk.synced == [log._segments.active.log.fd]
