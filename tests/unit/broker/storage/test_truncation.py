"""A log that is taken back is the log that it would be if nothing more had been written."""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.broker.storage.support import (
    NEVER_ISSUED,
    NOW_MS,
    append,
    batch,
    checkpoint,
    flush,
    sequences,
    state,
)
from tidelog.broker.storage.disk import Disk, SyncError
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.manager import LogManager
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.broker.storage.snapshot import snapshots
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import Buffer

TOPIC_ID = UUID("0fc0a9b6-7b3b-4c38-9d7a-5a5c1f0a2b3c")
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=200)
BATCHES = 40
STEP = 2
"""Records in a batch."""


class CountedDisk(Disk):
    """Fails from the so many-th change of a file on, or at the so many-th sync; -1 for never."""

    def __init__(self, number: int = errno.EIO) -> None:
        self.number = number
        self.left = -1
        self.syncs_left = -2
        self.changes = self.syncs = 0

    def _change(self) -> None:
        self.changes += 1
        if self.left == 0:
            raise OSError(self.number, os.strerror(self.number))
        self.left -= 1

    def _sync(self) -> None:
        self.syncs += 1
        self.syncs_left -= 1
        if self.syncs_left == -1:
            raise SyncError(self.number, os.strerror(self.number))

    def writev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self._change()
        return super().writev(fd, buffers, position)

    def unlink(self, path: Path) -> None:
        self._change()
        super().unlink(path)

    def truncate(self, fd: int, size: int) -> None:
        self._change()
        super().truncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        self._change()
        super().rename(old, new)

    def fdatasync(self, fd: int) -> None:
        self._sync()

    def fsync_directory(self, path: Path) -> None:
        self._sync()


def opened(folder: Path, disk: Disk) -> LogManager:
    logs = LogManager(folder, next_producer_id=lambda: NEVER_ISSUED, disk=disk)
    logs.lock()
    logs.open_all([("topic", TOPIC_ID, 0, CONFIG)], NOW_MS)
    return logs


def fill(log: PartitionLog, first: int, end: int) -> None:
    """Batches of three producers in turn; a new leader epoch every ten. A snapshot at 15 and at 30."""
    for number in range(first, end):
        append(
            log,
            batch(number % 3, 0, number // 3 * STEP, STEP, timestamp=NOW_MS + number, step_ms=0),
            leader_epoch=number // 10,
        )
        if number in (15, 30):
            flush(log)
            log.take_snapshot()
    flush(log)
    checkpoint(log)


def indexes(folder: Path) -> dict[str, bytes]:
    """Those of offsets; a time index also has an entry for each checkpoint, and `facts` looks times up."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.index"))}


def facts(log: PartitionLog) -> dict[str, object]:
    """All that a log says of itself."""
    end = log.end_offset
    return {
        "end": (log.start_offset, end, log.flushed_end_offset),
        "batches": sequences(log),
        "producers": state(log),
        "epochs": [log.leader_epoch_for(offset) for offset in range(end)] + [log.leader_epoch],
        "ends of epochs": [log.end_offset_for_epoch(epoch) for epoch in range(BATCHES // 10 + 1)],
        "times": [log.offset_for_timestamp(NOW_MS + number) for number in range(BATCHES + 1)],
        "largest": log.max_timestamp_offset(),
    }


def as_if_never_more(folder: Path, batches: int) -> LogManager:
    logs = opened(folder, CountedDisk())
    fill(logs.logs["topic", 0], 0, batches)
    return logs


def test_a_log_taken_back_is_as_if_nothing_more_had_been_written(tmp_path: Path) -> None:
    for offset in range(0, BATCHES * STEP + 1, 7):
        expected = as_if_never_more(tmp_path / f"expected{offset}", offset // STEP)
        logs = as_if_never_more(tmp_path / f"cut{offset}", BATCHES)
        log = logs.truncate_to("topic", 0, offset, NOW_MS)
        assert logs.logs["topic", 0] is log
        other = expected.logs["topic", 0]
        assert facts(log) == facts(other), offset
        for each in (log, other):
            fill(each, offset // STEP, BATCHES)
        assert facts(log) == facts(other), offset
        assert not log.recovery.is_damaged
        assert logs.close()
        assert expected.close()
        paths = (tmp_path / f"cut{offset}" / "topic-0", tmp_path / f"expected{offset}" / "topic-0")
        assert indexes(paths[0]) == indexes(paths[1])


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_restart_it_is_still_the_shorter_one(tmp_path: Path, clean: bool) -> None:
    for offset in (0, 7, 30, 61, 79):
        folder = tmp_path / str(offset)
        logs = as_if_never_more(folder, BATCHES)
        before = facts(logs.truncate_to("topic", 0, offset, NOW_MS))
        logs.close(clean=clean)
        logs = opened(folder, CountedDisk())
        assert facts(logs.logs["topic", 0]) == before
        assert not logs.logs["topic", 0].recovery.is_damaged
        logs.close()


def test_one_that_cannot_be_taken_back_is_offline_and_the_next_start_reads_it_again(tmp_path: Path) -> None:
    disk = CountedDisk()
    logs = opened(tmp_path, disk)
    fill(logs.logs["topic", 0], 0, BATCHES)
    disk.left = 0
    with pytest.raises(OSError, match="Input/output"):
        logs.truncate_to("topic", 0, 21, NOW_MS)
    disk.left = -1
    assert not logs.logs
    assert not logs.close()
    again = opened(tmp_path, disk)
    assert not again.was_clean
    assert again.logs["topic", 0].end_offset == BATCHES * STEP
    again.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_one_for_which_space_or_handles_lack_is_served_as_it_is_and_taken_back_later(
    tmp_path: Path, number: int
) -> None:
    counter = CountedDisk()
    logs = opened(tmp_path / "counted", counter)
    fill(logs.logs["topic", 0], 0, BATCHES)
    counter.changes = 0
    logs.truncate_to("topic", 0, 21, NOW_MS)
    expected = facts(as_if_never_more(tmp_path / "expected", 10).logs["topic", 0])
    for step in range(counter.changes):
        disk = CountedDisk(number)
        logs = opened(tmp_path / str(step), disk)
        fill(logs.logs["topic", 0], 0, BATCHES)
        disk.left = step
        with suppress(OSError):  # What comes after the log is open again, it does without.
            logs.truncate_to("topic", 0, 21, NOW_MS)
        disk.left = -1
        logs.open_all([("topic", TOPIC_ID, 0, CONFIG)], NOW_MS)
        assert not logs.lacking
        log = logs.logs["topic", 0]
        assert 20 <= log.end_offset <= BATCHES * STEP
        whole = as_if_never_more(tmp_path / f"whole{step}", log.end_offset // STEP)
        assert facts(log) == facts(whole.logs["topic", 0]), step
        shorter = logs.truncate_to("topic", 0, min(21, log.end_offset), NOW_MS)
        assert facts(shorter) == expected, step
        assert not shorter.recovery.is_damaged
        logs.close()


def test_one_that_is_taken_back_on_a_full_disk_stays_open(tmp_path: Path) -> None:
    disk = CountedDisk(errno.EFBIG)
    logs = opened(tmp_path, disk)
    log = logs.logs["topic", 0]
    fill(log, 0, BATCHES)
    before = facts(log)
    disk.left = 0
    for _ in range(2):
        with pytest.raises(OSError, match="File too large"):
            logs.truncate_to("topic", 0, 21, NOW_MS)
        assert facts(logs.logs["topic", 0]) == before
    disk.left = -1
    assert logs.truncate_to("topic", 0, 21, NOW_MS).end_offset == 20
    logs.close()


def test_a_sync_that_fails_while_it_is_taken_back_is_not_repeated(tmp_path: Path) -> None:
    counter = CountedDisk()
    logs = opened(tmp_path / "counted", counter)
    fill(logs.logs["topic", 0], 0, BATCHES)
    counter.syncs = 0
    logs.truncate_to("topic", 0, 21, NOW_MS)
    assert counter.syncs > 5
    for sync in range(counter.syncs):
        disk = CountedDisk(errno.ENOSPC)
        logs = opened(tmp_path / str(sync), disk)
        fill(logs.logs["topic", 0], 0, BATCHES)
        disk.syncs_left = sync
        with pytest.raises(SyncError):
            logs.truncate_to("topic", 0, 21, NOW_MS)
        assert (logs.logs, logs.lacking) == ({}, set())
        assert not logs.close()


@pytest.mark.parametrize("offset", [0, 21])
def test_a_crash_in_the_middle_leaves_a_log_that_ends_between_the_two(tmp_path: Path, offset: int) -> None:
    counter = CountedDisk()
    logs = opened(tmp_path / "counted", counter)
    fill(logs.logs["topic", 0], 0, BATCHES)
    counter.changes = 0
    logs.truncate_to("topic", 0, offset, NOW_MS)
    assert counter.changes > 5
    for step in range(counter.changes):
        folder = tmp_path / str(step)
        disk = CountedDisk()
        logs = opened(folder, disk)
        fill(logs.logs["topic", 0], 0, BATCHES)
        disk.left = step
        with suppress(OSError):  # What comes after the log is open again, it does without.
            logs.truncate_to("topic", 0, offset, NOW_MS)
        disk.left = -1
        logs.close(clean=False)
        again = opened(folder, CountedDisk())
        log = again.logs["topic", 0]
        assert offset // STEP * STEP <= log.end_offset <= BATCHES * STEP
        expected = as_if_never_more(tmp_path / f"expected{step}", log.end_offset // STEP)
        assert facts(log) == facts(expected.logs["topic", 0]), step
        assert not log.recovery.is_damaged, (step, log.recovery)
        again.close()
        expected.close()


def test_an_offset_that_the_log_does_not_hold_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    logs = as_if_never_more(tmp_path, BATCHES)
    log = logs.logs["topic", 0]
    log.delete_records_before(20)
    for offset in (-1, 19, BATCHES * STEP + 1):
        with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.OFFSET_OUT_OF_RANGE):
            logs.truncate_to("topic", 0, offset, NOW_MS)
        assert logs.logs["topic", 0] is log
    shorter = logs.truncate_to("topic", 0, 20, NOW_MS)
    assert (shorter.start_offset, shorter.end_offset) == (20, 20)
    logs.close()


def test_producers_whose_batches_are_deleted_stay_where_all_snapshots_know_more_than_what_stays(
    tmp_path: Path,
) -> None:
    logs = opened(tmp_path, CountedDisk())
    log = logs.logs["topic", 0]
    append(log, batch(9, 0, 0, STEP))
    for number in range(BATCHES):
        append(log, batch(number % 3, 0, number // 3 * STEP, STEP))
    flush(log)
    log.delete_records_before(60)
    for _ in range(2):
        checkpoint(log)
    assert log.segment_count < BATCHES // 4
    assert min(each.offset for each in snapshots(Disk(), log.folder)) > 70
    before = state(log)
    shorter = logs.truncate_to("topic", 0, 70, NOW_MS)
    assert shorter.end_offset == 70
    assert state(shorter)[9] == before[9]
    assert state(shorter).keys() == before.keys()
    assert logs.close()
