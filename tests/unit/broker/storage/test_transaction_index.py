"""The index of aborted transactions: Kafka's bytes, no file without need, made anew when it is damaged."""

import errno
from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest

from tests.unit.broker.storage.support import (
    FaultyDisk,
    append,
    append_own,
    append_transactional,
    batch,
    checkpoint,
    flush,
    marker,
    open_log,
)
from tidelog.broker.storage.disk import ColdRead, Disk
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.open_transactions import EndedTransaction
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.broker.storage.transaction_index import TransactionIndex, decode_entries
from tidelog.protocol.errors import ApiError, ErrorCode

CONFIG = LogConfig(segment_bytes=600)
FIRST = EndedTransaction(7, 0, 9, 10)
SECOND = EndedTransaction(8, 3, 12, 13)


def index_of(folder: Path, *entries: EndedTransaction) -> TransactionIndex:
    index = TransactionIndex(Disk(), folder / "0.log")
    index.load(0)
    for entry in entries:
        index.append(entry)
    return index


def written_log(folder: Path, *, clean: bool) -> PartitionLog:
    """Aborted transactions in several segments, one of them open over two, and one left open."""
    log = open_log(folder, config=CONFIG)
    sequences = dict.fromkeys((1, 2, 3), 0)
    for number in range(24):
        producer_id = number % 3 + 1
        append_transactional(log, producer_id, sequences[producer_id], 2)
        sequences[producer_id] += 2
        append(log, batch())
        if number % 4 == 3:
            append_own(log, marker(producer_id, commits=number % 8 == 3))
    flush(log)
    checkpoint(log)
    log.close(clean)
    return log


def entries_of(folder: Path) -> dict[str, list[EndedTransaction]]:
    return {path.name: decode_entries(path.read_bytes())[0] for path in sorted(folder.glob("*.txnindex"))}


def test_an_entry_is_kafkas(tmp_path: Path) -> None:
    index = index_of(tmp_path, FIRST, SECOND)
    index.write_out()
    index.sync()
    data = (tmp_path / "0.txnindex").read_bytes()
    assert data == pack(">hqqqq", 0, 7, 0, 9, 10) + pack(">hqqqq", 0, 8, 3, 12, 13)
    assert decode_entries(data) == ([FIRST, SECOND], "")


def test_a_segment_without_an_aborted_transaction_has_no_file(tmp_path: Path) -> None:
    index = index_of(tmp_path)
    index.write_out_whole()
    index.sync()
    index.leave_memory()
    assert index.aborted(0, 100) == ([], False)
    log = open_log(tmp_path / "log", config=CONFIG)
    append_transactional(log, 1, 0)
    append_own(log, marker(1))
    log.close(clean=True)
    assert not entries_of(tmp_path / "log")


@pytest.mark.parametrize(
    "bad",
    [
        pack(">hqqqq", 1, 9, 14, 20, 21),
        pack(">hqqqq", 0, 9, 20, 20, 21),
        pack(">hqqqq", 0, 9, 3, 12, 13),
        pack(">hqqqq", 0, 9, 3, 14, 12),
        bytes(34),
        bytes(33),
    ],
    ids=["version", "empty", "not-behind", "stable-end-back", "zeros", "cut-off"],
)
def test_entries_end_before_bytes_that_are_none(bad: bytes) -> None:
    good = pack(">hqqqq", 0, 7, 0, 9, 10) + pack(">hqqqq", 0, 8, 3, 12, 13)
    found, problem = decode_entries(good + bad)
    assert found == [FIRST, SECOND]
    assert problem


def test_a_marker_that_is_read_again_is_entered_once(tmp_path: Path) -> None:
    index = index_of(tmp_path, FIRST, SECOND)
    index.append(FIRST)
    index.append(SECOND)
    assert index.count == 2
    index.keep_before(12)
    assert (index.count, index.known_before(12)) == (1, (1, index.crc))


def delete(path: Path) -> None:
    path.unlink()


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[:-size])


def flip(position: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)

    return damage


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("segment", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize(
    "damage",
    [delete, cut(1), cut(34), flip(0), flip(9), flip(17)],
    ids=["deleted", "cut", "entry-lost", "version", "producer", "first-offset"],
)
def test_a_damaged_index_is_rebuilt_from_the_log(
    tmp_path: Path, damage: Callable[[Path], None], segment: int, clean: bool
) -> None:
    log = written_log(tmp_path, clean=clean)
    expected = entries_of(tmp_path)
    assert len(expected) >= 2
    damage(sorted(tmp_path.glob("*.txnindex"))[segment])
    again = open_log(tmp_path, config=CONFIG, clean=clean, recovery_point=log.recovery_point)
    assert again.aborted_transactions(0, again.end_offset) == [
        (entry.producer_id, entry.first_offset) for entries in expected.values() for entry in entries
    ]
    assert again.recovery.rebuilt_indexes
    again.close(clean=True)
    assert entries_of(tmp_path) == expected
    last = open_log(tmp_path, config=CONFIG, clean=True)
    assert not last.recovery.rebuilt_indexes


def test_an_intact_index_is_not_rebuilt(tmp_path: Path) -> None:
    log = written_log(tmp_path, clean=True)
    assert not open_log(tmp_path, config=CONFIG, clean=True).recovery.rebuilt_indexes
    assert not open_log(tmp_path, config=CONFIG, recovery_point=log.recovery_point).recovery.rebuilt_indexes


def test_an_index_is_deleted_with_its_segment_and_its_reader_does_not_treat_all_as_committed(
    tmp_path: Path,
) -> None:
    log = written_log(tmp_path, clean=True)
    again = open_log(tmp_path, config=CONFIG, clean=True)
    for _ in range(2):
        again.take_snapshot()
    again.read(Read(0, 10_000, again.end_offset))
    again.delete_records_before(again.flushed_end_offset)
    with pytest.raises(ApiError, match="0 was asked for"):
        again.aborted_transactions(0, again.end_offset)
    while again.drop_segments():
        pass
    for path in again.take_deleted_files():
        path.unlink()
    assert again.segment_count == 1 < log.segment_count
    assert {path.stem for path in tmp_path.glob("*.txnindex")} <= {
        path.stem for path in tmp_path.glob("*.log")
    }


def test_a_look_up_on_cold_pages_says_so_and_reads_them_in_a_thread(tmp_path: Path) -> None:
    log = written_log(tmp_path, clean=True)
    disk = FaultyDisk()
    again = open_log(tmp_path, config=CONFIG, disk=disk, clean=True)
    disk.cold = True
    with pytest.raises(ColdRead):
        again.aborted_transactions(0, log.end_offset, nowait=True)
    expected = [entry for entries in entries_of(tmp_path).values() for entry in entries]
    assert len(again.aborted_transactions(0, log.end_offset)) == len(expected)


def test_an_index_that_cannot_be_read_is_an_error_and_no_empty_list(tmp_path: Path) -> None:
    log = written_log(tmp_path, clean=True)
    disk = FaultyDisk()
    again = open_log(tmp_path, config=CONFIG, disk=disk, clean=True)
    disk.read_error = errno.EIO
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.KAFKA_STORAGE_ERROR):
        again.aborted_transactions(0, log.end_offset)
