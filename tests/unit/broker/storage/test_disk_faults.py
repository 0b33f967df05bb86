"""What the log answers, and what it still holds, when the disk does not do as told."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.broker.storage.support import (
    NOW_MS,
    FaultyDisk,
    append,
    batch,
    checkpoint,
    flush,
    open_log,
    sequences,
    state,
)
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.protocol.errors import ApiError, ErrorCode


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def log(tmp_path: Path, disk: FaultyDisk) -> PartitionLog:
    log = open_log(tmp_path / "topic-0", disk=disk)
    append(log, batch(1, 0, 0))
    return log


def storage_error(log: PartitionLog, data: bytes) -> None:
    before = state(log), log.end_offset, log.size_bytes
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.KAFKA_STORAGE_ERROR):
        append(log, data)
    assert (state(log), log.end_offset, log.size_bytes) == before


def log_file(log: PartitionLog) -> Path:
    return sorted(log.folder.glob("*.log"))[-1]


def test_an_append_is_one_write(log: PartitionLog, disk: FaultyDisk) -> None:
    before = disk.writes
    append(log, batch(1, 0, 1))
    assert disk.writes == before + 1


@pytest.mark.parametrize("size", [1, 15, 16, 17, 60, 80])
def test_a_short_write_is_completed(log: PartitionLog, disk: FaultyDisk, size: int) -> None:
    disk.short_write(size)
    append(log, batch(1, 0, 1))
    append(log, batch(1, 0, 2))
    assert sequences(log) == [(number, 1, 0, number) for number in range(3)]
    log.close(clean=False)
    assert sequences(open_log(log.folder)) == [(number, 1, 0, number) for number in range(3)]


@pytest.mark.parametrize("written", [1, 100, 200])
def test_a_run_is_one_write_that_is_completed_or_leaves_no_trace(
    log: PartitionLog, disk: FaultyDisk, written: int
) -> None:
    run = [batch(1, 0, number) for number in (1, 2, 3)]
    before = disk.writes, log_file(log).stat().st_size
    disk.fail_write(errno.ENOSPC, written)
    with pytest.raises(ApiError):
        log.append_run(run, 0, NOW_MS)
    assert (disk.writes, log_file(log).stat().st_size) == (before[0] + 1, before[1])
    assert sequences(log) == [(0, 1, 0, 0)]
    disk.short_write(written)
    assert log.append_run(run, 0, NOW_MS) == (1, 3, -1, 0, False)
    log.close(clean=False)
    assert sequences(open_log(log.folder)) == [(number, 1, 0, number) for number in range(4)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("written", [0, 1, 50])
def test_a_full_disk_is_answered_and_the_log_goes_on(
    log: PartitionLog, disk: FaultyDisk, number: int, written: int
) -> None:
    size = log_file(log).stat().st_size
    disk.fail_write(number, written)
    storage_error(log, batch(1, 0, 1))
    assert log.failure is None
    assert log_file(log).stat().st_size == size
    assert log.read(Read(0, 100, 1)).next_offset == 1
    assert append(log, batch(1, 0, 1)).base_offset == 1


def test_a_flush_needs_no_space_but_that_of_the_records(log: PartitionLog, disk: FaultyDisk) -> None:
    disk.open_error = lambda path: errno.ENOSPC if path.suffix == ".tmp" else None
    flush(log)
    assert (log.failure, log.flushed_end_offset) == (None, 1)
    disk.open_error = lambda path: None
    append(log, batch(1, 0, 1))
    flush(log)
    assert (log.folder / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_a_write_to_a_removed_file_is_not_durable(log: PartitionLog) -> None:
    log_file(log).unlink()
    work = log.begin_flush()
    assert work is not None
    with pytest.raises(FileNotFoundError, match="was removed"):
        work.run()


def test_a_sync_without_run_ends_as_run_would(log: PartitionLog) -> None:
    first = log.begin_flush()
    assert first is not None
    assert first.lone_fd is None  # The names in the folder are not durable yet.
    first.run()
    log.finish_flush(first)
    append(log, batch(1, 0, 1))
    work = log.begin_flush()
    assert work is not None
    assert work.lone_fd is not None
    assert work.after_sync(None) is None
    log.finish_flush(work)
    assert log.flushed_end_offset == 2
    append(log, batch(1, 0, 2))
    log_file(log).unlink()
    work = log.begin_flush()
    assert work is not None
    assert isinstance(work.after_sync(None), FileNotFoundError)


def test_a_short_write_then_a_full_disk_leaves_no_trace(log: PartitionLog, disk: FaultyDisk) -> None:
    size = log_file(log).stat().st_size
    disk.short_write(30)
    disk.fail_write(errno.ENOSPC, 10)
    storage_error(log, batch(1, 0, 1))
    assert log_file(log).stat().st_size == size
    assert append(log, batch(1, 0, 1)).base_offset == 1


def test_a_write_that_cannot_be_cut_off_takes_the_log_offline(log: PartitionLog, disk: FaultyDisk) -> None:
    disk.fail_write(errno.ENOSPC, 50)
    disk.truncate_error = errno.EIO
    storage_error(log, batch(1, 0, 1))
    assert log.failure is not None
    disk.truncate_error = None
    storage_error(log, batch(1, 0, 1))
    with pytest.raises(ApiError):
        log.read(Read(0, 100, 1))
    assert not log.close(clean=True)
    again = open_log(log.folder)
    assert sequences(again) == [(0, 1, 0, 0)]


def test_an_input_output_error_on_write_takes_the_log_offline(log: PartitionLog, disk: FaultyDisk) -> None:
    disk.fail_write(errno.EIO)
    storage_error(log, batch(1, 0, 1))
    storage_error(log, batch(1, 0, 1))
    assert log.begin_flush() is None


def test_after_a_failed_fdatasync_nothing_more_is_taken_or_called_durable(
    log: PartitionLog, disk: FaultyDisk
) -> None:
    work = log.begin_flush()
    assert work is not None
    disk.fdatasync_error = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        work.run()
    log.mark_failed(OSError(errno.EIO, "fdatasync"))
    disk.fdatasync_error = None
    assert log.flushed_end_offset == 0
    assert log.begin_flush() is None
    storage_error(log, batch(1, 0, 1))
    assert not log.close(clean=True)


def test_a_read_error_is_answered_and_the_log_goes_on(log: PartitionLog, disk: FaultyDisk) -> None:
    disk.read_error = errno.EIO
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.KAFKA_STORAGE_ERROR):
        log.read(Read(0, 100, 1))
    disk.read_error = None
    assert log.read(Read(0, 100, 1)).next_offset == 1


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_roll_on_a_full_disk_does_not_change_the_log(tmp_path: Path, disk: FaultyDisk, suffix: str) -> None:
    log = open_log(tmp_path, disk=disk, config=LogConfig(segment_bytes=300, index_interval_bytes=100))
    for number in range(3):
        append(log, batch(1, 0, number))
    log.close(clean=True)
    for path in tmp_path.glob("*index"):
        path.unlink()
    log = open_log(
        tmp_path, disk=disk, config=LogConfig(segment_bytes=300, index_interval_bytes=100), recovery_point=3
    )
    number = 3
    while log.size_bytes % 300 + len(batch(1, 0, 0)) <= 300:
        append(log, batch(1, 0, number))
        number += 1
    disk.open_error = lambda path: errno.ENOSPC if path.suffix == suffix else None
    storage_error(log, batch(1, 0, number))
    assert log.failure is None
    disk.open_error = lambda path: None
    assert append(log, batch(1, 0, number)).base_offset == number
    assert [found[3] for found in sequences(log)] == list(range(number + 1))


def test_a_checkpoint_that_fails_costs_only_reading(log: PartitionLog, disk: FaultyDisk) -> None:
    flush(log)
    work = log.begin_checkpoint()
    assert work is not None
    assert log.begin_checkpoint() is None
    disk.fdatasync_error = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        work.run()
    log.finish_checkpoint(work, OSError(errno.EIO, "fdatasync"))
    disk.fdatasync_error = None
    assert log.recovery_point == 0
    append(log, batch(1, 0, 1))
    flush(log)
    checkpoint(log)
    assert log.recovery_point == 0
    log.close(clean=False)
    assert sequences(open_log(log.folder, recovery_point=0)) == [(0, 1, 0, 0), (1, 1, 0, 1)]


def test_a_checkpoint_without_space_is_made_up_for_when_there_is_space(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = open_log(tmp_path, disk=disk, config=LogConfig(segment_bytes=600, index_interval_bytes=1))
    for number in range(20):
        append(log, batch(1, 0, number))
    flush(log)
    work = log.begin_checkpoint()
    assert work is not None
    disk.fail_write(errno.ENOSPC)
    log.finish_checkpoint(work, work.attempt())
    assert log.recovery_point == 0
    synced = len(disk.synced)
    checkpoint(log)
    assert log.recovery_point == 20
    assert len(disk.synced) - synced > 2 * (log.segment_count - 1)
    log.close(clean=False)
    again = open_log(tmp_path, recovery_point=20)
    assert (again.recovery.rebuilt_indexes, len(sequences(again))) == ([], 20)


def test_files_of_a_deletion_that_failed_halfway_are_deleted_by_the_next_one(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for refused in (2, 4):  # Within the first segment, which has three files; within the second.
        folder, left = tmp_path / str(refused), iter(range(refused))

        def rename(old: Path, new: Path, left: Iterator[int] = left) -> None:
            if new.suffix == ".deleted" and next(left, None) is None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.rename(old, new)

        log = open_log(folder, disk=disk, config=LogConfig(segment_bytes=150))
        for number in range(4):
            append(log, batch(value=b"%d" % number * 60))
        flush(log)
        for _ in range(3):
            log.take_snapshot()
        with monkeypatch.context() as patch:
            patch.setattr(disk, "rename", rename)
            log.delete_records_before(3)
        assert log.segment_count > 1
        log.drop_segments()
        assert log.segment_count == 1
        assert sorted(log.take_deleted_files()) == sorted(folder.glob("*.deleted"))
        assert len(sequences(log)) == 1


def test_a_full_disk_lets_segments_go_before_their_snapshot_is_written(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = open_log(tmp_path, disk=disk, config=LogConfig(segment_bytes=300, retention_bytes=0))
    for number in range(20):
        append(log, batch(1, 0, number))
    flush(log)
    log.apply_retention(0)
    assert log.take_deleted_files() == []
    work = log.begin_checkpoint()
    assert work is not None
    assert work.snapshot is not None
    disk.open_error = lambda path: errno.ENOSPC if ".snapshot" in path.name else None
    with pytest.raises(OSError, match="No space") as caught:
        work.run()
    log.finish_checkpoint(work, caught.value)
    assert log.take_deleted_files() != []
    disk.open_error = lambda path: None
    checkpoint(log)
    assert list(tmp_path.glob("*.snapshot"))
    assert append(log, batch(1, 0, 20)).base_offset == 20
