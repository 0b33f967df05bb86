"""A sound data folder, and the ways in which a test damages a copy of it."""

import asyncio
import os
import re
import shutil
from pathlib import Path
from struct import Struct

from tests.conformance.raw import NOW_MS, batch, connected
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.data_folder.verification import Finding, FolderTotals, verify_folder
from tidelog.broker.storage.checkpoints import BOOT_ID
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.broker.storage.integrity import RESERVED_BYTES
from tidelog.broker.storage.manager import CLEAN_SHUTDOWN
from tidelog.broker.storage.producer_table import FrozenTable, ProducerTable
from tidelog.broker.storage.snapshot import decode_snapshot, snapshot_path, snapshots, write_snapshot
from tidelog.protocol.records import BatchHeader, iter_batches, pack_prefix, set_producer

BATCHES = 90
_PRODUCERS = 3


async def make_folder(folder: Path) -> None:
    """Topics `t` and `u`, written by three producers, in three segments, shut down cleanly."""
    config = BrokerConfig(
        data_dir=folder, port=0, http_port=-1, log_segment_bytes=4000, log_index_interval_bytes=400
    )
    async with await Broker.start(config) as broker, connected(broker.port) as client:
        for topic in ("t", "u"):
            await client.create(topic)
        ids = [await client.producer_id() for _ in range(_PRODUCERS)]
        for number in range(BATCHES):
            sequence = number // _PRODUCERS * 2
            data = batch(f"value {number} ", ids[number % _PRODUCERS], sequence, count=2)
            code, _ = await client.produce(data)
            assert code == 0
        await client.produce(batch("other", ids[0], 0), topic="u")


def sound_folder(folder: Path) -> None:
    asyncio.run(make_folder(folder))


class Folder:
    """A data folder that may be damaged, and what a verification says of it."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self.disk = disk or Disk()
        self.partition = path / "t-0"
        self.totals = FolderTotals()

    @property
    def logs(self) -> list[Path]:
        return sorted(self.partition.glob("*.log"))

    @property
    def last_log(self) -> Path:
        return self.logs[-1]

    def verify(self) -> list[Finding]:
        findings: list[Finding] = []
        self.totals = verify_folder(self.path, findings.append, disk=self.disk)
        return findings

    def lines(self) -> list[str]:
        """What the command would print."""
        return [f"{finding.severity.value} {finding}" for finding in self.verify()]

    def crash(self, *, same_boot: bool = False) -> None:
        """As if the power had gone, or the broker been killed: no marker, nothing durable for certain."""
        (self.path / CLEAN_SHUTDOWN).unlink()
        if not same_boot:
            (self.path / BOOT_ID).write_text("another life of the machine")
        points = self.path / "recovery-point-offset-checkpoint"
        points.write_text("0\n2\nt 0 0\nu 0 0\n")

    def places(self, log: Path) -> list[tuple[int, BatchHeader]]:
        return list(iter_batches(log.read_bytes()))

    def change(self, log: Path, number: int, **changes: int) -> int:
        """Rewrite fields of a batch's header with a right CRC; its position."""
        data = bytearray(log.read_bytes())
        position, header = self.places(log)[number]
        one = data[position : position + header.size_bytes]
        wanted = header._replace(**changes)
        one[:61] = Struct(">qiibIhiqqqhii").pack(*wanted)
        set_producer(one, wanted.producer_id, wanted.producer_epoch, wanted.base_sequence)
        data[position : position + header.size_bytes] = one
        log.write_bytes(data)
        return position

    def flip(self, path: Path, position: int) -> None:
        data = bytearray(path.read_bytes())
        data[position] ^= 0x01
        path.write_bytes(data)

    def append_copy(self, number: int, **changes: int) -> int:
        """Store a batch of the last segment again at the end of the log; its position there."""
        log = self.last_log
        data = log.read_bytes()
        position, header = self.places(log)[number]
        _, last = self.places(log)[-1]
        copy = bytearray(data[position : position + header.size_bytes])
        if changes:
            wanted = header._replace(**changes)
            set_producer(copy, wanted.producer_id, wanted.producer_epoch, wanted.base_sequence)
        copy[:16] = pack_prefix(last.last_offset + 1, header.batch_length, last.partition_leader_epoch)
        log.write_bytes(data + copy)
        return len(data)

    @property
    def snapshot(self) -> Path:
        """The newest."""
        return snapshot_path(self.partition, *snapshots(Disk(), self.partition)[-1])

    def table(self) -> tuple[int, ProducerTable]:
        offset, frozen = decode_snapshot(self.snapshot.read_bytes())
        return offset, ProducerTable.from_frozen(frozen)

    def write_table(self, offset: int, table: ProducerTable) -> None:
        """A valid snapshot of `table` in place of all others."""
        for name in snapshots(Disk(), self.partition):
            snapshot_path(self.partition, *name).unlink()
        frozen: FrozenTable = table.view()
        write_snapshot(Disk(), self.partition, offset, frozen)


def only(folder: Folder, pattern: str) -> None:
    """There is one finding, and it reads like `pattern`."""
    lines = folder.lines()
    assert len(lines) == 1, lines
    assert re.fullmatch(pattern, lines[0]), lines[0]


def has(folder: Folder, pattern: str) -> list[str]:
    lines = folder.lines()
    assert any(re.fullmatch(pattern, line) for line in lines), lines
    return lines


class Site:
    """The commands of scripts over a folder. A file is named by its path, or by its number: `0.log` is the
    first of its kind in `t-0`, `-1.log` the last."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def _file(self, name: str) -> Path:
        number, _, suffix = name.partition(".")
        if number.lstrip("-").isdigit() and len(number) < 4:
            return sorted(self.folder.partition.glob(f"*.{suffix}"))[int(number)]
        return self.folder.path / name

    def crash(self, *words: str) -> None:
        """Words: `same-boot`, of the machine."""
        self.folder.crash(same_boot="same-boot" in words)

    def remove(self, *names: str) -> None:
        for path in [self._file(name) for name in names]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def write(self, name: str, *lines: str) -> None:
        """One line each, with `_` for a space."""
        path = self._file(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines).replace("_", " "))

    def copy(self, name: str, to: str) -> None:
        source, target = self._file(name), self.folder.path / to
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)

    def rename(self, name: str, to: str) -> None:
        self._file(name).rename(self.folder.path / to)

    def cut(self, name: str, size: str) -> None:
        """To so many bytes, or by so many if negative."""
        path = self._file(name)
        os.truncate(path, int(size) if int(size) >= 0 else path.stat().st_size + int(size))

    def cut_at_batch(self, name: str, number: str, more: str = "0") -> None:
        """Before a batch, but for so many bytes."""
        path = self._file(name)
        os.truncate(path, self.folder.places(path)[int(number)][0] + int(more))

    def reserve(self, name: str, more: str = "0") -> None:
        """Zeros behind the batches, as a broker reserves them, and so many more."""
        path = self._file(name)
        path.write_bytes(path.read_bytes().ljust(RESERVED_BYTES + int(more), b"\0"))

    def flip(self, name: str, position: str) -> None:
        self.folder.flip(self._file(name), int(position))

    def flip_in_batch(self, name: str, number: str, position: str) -> None:
        path = self._file(name)
        self.folder.flip(path, self.folder.places(path)[int(number)][0] + int(position))

    def without_batch(self, name: str, number: str) -> None:
        path = self._file(name)
        position, header = self.folder.places(path)[int(number)]
        data = path.read_bytes()
        path.write_bytes(data[:position] + data[position + header.size_bytes :])

    def change(self, name: str, number: str, *fields: str) -> None:
        """Fields of a batch's header as `NAME=NUMBER`, with a right CRC."""
        self.folder.change(self._file(name), int(number), **_numbers(fields))

    def append_copy(self, number: str, *fields: str) -> None:
        """A batch of the last segment, again at the end of the log."""
        self.folder.append_copy(int(number), **_numbers(fields))

    def entry(self, name: str, number: str, *more: str) -> None:
        """Add numbers to the two of an entry of an index."""
        path = self._file(name)
        kind = OFFSET_ENTRY if path.suffix == ".index" else TIME_ENTRY
        data = bytearray(path.read_bytes())
        if int(number) * kind.size == len(data):
            data += bytes(kind.size)
        entry = kind.unpack_from(data, int(number) * kind.size)
        changed = (known + int(added) for known, added in zip(entry, more, strict=True))
        kind.pack_into(data, int(number) * kind.size, *changed)
        path.write_bytes(data)

    def snapshot(self, offset: str, *changes: str) -> None:
        """A valid snapshot in place of all: `push=ID,EPOCH,SEQUENCE,DELTA,OFFSET`, `add=` so, `remove=ID`."""
        _, table = self.folder.table()
        for name, text in (change.split("=") for change in changes):
            numbers = list(map(int, text.split(",")))
            if name == "remove":
                table.remove(numbers[0])
                continue
            slot = table.add(numbers[0], 0) if name == "add" else table.find(numbers[0])
            epoch, sequence, delta, last = numbers[1:]
            table.push(slot, epoch, (sequence, delta, last, NOW_MS), NOW_MS)
        self.folder.write_table(int(offset), table)

    def verify(self) -> str:
        lines = "\n".join(self.folder.lines())
        lines = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<id>", lines.replace(str(self.folder.path), "<folder>"))
        return re.sub(r"\b[0-9a-f]{8}\b", "<crc>", re.sub(r"\b0+(?=\d+\.)", "", lines))

    def totals(self) -> str:
        totals = self.folder.totals
        return f"{totals.batches} batches, {totals.records} records, {totals.damage} damage"


def _numbers(fields: tuple[str, ...]) -> dict[str, int]:
    return {name: int(number) for name, number in (field.split("=") for field in fields)}
