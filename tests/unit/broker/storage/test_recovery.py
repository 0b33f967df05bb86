"""What a log is after restarts: clean ones, crashes, torn tails, damaged files."""

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
    state,
)
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)


def written(folder: Path, count: int = 40, *, checkpoint_at: int | None = None) -> PartitionLog:
    """A log of one producer with `count` one-record batches, flushed, perhaps with a checkpoint."""
    log = open_log(folder, config=SMALL)
    for number in range(count):
        append(log, batch(1, 0, number, timestamp=NOW_MS + number))
        if number + 1 == checkpoint_at:
            flush(log)
            checkpoint(log)
    flush(log)
    return log


def crash(log: PartitionLog) -> int:
    """Let go of the files as a kill -9 does; returns the recovery point of the last checkpoint."""
    log.close(clean=False)
    return log.recovery_point


def index_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*index"))}


def test_a_clean_restart_remembers_when_each_producer_last_wrote(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(1, 0, 0), now_ms=NOW_MS)
    append(log, batch(2, 0, 0), now_ms=NOW_MS + 500)
    log.close(clean=True)
    again = open_log(tmp_path, clean=True, recovery_point=2, now_ms=NOW_MS + 10_000)
    assert [(e.producer_id, e.last_append_ms) for e in again.producers.entries()] == [
        (1, NOW_MS),
        (2, NOW_MS + 500),
    ]


def test_replayed_producers_count_as_written_now(tmp_path: Path) -> None:
    log = written(tmp_path)
    crash(log)
    again = open_log(tmp_path, config=SMALL, now_ms=NOW_MS + 5000)
    assert next(again.producers.entries()).last_append_ms == NOW_MS + 5000


def test_what_is_read_back_is_made_durable_before_it_counts(tmp_path: Path) -> None:
    log = written(tmp_path)
    crash(log)
    disk = FaultyDisk()
    again = open_log(tmp_path, config=SMALL, disk=disk)
    assert {segment.log.fd for segment in again._segments.segments} <= set(disk.synced)
    disk = FaultyDisk()
    disk.fdatasync_error = 5
    again.close(clean=False)
    with pytest.raises(OSError, match="Input/output"):
        open_log(tmp_path, config=SMALL, disk=disk)


def test_what_a_failed_fdatasync_left_in_the_page_cache_is_written_again(tmp_path: Path) -> None:
    disk = PowerDisk()
    log = open_log(tmp_path, disk=disk)
    append(log, batch(1, 0, 0))
    flush(log)
    append(log, batch(1, 0, 1))
    disk.fails_to_sync = True
    with pytest.raises(OSError, match="Input/output"):
        flush(log)
    disk.fails_to_sync = False
    again = open_log(tmp_path, disk=disk, recovery_point=crash(log))
    assert append(again, batch(1, 0, 1)).duplicate
    assert again.flushed_end_offset == 2
    point = crash(again)
    disk.power_cut(random.Random(0))
    assert sequences(open_log(tmp_path, disk=disk, recovery_point=point)) == [(0, 1, 0, 0), (1, 1, 0, 1)]


@pytest.mark.parametrize("was_killed_before", [False, True])
def test_a_power_cut_before_the_first_flush_does_not_move_where_a_log_begins(
    tmp_path: Path, was_killed_before: bool
) -> None:
    for seed in range(20):
        folder, disk = tmp_path / str(seed), PowerDisk()
        log = open_log(folder, config=SMALL, disk=disk)
        if was_killed_before:
            crash(log)
            log = open_log(folder, config=SMALL, disk=disk)
        for number in range(40):
            append(log, batch(1, 0, number))
        assert log.segment_count > 2
        disk.power_cut(random.Random(seed))
        again = open_log(folder, config=SMALL, disk=disk)
        assert again.start_offset == 0
        assert again.recovery.is_torn_tail


def test_a_flipped_bit_beyond_the_recovery_point_ends_the_log_there_and_says_so(tmp_path: Path) -> None:
    source = tmp_path / "source"
    crash(written(source, 3))
    name = f"{0:020d}.log"
    one = len(batch(1, 0, 0))
    leader_epoch = range(12, 16)
    for position in range(3 * one):
        folder = tmp_path / f"flip{position}"
        shutil.copytree(source, folder)
        data = bytearray((folder / name).read_bytes())
        data[position] ^= 1 << (position % 8)
        (folder / name).write_bytes(data)
        log = open_log(folder, config=SMALL)
        # The leader epoch, outside the CRC like the offset, can only be seen to be wrong when it goes back.
        if position % one not in leader_epoch or log.end_offset != 3:
            damaged = position // one + (position % one in leader_epoch and log.end_offset > position // one)
            assert log.end_offset == damaged
            assert log.recovery.truncated_at_offset == damaged
            assert log.recovery.truncated_bytes == (3 - damaged) * one
            assert sequences(log) == [(number, 1, 0, number) for number in range(damaged)]
            assert {pid: entry.last_sequence for pid, entry in state(log).items()} == (
                {1: damaged - 1} if damaged else {}
            )
        log.close(clean=False)
        shutil.rmtree(folder)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "odd", "short", "zeroed"])
def test_a_damaged_index_costs_reading_not_correctness(
    tmp_path: Path, clean: bool, suffix: str, damage: str
) -> None:
    log = written(tmp_path, 40, checkpoint_at=40)
    before = state(log)
    log.close(clean=clean)
    for path in tmp_path.glob(f"*{suffix}"):
        data = path.read_bytes()
        if damage == "missing":
            path.unlink()
        else:
            changed = {"empty": b"", "odd": data[:-1], "short": data[:12], "zeroed": bytes(len(data))}
            path.write_bytes(changed[damage])
    again = open_log(tmp_path, config=SMALL, clean=clean, recovery_point=40)
    assert state(again) == before
    assert sequences(again) == [(number, 1, 0, number) for number in range(40)]
    for number in range(40):
        assert again.offset_for_timestamp(NOW_MS + number) == (number, NOW_MS + number, 0)
        again._positions.clear()
        assert again.read(Read(number, 1, 40)).next_offset == number + 1
    assert again.max_timestamp_offset() == (39, NOW_MS + 39, 0)


def test_rebuilt_indexes_equal_those_that_were_written(tmp_path: Path) -> None:
    log = written(tmp_path, 40)
    log.close(clean=True)
    before = index_bytes(tmp_path)
    for path in tmp_path.glob("*index"):
        path.unlink()
    again = open_log(tmp_path, config=SMALL, clean=True, recovery_point=40)
    assert len(again.recovery.rebuilt_indexes) == again.segment_count
    again.close(clean=True)
    assert index_bytes(tmp_path) == before


def test_a_clean_start_rebuilds_no_index_of_a_segment_with_one_large_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(index_interval_bytes=0))
    for _ in range(3):
        append(log, batch(count=2))
        log.roll(NOW_MS)
    log.close(clean=True)
    again = open_log(tmp_path, config=LogConfig(index_interval_bytes=0), clean=True, recovery_point=6)
    assert not again.recovery.rebuilt_indexes


def test_every_flipped_bit_in_an_index_leaves_look_ups_exact(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1500, index_interval_bytes=150)
    source = tmp_path / "source"
    log = open_log(source, config=config)
    for number in range(20):
        append(log, batch(timestamp=NOW_MS + number))
    log.close(clean=True)
    for path in (source / f"{0:020d}.index", source / f"{0:020d}.timeindex"):
        original = path.read_bytes()
        for bit in range(0, 8 * len(original), 29):
            data = bytearray(original)
            data[bit // 8] ^= 1 << (bit % 8)
            path.write_bytes(data)
            again = open_log(source, config=config, clean=True, recovery_point=20)
            for number in range(20):
                again._positions.clear()
                assert again.read(Read(number, 1, 20)).next_offset == number + 1
                assert again.offset_for_timestamp(NOW_MS + number) == (number, NOW_MS + number, 0)
            again.close(clean=False)
        path.write_bytes(original)


def test_a_snapshot_that_knows_more_than_the_log_is_thrown_away(tmp_path: Path) -> None:
    log = written(tmp_path, 40, checkpoint_at=20)
    log.take_snapshot()
    crash(log)
    last = sorted(tmp_path.glob("*.log"))[-1]
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 1)
    again = open_log(tmp_path, config=SMALL, recovery_point=20)
    assert again.end_offset == 39
    assert state(again)[1].last_sequence == 38
    assert append(again, batch(1, 0, 39)).base_offset == 39


def test_a_log_that_is_read_again_for_an_older_snapshot_keeps_the_records_of_all_leader_epochs(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path, config=SMALL)
    for number in range(40):
        append(log, batch(1, 0, number), leader_epoch=number // 20)
    flush(log)
    log.take_snapshot()
    crash(log)
    last = sorted(tmp_path.glob("*.log"))[-1]
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 1)
    again = open_log(tmp_path, config=SMALL)
    assert again.end_offset == 39


def test_a_first_batch_that_is_damaged_takes_no_log_offline_and_keeps_no_segment_from_retention(
    tmp_path: Path,
) -> None:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=200, retention_bytes=0)
    log = open_log(tmp_path, config=config)
    for number in range(40):
        append(log, batch(1, 0, number, timestamp=NOW_MS + number))
    log.close(clean=True)
    for path in tmp_path.glob("*.log"):
        data = bytearray(path.read_bytes())
        data[8:12] = b"\x7f\xff\xff\xff"
        path.write_bytes(data)
    again = open_log(tmp_path, config=config, clean=True, recovery_point=40)
    assert append(again, batch(1, 0, 40, timestamp=NOW_MS + 40)).base_offset == 40
    flush(again)
    # By now too old, but for the last write of the files.
    assert again.apply_retention(NOW_MS + again.config.retention_ms + 100) == 41


class NotingReads(FaultyDisk):
    """Notes the size of the largest read."""

    largest = 0

    def preadv(self, fd: int, buffer: memoryview, position: int, flags: int = 0) -> int:
        self.largest = max(self.largest, len(buffer))
        return super().preadv(fd, buffer, position, flags)


def test_what_is_kept_of_a_damaged_log_never_comes_into_memory_as_a_whole(tmp_path: Path) -> None:
    config, disk = LogConfig(segment_bytes=3 << 20), NotingReads()
    log = open_log(tmp_path, config=config)
    for number in range(12):
        append(log, batch(1, 0, number, value=bytes(500_000)))
    flush(log)
    log.close(clean=False)
    first, second = sorted(tmp_path.glob("*.log"))[:2]
    damaged, dropped = bytearray(first.read_bytes()), second.read_bytes()
    damaged[1000] ^= 1
    first.write_bytes(damaged)
    again = open_log(tmp_path, config=config, disk=disk)
    assert again.end_offset == 0
    assert (tmp_path / f"{first.name}.damaged").read_bytes() == damaged
    assert (tmp_path / f"{second.name}.damaged").read_bytes() == dropped
    assert disk.largest < 1_200_000
