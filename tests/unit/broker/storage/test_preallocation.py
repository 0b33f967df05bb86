"""With `preallocate` a growing file is longer than its batches, and nobody takes the rest for damage."""

import errno
import os
import random
import shutil
from pathlib import Path

import pytest

from tests.unit.broker.storage.power import PowerDisk
from tests.unit.broker.storage.support import (
    NOW_MS,
    FaultyDisk,
    append,
    batch,
    checkpoint,
    flush,
    open_log,
    sequences,
)
from tidelog.broker.storage.integrity import RESERVED_BYTES
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.cli.dump_log import dump
from tidelog.pipeline.segments.segment_files import SegmentFile

PREALLOCATED = LogConfig(preallocate=True, segment_bytes=1000, index_interval_bytes=200)
ONE = len(batch(1, 0, 0))
LONG_AGO_MS = NOW_MS - 1_000_000


def write(log: PartitionLog, first: int, count: int) -> None:
    for number in range(first, first + count):
        append(log, batch(1, 0, number))
    flush(log)


def sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in sorted(folder.glob("*.log"))]


def killed(folder: Path) -> Path:
    """The files as they are while a broker writes."""
    return Path(shutil.copytree(folder, folder.parent / "killed" / folder.name))


def expected(count: int) -> list[tuple[int, int, int, int]]:
    return [(number, 1, 0, number) for number in range(count)]


def test_only_the_file_that_grows_is_longer_than_its_batches_and_takes_no_space(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=PREALLOCATED)
    write(log, 0, 15)
    *closed, growing = log._segments.segments
    assert closed
    assert sizes(tmp_path) == [*(segment.size_bytes for segment in closed), RESERVED_BYTES]
    assert log.size_bytes == 15 * ONE
    assert os.stat(growing.path).st_blocks * 512 < RESERVED_BYTES // 2
    assert sequences(log) == expected(15)


def test_runs_of_batches_are_reserved_for_too(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(preallocate=True))
    append(log, batch(1, 0, 0))
    log._segments.active.cut_back()
    assert log.append_run([batch(1, 0, number) for number in (1, 2)], 0, NOW_MS) is not None
    assert sizes(tmp_path) == [RESERVED_BYTES]


@pytest.mark.parametrize("clean", [True, False])
def test_a_stop_ends_the_file_after_its_batches_and_keeps_the_time_of_the_last_write(
    tmp_path: Path, clean: bool
) -> None:
    log = open_log(tmp_path, config=LogConfig(preallocate=True))
    write(log, 0, 3)
    checkpoint(log)
    path = log._segments.active.path
    os.utime(path, ns=(LONG_AGO_MS * 1_000_000,) * 2)
    log.close(clean=clean)
    assert sizes(tmp_path) == [3 * ONE]
    assert path.stat().st_mtime_ns == LONG_AGO_MS * 1_000_000


def test_after_a_clean_stop_the_size_is_durable_also_where_all_batches_were(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path, config=LogConfig(preallocate=True), disk=disk)
    write(log, 0, 3)
    for _ in range(3):
        checkpoint(log)
    disk.synced.clear()
    log.close(clean=True)
    assert log._segments.active.log.fd in disk.synced


def test_a_closed_segment_has_its_size_durably_before_the_recovery_point_passes_it(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path, config=PREALLOCATED, disk=disk)
    append(log, batch(1, 0, 0))
    flush(log)
    log.roll(NOW_MS)
    disk.synced.clear()
    checkpoint(log)
    assert log._segments.segments[0].log.fd in disk.synced
    assert log.recovery_point == 1


@pytest.mark.parametrize("point", [0, 15])
def test_what_was_reserved_is_no_damage_after_a_kill(tmp_path: Path, point: int) -> None:
    log = open_log(tmp_path / "log", config=PREALLOCATED)
    write(log, 0, 15)
    if point:
        checkpoint(log)
    folder = killed(tmp_path / "log")
    again = open_log(folder, config=PREALLOCATED, recovery_point=point)
    assert not again.recovery.is_damaged
    assert (again.recovery.truncated_bytes, again.recovery.kept_aside) == (0, [])
    assert sum(sizes(folder)) == 15 * ONE
    write(again, 15, 1)
    assert sequences(again) == expected(16)


def test_zeros_in_place_of_durable_batches_are_damage_all_the_same(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", config=LogConfig(preallocate=True))
    write(log, 0, 5)
    checkpoint(log)
    folder = killed(tmp_path / "log")
    (path,) = folder.glob("*.log")
    path.write_bytes(path.read_bytes()[: 3 * ONE] + bytes(RESERVED_BYTES - 3 * ONE))
    again = open_log(folder, config=LogConfig(preallocate=True), recovery_point=5)
    assert again.recovery.is_damaged
    assert again.recovery.below_recovery_point


@pytest.mark.parametrize("seed", range(30))
def test_a_power_cut_takes_nothing_that_was_flushed(tmp_path: Path, seed: int) -> None:
    chance, disk = random.Random(seed), PowerDisk()
    count = flushed = point = 0
    for _ in range(4):
        log = open_log(tmp_path, config=PREALLOCATED, disk=disk, recovery_point=point)
        assert flushed <= log.end_offset <= count
        assert sequences(log) == expected(log.end_offset)
        count = flushed = log.end_offset
        for _ in range(chance.randrange(20)):
            append(log, batch(1, 0, count))
            count += 1
            if chance.random() < 0.5:
                flush(log)
                flushed = count
            if chance.random() < 0.2:
                checkpoint(log)
        point = log.recovery_point
        disk.power_cut(chance)


def test_a_batch_is_stored_where_nothing_can_be_reserved(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path, config=LogConfig(preallocate=True), disk=disk)
    disk.truncate_error = errno.ENOSPC
    write(log, 0, 2)
    assert sizes(tmp_path) == [2 * ONE]
    assert log.failure is None


def test_readers_of_the_files_of_a_running_broker_end_after_its_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = open_log(tmp_path, config=LogConfig(preallocate=True))
    write(log, 0, 5)
    (path,) = tmp_path.glob("*.log")
    assert dump(path, with_records=False)
    assert capsys.readouterr().out.endswith(f"5 batches, 5 records, {5 * ONE} bytes\n")
    with SegmentFile(path) as file:
        assert file.end_offset() == 5
        assert [batch.header.base_offset for batch in file.walk()] == list(range(5))
        assert b"".join(file.read(1, 5)) == path.read_bytes()[ONE : 5 * ONE]
