"""`tidelog log dump` on indexes and snapshots."""

from pathlib import Path

import pytest

from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.broker.storage.producer_table import ProducerTable
from tidelog.broker.storage.snapshot import snapshot_path, write_snapshot
from tidelog.broker.storage.transaction_index import TRANSACTION_ENTRY
from tidelog.cli.main import main

NOW_MS = 1_700_000_000_000


def test_an_offset_index_shows_offsets_as_the_log_has_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{1000:020d}.index"
    path.write_bytes(OFFSET_ENTRY.pack(5, 4096) + OFFSET_ENTRY.pack(90, 8192))
    assert main(["log", "dump", str(path)]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["OFFSET", "POSITION"],
        ["1005", "4096"],
        ["1090", "8192"],
    ]


def test_a_time_index_shows_times_and_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{1000:020d}.timeindex"
    path.write_bytes(TIME_ENTRY.pack(NOW_MS, 5))
    assert main(["log", "dump", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "2023-11-14T22:13:20.000Z",
        str(NOW_MS),
        "1005",
    ]


def test_a_transaction_index_shows_aborted_transactions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{1000:020d}.txnindex"
    path.write_bytes(TRANSACTION_ENTRY.pack(0, 7, 1000, 1005, 1006) + b"\0")
    assert main(["log", "dump", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].split() == ["7", "1000", "1005", "1006"]
    assert "1 bytes are left over" in captured.err


def test_an_index_with_half_an_entry_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{0:020d}.index"
    path.write_bytes(OFFSET_ENTRY.pack(5, 4096) + b"\0\0\0")
    assert main(["log", "dump", str(path)]) == 1
    captured = capsys.readouterr()
    assert "4096" in captured.out
    assert "3 bytes at its end are not a whole entry" in captured.err


def test_a_snapshot_shows_each_producer_with_its_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = ProducerTable()
    slot = table.add(42, 3)
    table.push(slot, 3, (9, 9, 109, NOW_MS), NOW_MS)
    table.push(slot, 3, (19, 9, 119, NOW_MS), NOW_MS + 1)
    write_snapshot(Disk(), tmp_path, 120, table.freeze())
    assert main(["log", "dump", str(snapshot_path(tmp_path, 120))]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 producer up to offset 120",
        "producer=42 epoch=3 last_sequence=19 last_append=2023-11-14T22:13:20.001Z",
        "  offsets=100-109 last_sequence=9 time=2023-11-14T22:13:20.000Z",
        "  offsets=110-119 last_sequence=19 time=2023-11-14T22:13:20.000Z",
    ]


def test_a_damaged_snapshot_is_named_and_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{7:020d}.snapshot"
    path.write_bytes(b"not a snapshot at all, and long enough for a header")
    assert main(["log", "dump", str(path)]) == 1
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["notes.txt", "missing.log", "missing.snapshot"])
def test_what_cannot_be_dumped_is_one_line(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "dump", str(tmp_path / name)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
