"""A sound data folder, and the ways in which a test damages a copy of it."""

import asyncio
import re
from pathlib import Path
from struct import Struct

from tests.conformance.raw import batch, connected
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.data_folder.verification import Finding, FolderTotals, verify_folder
from tidelog.broker.storage.checkpoints import BOOT_ID
from tidelog.broker.storage.disk import Disk
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
