"""Checks the folder of one partition: its segments one after the other, its snapshots, its epochs.

Owns the order of the checks and what the parts have to agree on: segments join without a gap, the log
reaches from the start offset to the recovery point that the checkpoints name, each snapshot fits the log at
its offset, the file of leader epochs names what the batches carry.

Raises OSError only if the folder itself cannot be read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tidelog.broker.storage import checkpoints
from tidelog.broker.storage.cleaned_offset import CleanedOffset
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.file_reader import FileReader, FoundBatch, batch_at
from tidelog.broker.storage.snapshot import CORRUPT_SUFFIX, SnapshotName, snapshot_path, snapshots
from tidelog.broker.storage.swap import log_files
from tidelog.broker.storage.transaction_index import TRANSACTION_INDEX_SUFFIX
from tidelog.broker.storage.verification.findings import Findings, Severity
from tidelog.broker.storage.verification.producers import ProducerCheck, SnapshotCheck
from tidelog.broker.storage.verification.segment import SegmentCheck, SegmentPlace, Walk
from tidelog.broker.storage.verification.transactions import check_aborted

EVERYTHING = 2**63 - 1
_MOST_LOOK_UPS = 100
_ASIDE_SUFFIXES = (".damaged", CORRUPT_SUFFIX)


class PartitionFacts(NamedTuple):
    """Facts about a partition from the rest of the data folder; None if it says nothing."""

    is_clean: bool
    """The last broker shut down cleanly."""
    recovery_point: int | None
    start_offset: int | None
    leader_epoch: int | None
    next_producer_id: int | None
    index_interval: int
    is_same_boot: bool


@dataclass(slots=True)
class PartitionTotals:
    """How much of one partition was checked."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    producers: int = 0
    snapshots: int = 0


class PartitionCheck:
    """Checks the folder of one partition."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        facts: PartitionFacts,
        findings: Findings,
        progress: Callable[[int], None],
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._facts = facts
        self._findings = findings
        self._progress = progress
        self._files: dict[int, Path] = {}
        self._bases: list[int] = []
        self._trusted = EVERYTHING if facts.is_clean else facts.recovery_point or 0
        self._producers = ProducerCheck(
            findings, next_producer_id=facts.next_producer_id, crc_at=self._crc_at
        )
        self._snapshots = SnapshotCheck(disk, self._producers, findings)
        self._waiting: list[SnapshotName] = []
        self._walk = Walk(0, 0)
        self._reached = 0
        """Where the last batch ended that the replay has taken."""
        self._look_ups = 0
        self._newest_snapshot = -1

    def run(self) -> PartitionTotals:
        """Check everything. Raises OSError."""
        names = self._disk.list_directory(self._folder)
        self._files = log_files(self._disk, self._folder)
        self._bases = list(self._files)
        for name in sorted(names):
            if name.endswith(_ASIDE_SUFFIXES):
                self._findings.warning(
                    self._name(name), "an earlier start found damage and kept it in this file"
                )
        totals = PartitionTotals(segments=len(self._bases))
        if not self._bases:
            self._check_empty()
            return totals
        self._waiting = snapshots(self._disk, self._folder)
        walk = self._walk = Walk(self._bases[0], self._cleaned_offset())
        self._reached = self._producers.first_offset = self._bases[0]
        for number, base in enumerate(self._bases):
            self._segment(walk, base, self._bases[number + 1 :])
        self._compare_snapshots(walk.next_offset, at_end=True)
        self._check_offsets(walk)
        self._check_producers()
        self._check_epochs(walk)
        totals.batches, totals.records = walk.batches, walk.records
        totals.producers = len(self._producers.states)
        totals.snapshots = self._snapshots.checked
        return totals

    def _name(self, name: str) -> str:
        return f"{self._folder.name}/{name}"

    def _check_empty(self) -> None:
        if self._facts.recovery_point:
            self._findings.damage(
                self._folder.name,
                "the log has no segment",
                expected=f"records up to {self._facts.recovery_point}",
            )

    def _cleaned_offset(self) -> int:
        cleaned = CleanedOffset(self._disk, self._folder)
        if problem := cleaned.load():
            name = self._name(checkpoints.CLEANED_OFFSET)
            self._findings.damage(name, problem.replace(f"{self._folder / checkpoints.CLEANED_OFFSET}: ", ""))
        return cleaned.offset

    def _segment(self, walk: Walk, base: int, following: list[int]) -> None:
        path = self._files[base]
        name = self._name(path.name)
        if base != walk.next_offset:
            # Below the log's start: DeleteRecords up to the end of a hole accepted the loss.
            is_accepted = base > walk.next_offset and base <= (self._facts.start_offset or 0)
            self._findings.add(
                Severity.WARNING if is_accepted else Severity.DAMAGE,
                name,
                "the segment does not begin where the one before it ends",
                expected=walk.next_offset,
                found=base,
            )
            walk.next_offset, walk.is_whole = base, False
        covered_to = following[0] if following else None
        place = SegmentPlace(path, name, self._trusted, covered_to, *self._facts[-2:])
        try:
            SegmentCheck(self._disk, place, self._findings, self._on_batch, self._progress).run(walk)
            aborted, self._producers.aborted = self._producers.aborted, []
            if walk.is_whole:
                check_aborted(
                    self._disk,
                    self._folder / f"{base:020d}{TRANSACTION_INDEX_SUFFIX}",
                    self._name(f"{base:020d}{TRANSACTION_INDEX_SUFFIX}"),
                    aborted,
                    first_offset=max(self._bases[0], walk.cleaned_offset),
                    trusted=self._trusted,
                    findings=self._findings,
                )
        except OSError as error:
            self._findings.damage(name, f"cannot be read: {error.strerror or error}")
            walk.next_offset = walk.next_offset if covered_to is None else covered_to
            walk.is_whole = False

    def _on_batch(self, file: str, batch: FoundBatch) -> None:
        self._producers.is_whole = self._walk.is_whole and not self._walk.has_gaps
        if self._waiting and self._waiting[0].offset <= batch.header.base_offset:
            self._compare_snapshots(batch.header.base_offset, at_end=False)
        self._producers.batch(file, batch)
        self._reached = batch.header.last_offset + 1

    def _compare_snapshots(self, offset: int, *, at_end: bool) -> None:
        """Check the snapshots up to `offset`, which the replay has reached; at the end also those beyond."""
        while self._waiting and (at_end or self._waiting[0].offset <= offset):
            snapshot = self._waiting.pop(0)
            path = snapshot_path(self._folder, *snapshot)
            name = self._name(path.name)
            try:
                table = self._snapshots.load(name, snapshot.offset, path)
            except OSError as error:
                self._findings.damage(name, f"cannot be read: {error.strerror or error}")
                continue
            if table is None:
                continue
            self._newest_snapshot = snapshot.offset
            if not self._walk.is_whole:
                self._findings.warning(name, "not compared with the log, which has lost batches before it")
            elif self._reached <= snapshot.offset <= offset:
                complete_from = self._walk.cleaned_offset if self._walk.has_gaps else 0
                self._snapshots.compare(name, table, max(self._bases[0], complete_from))
            elif snapshot.offset > offset:
                severity = Severity.DAMAGE if self._facts.is_clean else Severity.WARNING
                problem = "it has more than the log; the next start of a broker removes it"
                self._findings.add(
                    severity, name, problem, expected=f"{offset} or less", found=snapshot.offset
                )
            elif snapshot.offset > self._bases[0]:
                self._findings.damage(name, f"no batch begins at offset {snapshot.offset}")

    def _check_offsets(self, walk: Walk) -> None:
        facts, name = self._facts, self._folder.name
        if facts.recovery_point is not None and walk.next_offset < facts.recovery_point:
            self._findings.damage(
                name,
                "the log ends before the recovery point: records that were durable are gone",
                expected=facts.recovery_point,
                found=walk.next_offset,
            )
        start = facts.start_offset
        if start is None:
            return
        if start > walk.next_offset:
            self._findings.damage(
                name,
                "the log start offset is after the end",
                expected=f"{walk.next_offset} or less",
                found=start,
            )
        elif start < self._bases[0]:
            self._findings.add(
                Severity.DAMAGE if facts.is_clean else Severity.WARNING,
                name,
                "the first segment begins after the log start offset",
                expected=f"{start} or less",
                found=self._bases[0],
            )

    def _check_producers(self) -> None:
        """Producers of records deleted before the first segment must be in a snapshot."""
        newest = self._newest_snapshot
        if max(newest, 0) < self._bases[0] and (self._facts.is_clean or newest < 0):
            self._findings.damage(
                self._folder.name,
                f"no snapshot has the producers before offset {self._bases[0]}",
                expected=f"a snapshot at {self._bases[0]} or later",
                found="none" if newest < 0 else newest,
            )

    def _check_epochs(self, walk: Walk) -> None:
        """The file of leader epochs against the batches, and those against the catalog."""
        known = self._facts.leader_epoch
        if known is not None and walk.latest_epoch > known:
            self._findings.damage(
                self._folder.name,
                "batches carry a leader epoch that the catalog does not know yet",
                expected=f"{known} or less",
                found=walk.latest_epoch,
            )
        name, path = self._name(checkpoints.LEADER_EPOCHS), self._folder / checkpoints.LEADER_EPOCHS
        try:
            stored = dict(checkpoints.read_leader_epochs(self._disk, path))
        except (checkpoints.CheckpointError, OSError) as error:
            self._findings.damage(name, str(error).replace(f"{path}: ", ""))
            return
        for epoch, offset in walk.leader_epochs.items():
            severity = Severity.WARNING if offset >= self._trusted else Severity.DAMAGE
            entry = stored.get(epoch)
            # Compaction may have taken the first batches of an epoch.
            may_lack_first = offset == self._bases[0] or offset < walk.cleaned_offset
            began_before = entry is not None and entry <= offset and may_lack_first
            if entry != offset and not began_before:
                found = "none" if entry is None else entry
                problem = f"leader epoch {epoch} began elsewhere"
                self._findings.add(severity, name, problem, expected=offset, found=found)
        for epoch, offset in stored.items():
            is_cleaned = offset < walk.cleaned_offset
            if (
                epoch not in walk.leader_epochs
                and self._bases[0] <= offset < walk.next_offset
                and not is_cleaned
            ):
                self._findings.damage(name, f"no batch carries leader epoch {epoch}", found=offset)

    def _crc_at(self, offset: int) -> int | None:
        """The CRC of the batch that begins at `offset`, read from its segment's start, so slow."""
        base = max((base for base in self._bases if base <= offset), default=None)
        self._look_ups += 1
        if base is None or self._look_ups > _MOST_LOOK_UPS:
            return None
        with FileReader(self._disk, self._files[base]) as reader:
            position = 0
            while position < reader.size:
                found = batch_at(reader, position)
                if not isinstance(found, FoundBatch):
                    return None
                if found.header.base_offset == offset:
                    return found.crc
                position = found.end
        return None
