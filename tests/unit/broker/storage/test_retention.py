"""What retention and DeleteRecords take from a log, and what they leave."""

import os
from pathlib import Path

import pytest

from tests.unit.broker.storage.support import NOW_MS, append, batch, checkpoint, flush, open_log, state
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.broker.storage.snapshot import snapshot_path, snapshots
from tidelog.broker.storage.upkeep import DROPPED_AT_ONCE


def filled(folder: Path, config: LogConfig, count: int = 60) -> PartitionLog:
    log = open_log(folder, config=config)
    for number in range(count):
        append(log, batch(1, 0, number, timestamp=NOW_MS + number))
    flush(log)
    checkpoint(log)
    return log


def test_records_that_were_old_when_written_are_distinguished_from_those_that_became_old(
    tmp_path: Path,
) -> None:
    hour_ms = 3_600_000
    log = filled(tmp_path, LogConfig(segment_bytes=1000, retention_ms=hour_ms))
    latest = NOW_MS + 59

    def found(written_ms: int, now_ms: int) -> int | None:
        for path in tmp_path.glob("*.log"):
            os.utime(path, ns=(written_ms * 10**6, written_ms * 10**6))
        return log.look_up_ages(now_ms)

    assert found(latest + hour_ms + 1, latest + hour_ms + 2) == latest, "old when written, just now"
    assert found(latest, latest + 2 * hour_ms) is None, "became old"
    assert found(latest + hour_ms + 1, latest + 3 * hour_ms) is None, "stayed for retention.ms after that"
    log.reconfigure(LogConfig(segment_bytes=1000, retention_ms=-1))
    assert found(latest + hour_ms + 1, latest + hour_ms + 2) is None, "nothing is deleted"


def newest_snapshot(folder: Path) -> Path:
    return snapshot_path(folder, *snapshots(Disk(), folder)[-1])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", ["retention", "delete_records"])
def test_what_left_with_its_segments_is_in_two_snapshots(tmp_path: Path, clean: bool, how: str) -> None:
    config = LogConfig(segment_bytes=1000, retention_ms=1000)
    log = open_log(tmp_path, config=config)
    for number in range(60):
        append(log, batch(number % 30, 0, number // 30, timestamp=NOW_MS + number))
    flush(log)
    if how == "retention":
        log.apply_retention(NOW_MS + 5000)
    else:
        log.roll(NOW_MS)
        log.delete_records_before(60)
    checkpoint(log)
    assert (log.segment_count, log.size_bytes, len(log.producers)) == (1, 0, 30)
    before = state(log)
    log.close(clean=clean)
    newest_snapshot(tmp_path).write_bytes(b"damaged")
    again = open_log(tmp_path, config=config, clean=clean, recovery_point=log.recovery_point)
    assert state(again) == before
    assert again.recovery.producers_unknown_before == -1
    again.close(clean=False)


def test_after_a_damaged_snapshot_two_good_ones_are_there_again_before_more_leaves(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1000, retention_bytes=2000)
    log = filled(tmp_path, config)
    log.apply_retention(NOW_MS)
    log.close(clean=True)
    for number in range(60, 120):
        newest_snapshot(tmp_path).write_bytes(b"damaged")
        log = open_log(tmp_path, config=config, clean=True, recovery_point=log.recovery_point)
        assert {entry.last_sequence for entry in log.producers.entries()} == {number - 1}
        append(log, batch(1, 0, number, timestamp=NOW_MS + number))
        flush(log)
        log.apply_retention(NOW_MS)
        if number % 3:
            checkpoint(log)
        log.close(clean=True)
    assert len(list(tmp_path.glob("*.log"))) < 6


def test_a_snapshot_ahead_of_what_is_durable_lets_nothing_leave(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=1000))
    for number in range(30):
        append(log, batch(1, 0, number))
    flush(log)
    append(log, batch(1, 0, 30))
    log.delete_records_before(30)
    segments = log.segment_count
    checkpoint(log)
    assert log.segment_count == segments
    flush(log)
    log.drop_segments()
    assert log.segment_count == 1


def test_many_segments_leave_some_at_a_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=100))
    for number in range(2 * DROPPED_AT_ONCE + 10):
        append(log, batch(1, 0, number))
    flush(log)
    log.delete_records_before(log.end_offset)
    checkpoint(log)
    steps = [log.take_deleted_files()]
    while log.drop_segments():
        steps.append(log.take_deleted_files())
    steps.append(log.take_deleted_files())
    logs = [sum(".log." in path.name for path in step) for step in steps]
    assert logs == [DROPPED_AT_ONCE, DROPPED_AT_ONCE, 9]


def test_deleted_segments_without_a_good_snapshot_are_called_a_loss_of_producers(tmp_path: Path) -> None:
    log = filled(tmp_path, LogConfig(segment_bytes=1000))
    log.delete_records_before(59)
    checkpoint(log)
    log.close(clean=True)
    for path in tmp_path.glob("*.snapshot"):
        path.write_bytes(b"damaged")
    again = open_log(tmp_path, clean=True, recovery_point=60)
    assert again.recovery.producers_unknown_before == again._segments.segments[0].base_offset > 0
    assert len(again.recovery.corrupt_snapshots) == 2


def test_a_reader_in_a_thread_keeps_a_deleted_segment_readable(tmp_path: Path) -> None:
    log = filled(tmp_path, LogConfig(segment_bytes=1000))
    segment = log._segments.segments[0]
    assert segment.log.acquire()
    log.delete_records_before(59)
    checkpoint(log)
    assert segment not in log._segments.segments
    assert len(segment._disk.read(segment.log.fd, 61, 0)) == 61
    segment.log.release()
    assert not segment.log.acquire()
