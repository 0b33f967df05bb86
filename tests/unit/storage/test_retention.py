"""What retention and DeleteRecords take from a log, and what they leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.storage.log_config import LogConfig
from broker.storage.partition_log import PartitionLog
from protocol.errors import ApiError, ErrorCode
from tests.unit.storage.support import NOW_MS, append, batch, checkpoint, flush, open_log, state


def filled(folder: Path, config: LogConfig, count: int = 60) -> PartitionLog:
    log = open_log(folder, config=config)
    for number in range(count):
        append(log, batch(1, 0, number, timestamp=NOW_MS + number))
    flush(log)
    checkpoint(log)
    return log


def test_retention_by_size_keeps_at_least_what_it_must(tmp_path: Path) -> None:
    log = filled(tmp_path, LogConfig(segment_bytes=1000, retention_bytes=2500))
    total = log.size_bytes
    deleted = log.apply_retention(NOW_MS)
    assert deleted == log.start_offset > 0
    assert 2500 <= log.size_bytes < 3500
    assert total - log.size_bytes == sum(
        path.stat().st_size for path in log.take_deleted_files() if ".log." in path.name
    )


def test_retention_by_age_lets_even_the_active_segment_go(tmp_path: Path) -> None:
    log = filled(tmp_path, LogConfig(segment_bytes=1000, retention_ms=1000))
    assert log.apply_retention(NOW_MS + 1000) == 0
    assert log.apply_retention(NOW_MS + 1030) > 0
    assert log.apply_retention(NOW_MS + 5000) > 0
    assert (log.start_offset, log.end_offset) == (60, 60)
    checkpoint(log)
    assert (log.segment_count, log.size_bytes) == (1, 0)


def test_retention_never_takes_what_is_not_durable(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(retention_ms=1))
    append(log, batch())
    assert log.apply_retention(NOW_MS + 100) == 0


def test_retention_never_forgets_a_producer_not_even_over_a_crash(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1000, retention_ms=1000)
    log = filled(tmp_path, config)
    log.apply_retention(NOW_MS + 5000)
    checkpoint(log)
    before = state(log)
    assert append(log, batch(1, 0, 59, timestamp=NOW_MS + 59)).duplicate
    log.close(clean=False)
    again = open_log(tmp_path, config=config, recovery_point=log.recovery_point)
    assert state(again) == before
    assert append(again, batch(1, 0, 60)).base_offset == 60


def test_files_stay_until_a_snapshot_knows_their_producers(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=1000, retention_ms=1000))
    for number in range(60):
        append(log, batch(1, 0, number))
    flush(log)
    log.apply_retention(NOW_MS + 5000)
    assert log.start_offset == 60
    assert log.take_deleted_files() == []
    checkpoint(log)
    assert log.take_deleted_files() != []


def test_delete_records_moves_the_start_and_reads_before_it_fail(tmp_path: Path) -> None:
    log = filled(tmp_path, LogConfig(segment_bytes=1000))
    segments = log.segment_count
    assert log.delete_records_before(35) == 35
    assert log.segment_count < segments
    with pytest.raises(ApiError):
        log.read(34, 100, upper_offset=60)
    assert log.read(35, 100, upper_offset=60).records
    with pytest.raises(ApiError) as caught:
        log.delete_records_before(61)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_reader_in_a_thread_keeps_a_deleted_segment_readable(tmp_path: Path) -> None:
    log = filled(tmp_path, LogConfig(segment_bytes=1000))
    segment = log._segments.segments[0]
    assert segment.log.acquire()
    log.delete_records_before(59)
    assert len(segment._disk.read(segment.log.fd, 61, 0)) == 61
    segment.log.release()
    assert not segment.log.acquire()
