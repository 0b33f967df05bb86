"""`tidelog log dump` on a .log file shows every batch, and names the damage."""

from pathlib import Path

import pytest

from tidelog.cli.main import main
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import RecordBatchBuilder

NOW_MS = 1_700_000_000_000


def batch(base_offset: int, *values: bytes, codec: Compression = Compression.NONE) -> bytes:
    builder = RecordBatchBuilder()
    for number, value in enumerate(values):
        builder.append(
            NOW_MS + number, b"key" if number else None, value, (("header", None),) if number else ()
        )
    return bytes(builder.build(codec, 7, 1, base_offset, base_offset=base_offset, leader_epoch=3))


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(batch(0, b"a", b"b") + batch(2, b"c", codec=Compression.ZSTD))
    return path


def test_every_batch_is_one_line(log_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", str(log_file)]) == 0
    first, second, summary = capsys.readouterr().out.splitlines()
    assert first.startswith("offsets=0-1 records=2 position=0 bytes=")
    assert "codec=none producer=7 epoch=1 sequences=0-1 leader_epoch=3 crc=" in first
    assert "time=2023-11-14T22:13:20.000Z..2023-11-14T22:13:20.001Z" in first
    assert second.startswith("offsets=2-2 records=1 ")
    assert "codec=zstd" in second
    assert summary == f"2 batches, 3 records, {log_file.stat().st_size} bytes"


def test_records_are_shown_on_request(log_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", str(log_file), "--records"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1] == "  offset=0 time=2023-11-14T22:13:20.000Z key=null value='a'"
    assert shown[2] == "  offset=1 time=2023-11-14T22:13:20.001Z key='key' value='b' header=header:null"
    assert shown[4].endswith("value='c'")


def test_a_wrong_crc_is_named_and_exits_1(log_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(log_file.read_bytes())
    data[65] ^= 1
    log_file.write_bytes(data)
    assert main(["log", "dump", str(log_file), "--records"]) == 1
    first, *_, summary = capsys.readouterr().out.splitlines()
    assert first.endswith("DAMAGED: the CRC does not fit")
    assert summary.endswith(", 1 damaged")


@pytest.mark.parametrize("cut", [1, 30, 70])
def test_a_batch_cut_short_is_named_and_exits_1(
    log_file: Path, cut: int, capsys: pytest.CaptureFixture[str]
) -> None:
    data = log_file.read_bytes()
    log_file.write_bytes(data[:-cut])
    assert main(["log", "dump", str(log_file)]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("offsets=0-1 ")
    assert captured.err.startswith("error: ")
    assert "the batches before it are 1, with 2 records" in captured.err


def test_an_empty_log_has_no_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.touch()
    assert main(["log", "dump", str(path)]) == 0
    assert capsys.readouterr().out == "no batches\n"
