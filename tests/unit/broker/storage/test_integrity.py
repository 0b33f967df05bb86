"""What a disk changed since it was written is refused, wherever a reader begins; all else is served."""

import random
import shutil
from pathlib import Path

import pytest

from tests.unit.broker.storage.support import NOW_MS, append, batch, flush, open_log
from tidelog.broker.storage import segment_reader
from tidelog.broker.storage.integrity import good_prefix
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.protocol.errors import ApiError, ErrorCode

BATCHES = 5
ONE = len(batch(1, 0, 0))
CONFIG = LogConfig(segment_bytes=BATCHES * ONE, index_interval_bytes=2 * ONE)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Two closed segments of five batches, and one batch more."""
    folder = tmp_path / "topic-0"
    log = open_log(folder, config=CONFIG)
    for number in range(2 * BATCHES + 1):
        append(log, batch(1, 0, number, timestamp=NOW_MS + number, value=b"%020d" % number))
    flush(log)
    assert log.close(clean=True)
    return folder


def reopened(folder: Path) -> PartitionLog:
    return open_log(folder, config=CONFIG, clean=True, recovery_point=2 * BATCHES + 1)


def without_epochs(data: bytes) -> bytes:
    """The leader epoch is the one part of a batch that nothing can check."""
    changed = bytearray(data)
    for start in range(0, len(data), ONE):
        changed[start + 12 : start + 16] = bytes(4)
    return bytes(changed)


def test_every_flipped_bit_is_refused_from_wherever_one_reads(written: Path, tmp_path: Path) -> None:
    name = f"{BATCHES:020d}.log"
    good = (written / name).read_bytes()
    chance = random.Random(11)
    for position in range(len(good)):
        folder = tmp_path / "damaged" / written.name
        shutil.copytree(written, folder)
        data = bytearray(good)
        data[position] ^= 1 << chance.randrange(8)
        (folder / name).write_bytes(data)
        log = reopened(folder)
        offsets = list(range(BATCHES, 2 * BATCHES))
        chance.shuffle(offsets)
        refused: set[tuple[int, ErrorCode]] = set()
        for offset in offsets:
            size = chance.choice([1, 2 * ONE, len(good)])
            try:
                found = log.read(Read(offset, size, log.end_offset))
            except ApiError as error:
                refused.add((offset, error.code))
                continue
            records = b"".join(found.records)
            at = (offset - BATCHES) * ONE
            assert records, position
            assert without_epochs(records) == without_epochs(good[at : at + len(records)]), position
            assert found.next_offset == offset + len(records) // ONE
        if position % ONE not in range(12, 16):
            assert (BATCHES + position // ONE, ErrorCode.CORRUPT_MESSAGE) in refused, position
        assert log.read(Read(0, 1 << 20, log.end_offset)).next_offset == BATCHES
        assert log.read(Read(2 * BATCHES, 1, log.end_offset)).next_offset == 2 * BATCHES + 1
        log.close(clean=False)
        shutil.rmtree(folder)


def test_what_was_checked_once_is_not_checked_again(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = reopened(written)
    checked: list[int] = []

    def counted(data: memoryview, first_offset: int, cleaned_offset: int) -> tuple[int, int, str]:
        checked.append(first_offset)
        return good_prefix(data, first_offset, cleaned_offset)

    monkeypatch.setattr(segment_reader, "good_prefix", counted)
    for _ in range(3):
        offset = 0
        while offset < log.end_offset:
            offset = log.read(Read(offset, 2 * ONE, log.end_offset)).next_offset
    assert checked == [0, 2, 4, 5, 7, 9]
    append(log, batch(1, 0, 2 * BATCHES + 1))
    assert log.read(Read(2 * BATCHES, 1 << 20, log.end_offset)).next_offset == 2 * BATCHES + 2
    assert len(checked) == 6
    log.close(clean=False)


def test_a_long_read_of_unchecked_batches_is_served_in_bounded_pieces(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_reader, "_VERIFIED_AT_ONCE", 3 * ONE)
    log = reopened(written)
    assert log.read(Read(0, 1 << 20, log.end_offset)).next_offset == 3
    assert log.read(Read(3, 1 << 20, log.end_offset)).next_offset == BATCHES
    assert log.read(Read(0, 1 << 20, log.end_offset)).next_offset == BATCHES
    log.close(clean=False)


@pytest.mark.parametrize("damage", [bytes(24), b"\xff" * 8, (9).to_bytes(8, "big")])
def test_a_closed_segment_that_begins_with_no_batch_any_more_is_refused(written: Path, damage: bytes) -> None:
    log = reopened(written)
    wanted = Read(BATCHES, 1 << 20, log.end_offset)
    assert log.read(wanted).next_offset == 2 * BATCHES
    with (written / f"{BATCHES:020d}.log").open("r+b") as file:
        file.write(damage)
    with pytest.raises(ApiError) as refused:
        log.read(wanted)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    log.close(clean=False)
