"""A process that ends at any step of a clean leaves the old files or the new ones: the next start agrees."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.ending_disk import MANY, EndingDisk, Killed
from tests.unit.broker.storage.compaction.test_cleaner import (
    COMPACT,
    DAY_MS,
    commit,
    contents,
    damage,
    markers_of,
    settle,
)
from tests.unit.broker.storage.support import (
    NOW_MS,
    append,
    checkpoint,
    clean,
    cover,
    flush,
    keyed,
    open_log,
    state,
)
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.broker.storage.swap import HalfSwappedError, log_files
from tidelog.protocol.records import decode_batch


class FailingDisk(EndingDisk):
    """Fails before it makes names durable too."""

    error = OSError(5, "Input/output error")

    def fsync_directory(self, path: Path) -> None:
        self.change()
        super().fsync_directory(path)


def prepared(folder: Path, disk: Disk | None = None) -> PartitionLog:
    """Three closed segments that become one, of two producers."""
    log = open_log(folder, config=COMPACT, disk=disk)
    for number in range(3):
        append(log, keyed([(b"k", b"%d" % number), (b"k%d" % number, b"v")], 1, 0, number * 2))
        append(log, keyed([(b"k", b"other")], 2, 0, number))
        log.roll(NOW_MS)
    append(log, keyed([(b"active", b"v")]))
    settle(log, rolls=False)
    cover(log, log.compaction.cleanable(COMPACT, log.end_offset, NOW_MS))
    checkpoint(log)  # The index files of the active segment are whole once it rests.
    return log


OLD = [
    offset_key_value
    for number in range(3)
    for offset_key_value in (
        (number * 3, b"k", b"%d" % number),
        (number * 3 + 1, b"k%d" % number, b"v"),
        (number * 3 + 2, b"k", b"other"),
    )
] + [(9, b"active", b"v")]
NEW = [(1, b"k0", b"v"), (4, b"k1", b"v"), (7, b"k2", b"v"), (8, b"k", b"other"), (9, b"active", b"v")]


def test_a_process_that_ends_at_any_step_leaves_the_old_segments_or_the_new_one(tmp_path: Path) -> None:
    outcomes = []
    for left in range(1000):
        disk, folder = EndingDisk(), tmp_path / str(left)
        log = prepared(folder, disk)
        expected, point = state(log), log.recovery_point
        disk.left = left
        try:
            clean(log)
        except Killed:
            pass
        else:
            break
        log._segments.close()
        assert not damage(folder, 10)
        files = log_files(Disk(), folder)
        again = open_log(folder, config=COMPACT, recovery_point=point, start_offset=0)
        assert not again.recovery.is_damaged, (left, again.recovery)
        assert list(files) == [segment.base_offset for segment in again._segments.segments]
        assert state(again) == expected
        assert not [path for path in folder.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]
        outcomes.append(contents(again))
        assert outcomes[-1] in (OLD, NEW)
        again._segments.close()
        shutil.rmtree(folder)
    assert OLD in outcomes
    assert NEW in outcomes
    assert outcomes == sorted(outcomes, key=len, reverse=True)


@pytest.mark.parametrize("kind", [EndingDisk, FailingDisk])
def test_no_index_names_an_aborted_transaction_whose_marker_is_gone(
    tmp_path: Path, kind: type[EndingDisk]
) -> None:
    """Whatever step of a clean is the last: its producer's later records would be hidden."""
    outcomes = set()
    for left in range(1000):
        disk, folder = kind(), tmp_path / str(left)
        log = open_log(folder, config=COMPACT, disk=disk)
        commit(log, b"k", 1, 0, commits=False)
        commit(log, b"l", 2, 0, commits=False)
        commit(log, b"k", 1, 1)
        clean(settle(log))
        append(log, keyed([(b"k", b"v")]))
        settle(log)
        cover(log, log.compaction.cleanable(COMPACT, log.end_offset, NOW_MS))
        expected, point = state(log), log.recovery_point
        disk.left = left
        try:
            clean(log, now_ms=NOW_MS + 2 * DAY_MS)
        except (Killed, OSError):
            log.compaction.finish_swap(log._segments.segments, None)
        disk.left, is_done = MANY, disk.left >= 0
        logs = [log]
        logs.append(open_log(folder, config=COMPACT, recovery_point=point, start_offset=0))
        assert state(logs[1]) == expected
        for each in logs[kind is EndingDisk :]:
            aborted = each.aborted_transactions(0, each.end_offset)
            has_marker = (1, 1) in markers_of(each)
            assert aborted == [(1, 0), (2, 2)] or (aborted == [(2, 2)]), left
            assert has_marker or (1, 0) not in aborted
            outcomes.add((has_marker, len(aborted)))
            each._segments.close()
        shutil.rmtree(folder)
        if is_done:
            break
    assert outcomes == {(True, 2), (True, 1), (False, 1)}


def test_where_a_slow_read_of_an_old_segment_ended_no_read_of_the_new_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = prepared(tmp_path)
    old = log._segments.segments[0]
    read = old.read

    def read_slowly(*arguments: Any) -> Any:
        found = read(*arguments)
        clean(log)
        return found

    monkeypatch.setattr(old, "read", read_slowly)
    offset = log.read(Read(0, 1, log.end_offset)).next_offset
    assert old not in log._segments.segments
    (records,) = log.read(Read(offset, 1, log.end_offset)).records
    assert next(record.offset for record in decode_batch(records)) == 4


def test_an_error_of_the_disk_leaves_the_log_as_it_was_or_takes_it_offline(tmp_path: Path) -> None:
    """Readers of the old segments go on in both cases; only a start finds what to do with half a swap."""
    kinds = set()
    for left in range(1000):
        disk, folder = FailingDisk(), tmp_path / str(left)
        log = prepared(folder, disk)
        disk.left = left
        try:
            clean(log)
        except OSError as error:
            kinds.add(type(error))
        else:
            break
        disk.left = MANY
        log.compaction.finish_swap(log._segments.segments, None)
        assert contents(log) in (OLD, NEW)
        log._segments.close()
    assert kinds == {OSError, HalfSwappedError}


@pytest.mark.parametrize("is_read", [True, False])
def test_a_damaged_swap_file_is_kept_aside_and_the_old_segments_stay(tmp_path: Path, is_read: bool) -> None:
    log = prepared(tmp_path)
    log.close(clean=True)
    swap = tmp_path / f"{0:020d}.log.swap"
    swap.write_bytes((tmp_path / f"{0:020d}.log").read_bytes()[:-1])
    if is_read:
        assert {path.suffix for path in log_files(Disk(), tmp_path).values()} == {".log"}
        assert swap.exists()
    again = open_log(tmp_path, config=COMPACT, clean=True)
    assert "is damaged" in again.recovery.file_problems[0]
    assert contents(again) == OLD
    assert not swap.exists()


class NoNameDisk(EndingDisk):
    """Has no space for one more name after so many changes, and again after that."""

    def rename(self, old: Path, new: Path) -> None:
        self.left -= 1
        if self.left == -1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        Disk.rename(self, old, new)

    def change(self) -> None:
        pass


def test_a_full_disk_that_refuses_a_name_leaves_the_old_segments_in_service(tmp_path: Path) -> None:
    """But not where the new segment has taken one of its names: a start has to complete that."""
    offline = []
    for left in range(1000):
        disk, folder = NoNameDisk(), tmp_path / str(left)
        log = prepared(folder, disk)
        expected, point = state(log), log.recovery_point
        disk.left = left
        try:
            clean(log)
        except HalfSwappedError:
            offline.append(left)
        except OSError:
            log.compaction.finish_swap(log._segments.segments, None)
            assert contents(log) in (OLD, NEW)
            assert not list(folder.glob("*.swap"))
            append(log, keyed([(b"more", b"v")]))
            clean(log)
            assert contents(log) == [*NEW, (10, b"more", b"v")]
        log._segments.close()
        again = open_log(folder, config=COMPACT, recovery_point=point, start_offset=0)
        assert not again.recovery.is_damaged
        assert state(again) == expected
        assert contents(again)[: len(NEW)] == NEW
        again._segments.close()
        if disk.left >= 0:
            break
    assert len(offline) == 2, offline


class FullDisk(Disk):
    """Has no space for small files while `is_full`, and still some in the files that it has."""

    is_full = False

    def replace_file(self, *arguments: Any, **named: Any) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().replace_file(*arguments, **named)


def test_a_clean_that_a_full_disk_ends_keeps_no_flush_from_its_records(tmp_path: Path) -> None:
    disk = FullDisk()
    log = prepared(tmp_path, disk)
    before = contents(log)
    disk.is_full = True
    with pytest.raises(OSError, match="No space"):
        clean(log)
    log.compaction.finish_swap(log._segments.segments[:3], None)
    append(log, keyed([(b"more", b"v")]))
    flush(log)
    assert contents(log) == [*before, (log.end_offset - 1, b"more", b"v")]
    disk.is_full = False
    assert clean(log) is not None
    assert log.segment_count == 2
    assert log.begin_flush() is None
