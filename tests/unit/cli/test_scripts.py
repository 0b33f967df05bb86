"""What is typed where no broker is needed, and all that is shown (`scripts/`)."""

from pathlib import Path

import pytest

from tests.conformance.commands import typist
from tests.scripts import Case, cases
from tests.terminal import Terminal
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.producer_table import ProducerTable
from tidelog.broker.storage.snapshot import write_snapshot
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import RecordBatchBuilder

NOW_MS = 1_700_000_000_000


class Site(Terminal):
    """A terminal in a folder with files of logs."""

    def log(self, name: str) -> None:
        """Two batches: of two records, and of one in zstd."""
        Path(name).write_bytes(_batch(0, b"a", b"b") + _batch(2, b"c", codec=Compression.ZSTD))

    def snapshot(self) -> None:
        table = ProducerTable()
        slot = table.add(42, 3)
        table.push(slot, 3, (9, 9, 109, NOW_MS), NOW_MS)
        table.push(slot, 3, (19, 9, 119, NOW_MS), NOW_MS + 1)
        write_snapshot(Disk(), Path(), 120, table.freeze())

    def hex(self, name: str, *words: str) -> None:
        Path(name).write_bytes(bytes.fromhex("".join(words)))

    def flip(self, name: str, position: str) -> None:
        data = bytearray(Path(name).read_bytes())
        data[int(position)] ^= 1
        Path(name).write_bytes(data)

    def cut(self, name: str, count: str) -> None:
        Path(name).write_bytes(Path(name).read_bytes()[: -int(count)])


def _batch(base_offset: int, *values: bytes, codec: Compression = Compression.NONE) -> bytes:
    builder = RecordBatchBuilder()
    for number, value in enumerate(values):
        headers = (("header", None),) if number else ()
        builder.append(NOW_MS + number, b"key" if number else None, value, headers)
    return bytes(builder.build(codec, 7, 1, base_offset, base_offset=base_offset, leader_epoch=3))


@cases(*sorted((Path(__file__).parent / "scripts").glob("*.txt")))
async def test_script(
    case: Case,
    rewrite: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("TIDELOG_BOOTSTRAP_SERVERS", raising=False)
    await case.play(Site(typist(capfd), monkeypatch, tmp_path), rewrite)
