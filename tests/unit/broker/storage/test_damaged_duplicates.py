"""A batch is acknowledged again only while the log holds its bytes."""

import random
import shutil
from pathlib import Path

import pytest

from tests.unit.broker.storage.lost import CONFIG, ONE, answer, reopened, resent
from tests.unit.broker.storage.support import NOW_MS, append, batch, open_log
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.protocol.errors import ErrorCode

SEED = 5
REMEMBERED = range(33, 38)
SEGMENT = f"{30:020d}.log"
REFUSED = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose producer 1 wrote the offsets up to 37; the last of them lie in a closed segment."""
    folder = tmp_path_factory.mktemp("sound") / "topic-0"
    log = open_log(folder, config=CONFIG)
    for number in range(38):
        append(log, batch(1, 0, number, timestamp=NOW_MS + number))
    for number in range(4):
        append(log, batch(timestamp=NOW_MS + number))
    assert log.close(clean=True)
    return folder


def damaged(sound: Path, tmp_path: Path, data: bytes) -> PartitionLog:
    folder = tmp_path / "topic-0"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    (folder / SEGMENT).write_bytes(data)
    return reopened(folder)


def assert_acknowledged_is_there(log: PartitionLog, context: object) -> int:
    """What was refused is counted."""
    refused = 0
    for number in REMEMBERED:
        answered = resent(log, number)
        if answered == REFUSED:
            refused += 1
            assert answer(log, number) == ErrorCode.CORRUPT_MESSAGE, (context, number)
        else:
            assert answered == number
            found = answer(log, number)
            assert isinstance(found, list), (context, number)
            assert found[0] == number, (context, number)
    return refused


def test_a_batch_whose_bytes_are_damaged_is_not_acknowledged_again(sound: Path, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    whole = (sound / SEGMENT).read_bytes()
    refused = 0
    for _ in range(60):
        data = bytearray(whole)
        at = rng.randrange(3 * ONE, 8 * ONE)
        data[at] ^= 1 << rng.randrange(8)
        log = damaged(sound, tmp_path, bytes(data))
        refused += assert_acknowledged_is_there(log, f"seed {SEED}, byte {at}")
        log.close(clean=False)
    assert refused >= 60 // 2  # The leader epoch, 4 bytes of each batch, alone is not checked.


def test_zeros_in_a_closed_segment_are_no_batch_to_acknowledge(sound: Path, tmp_path: Path) -> None:
    whole = (sound / SEGMENT).read_bytes()
    for first in range(10):
        data = whole[: first * ONE] + bytes(len(whole) - first * ONE)
        log = damaged(sound, tmp_path, data)
        lost = [number for number in REMEMBERED if number >= 30 + first]
        assert assert_acknowledged_is_there(log, first) == len(lost)
        log.close(clean=False)


def test_a_file_of_another_log_holds_no_batch_to_acknowledge(sound: Path, tmp_path: Path) -> None:
    log = open_log(tmp_path / "other", config=CONFIG)
    for number in range(42):
        append(log, batch(2, 0, number, timestamp=NOW_MS + number))
    log.close(clean=True)
    log = damaged(sound, tmp_path, (tmp_path / "other" / SEGMENT).read_bytes())
    assert [resent(log, number) for number in REMEMBERED] == [REFUSED] * len(REMEMBERED)
    log.close(clean=False)


def test_a_deleted_batch_is_still_recognised(sound: Path, tmp_path: Path) -> None:
    """Whoever deleted its records did not undo that they were written."""
    log = damaged(sound, tmp_path, (sound / SEGMENT).read_bytes())
    log.delete_records_before(40)
    assert [resent(log, number) for number in REMEMBERED] == list(REMEMBERED)
    log.close(clean=False)
