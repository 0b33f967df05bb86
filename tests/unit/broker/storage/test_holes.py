"""A hole in a log is found when it is opened, and never skipped in silence."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.broker.storage.lost import (
    BATCHES,
    CONFIG,
    ONE,
    Loss,
    answer,
    losses,
    reopened,
    resent,
    written,
)
from tests.unit.broker.storage.support import NOW_MS, FaultyDisk, append, batch, open_log, sequences
from tidelog.broker.storage.holes import Hole
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import NO_OFFSET

END = BATCHES + 5
LOST = ErrorCode.CORRUPT_MESSAGE


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "topic-0"
    written(folder)
    return folder


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crashed") / "topic-0"
    written(folder, clean=False)
    return folder


def damaged(sound: Path, tmp_path: Path, loss: Loss) -> Path:
    folder = tmp_path / "topic-0"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    loss.happen_to(folder)
    return folder


def assert_only_the_hole_is_refused(log: PartitionLog, loss: Loss) -> None:
    hole = Hole(loss.first_offset, loss.end_offset)
    assert log.holes == [hole], loss
    assert log.recovery.is_damaged
    for offset in range(END):
        found = answer(log, offset)
        if hole.overlaps(offset, offset):
            assert found is LOST, (loss, offset)
        else:
            assert isinstance(found, list), (loss, offset)
            assert found == list(range(offset, offset + len(found))), (loss, offset)
            assert found, (loss, offset)
    assert (log.start_offset, log.end_offset) == (0, END)


def all_cuts(folder: Path) -> list[Loss]:
    """Every cut between two batches, every deletion, and two hundred cuts anywhere."""
    chance = random.Random(3)
    anywhere = [loss for loss in losses(folder, range(10 * ONE)) if loss.size is not None]
    return [*losses(folder), *chance.sample(anywhere, 200)]


@pytest.mark.parametrize("clean", [True, False])
def test_without_a_snapshot_the_replay_passes_a_hole_and_keeps_what_follows(
    sound: Path, crashed: Path, tmp_path: Path, clean: bool
) -> None:
    for loss in all_cuts(sound)[:40]:
        if clean or (loss.size, loss.first_offset) != (None, 0):
            folder = damaged(sound if clean else crashed, tmp_path, loss)
            for path in folder.glob("*.snapshot"):
                path.write_bytes(path.read_bytes()[:50])
            log = reopened(folder, clean=clean)
            assert_only_the_hole_is_refused(log, loss)
            assert append(log, batch(1, 0, END)).base_offset == END
            log.close(clean=False)


def test_deleting_the_records_up_to_the_end_of_a_hole_accepts_the_loss(sound: Path, tmp_path: Path) -> None:
    for loss in losses(sound):
        folder = damaged(sound, tmp_path, loss)
        log = reopened(folder)
        if loss.first_offset < loss.end_offset - 1:
            log.delete_records_before(loss.end_offset - 1)
            assert answer(log, loss.end_offset - 1) is LOST
        assert log.delete_records_before(loss.end_offset) == loss.end_offset
        assert not log.holes
        assert sequences(log) == [(offset, 1, 0, offset) for offset in range(loss.end_offset, END)]
        assert answer(log, loss.first_offset) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.offset_for_timestamp(NOW_MS) == (loss.end_offset, NOW_MS + loss.end_offset, 0)
        assert resent(log, 42) == 42
        assert resent(log, loss.first_offset) == NO_OFFSET
        assert log.close(clean=True)
        again = reopened(folder, start_offset=loss.end_offset)
        assert not again.holes
        assert not again.recovery.is_damaged
        assert again.start_offset == loss.end_offset
        again.close(clean=False)


def test_a_search_by_time_does_not_pass_a_hole(sound: Path, tmp_path: Path) -> None:
    log = reopened(damaged(sound, tmp_path, Loss(f"{10:020d}.log", 4 * ONE, 14, 20)))
    assert log.offset_for_timestamp(NOW_MS + 13) == (13, NOW_MS + 13, 0)
    for timestamp in (14, 20, 44, 1000):
        with pytest.raises(ApiError) as caught:
            log.offset_for_timestamp(NOW_MS + timestamp)
        assert caught.value.code is LOST
        assert "the records at offsets 14 to 19 are lost" in caught.value.message
    with pytest.raises(ApiError):
        log.max_timestamp_offset()
    log.delete_records_before(20)
    assert log.offset_for_timestamp(NOW_MS + 14) == (20, NOW_MS + 20, 0)
    assert log.max_timestamp_offset() == (44, NOW_MS + 44, 0)


def test_retention_does_not_carry_the_start_of_the_log_over_a_hole(sound: Path, tmp_path: Path) -> None:
    log = reopened(damaged(sound, tmp_path, Loss(f"{10:020d}.log", 4 * ONE, 14, 20)))
    size = log.size_bytes
    log.reconfigure(replace(CONFIG, retention_bytes=size - 10 * ONE))
    log.apply_retention(NOW_MS)
    assert log.start_offset == 10
    log.reconfigure(replace(CONFIG, retention_bytes=size - 14 * ONE))
    log.apply_retention(NOW_MS)
    assert log.start_offset == 14
    assert answer(log, 14) is LOST


def test_a_segment_that_leaves_while_it_is_read_is_out_of_range_and_no_hole(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "topic-0"
    shutil.copytree(sound, folder)
    log = reopened(folder)
    check = log._check_holds

    def check_before(offset: int) -> None:
        check(offset)
        log.delete_records_before(20)
        log._segments.drop(2, [])

    monkeypatch.setattr(log, "_check_holds", check_before)
    assert answer(log, 5) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_clean_start_looks_only_at_the_ends_of_closed_segments(tmp_path: Path) -> None:
    """However many batches a closed segment holds, some preads tell where it ends."""
    reads = []
    for size in (50, 500):
        folder = tmp_path / str(size)
        config = replace(CONFIG, segment_bytes=size * ONE, index_interval_bytes=8 * ONE)
        log = open_log(folder, config=config)
        for number in range(3 * size):
            append(log, batch(1, 0, number, timestamp=NOW_MS + number))
        assert log.close(clean=True)
        disk = CountingDisk()
        again = open_log(folder, config=config, disk=disk, clean=True, recovery_point=3 * size)
        assert not again.recovery.is_damaged
        reads.append((disk.reads, disk.read_bytes))
        again.close(clean=False)
    (few, few_bytes), (many, many_bytes) = reads
    assert many <= few + 20
    assert many_bytes < few_bytes + 20_000


class CountingDisk(FaultyDisk):
    def __init__(self) -> None:
        super().__init__()
        self.reads = self.read_bytes = 0

    def preadv(self, fd: int, buffer: memoryview, position: int, flags: int = 0) -> int:
        self.reads += 1
        count = super().preadv(fd, buffer, position, flags)
        self.read_bytes += count
        return count
