"""Checks that the batches of a log follow the rules of idempotence, and that the snapshots agree.

Owns a replay through `producer_memory`: each batch must be one that the broker would have appended. At the
offset of each snapshot the replay and the snapshot are compared, as far as the log still holds the batches
of the snapshot. Invariants: memory is that of a broker with as many producers, at most a million.

The log does not show whether a producer that begins again at sequence 0 in the same epoch was forgotten in
between (expiry). That is a warning, unless the batch is the old one byte for byte.
"""

from collections.abc import Callable
from pathlib import Path

from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.file_reader import FoundBatch
from tidelog.broker.storage.open_transactions import EndedTransaction
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.producer_state import Duplicate, ProducerRules, Refusal
from tidelog.broker.storage.producer_table import CachedBatch, ProducerEntry, ProducerTable
from tidelog.broker.storage.snapshot import decode_snapshot
from tidelog.broker.storage.verification.findings import Findings
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import BatchHeader
from tidelog.protocol.types import NO_OFFSET

_DAY_MS = 86_400_000
_FAR_AWAY = 2**63 - 1


class ProducerCheck:
    """The replay of one partition's log. `crc_at` reads the CRC of a stored batch by its offset."""

    def __init__(
        self, findings: Findings, *, next_producer_id: int | None, crc_at: Callable[[int], int | None]
    ) -> None:
        rules = ProducerRules(reject_unknown_sequence=False, duplicate_below_window=True)
        self.states = ProducerStates(rules, lambda: _FAR_AWAY)
        self.newest_timestamp = -1
        self.is_whole = True
        """The log has lost no batch so far; after a loss a skipped sequence is no new finding."""
        self.first_offset = 0
        """Where the log begins now: what came before was deleted."""
        self.aborted: list[EndedTransaction] = []
        """What the markers aborted since the list was last taken."""
        self._findings = findings
        self._next_producer_id = next_producer_id
        self._crc_at = crc_at

    def batch(self, file: str, batch: FoundBatch) -> None:
        """The next batch of the log, whose CRC is right."""
        header = batch.header
        self.newest_timestamp = max(self.newest_timestamp, header.largest_timestamp)
        if header.is_control:
            self._marker(file, batch)
        if header.producer_id < 0 or header.is_control:
            return
        if self._next_producer_id is not None and header.producer_id >= self._next_producer_id:
            self._findings.warning(
                file,
                f"producer id {header.producer_id} was never issued by this cluster: its next one is"
                f" {self._next_producer_id}, so it may be issued to another producer",
                position=batch.position,
            )
        verdict = self.states.check(header)
        if isinstance(verdict, Duplicate):
            self._repeated(file, batch, verdict.base_offset)
        elif isinstance(verdict, Refusal):
            if header.base_sequence == 0 and self._is_current_epoch(header):
                self._began_again(file, batch)
            elif self.first_offset and self._is_known_by_a_marker(header):
                pass  # Its batches were deleted from the start of the log.
            elif not self.is_whole and verdict.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self.states.forget(header.producer_id)
            else:
                self._findings.damage(
                    file, f"a batch that had to be refused: {verdict.message}", position=batch.position
                )
        self.states.apply(header, header.base_offset, 0)

    def _marker(self, file: str, batch: FoundBatch) -> None:
        if batch.marker is not None:
            verdict = self.states.check_marker(batch.header, batch.marker)
            if isinstance(verdict, Refusal):
                self._findings.damage(
                    file, f"a batch that had to be refused: {verdict.message}", position=batch.position
                )
            offset = batch.header.base_offset
            aborted = self.states.apply_marker(batch.header, batch.marker, offset, 0)
            self.states.transactions.settle(offset + 1)
            if aborted is not None:
                self.aborted.append(aborted)

    def _is_current_epoch(self, header: BatchHeader) -> bool:
        known = self.states.entry(header.producer_id)
        return known is not None and known.producer_epoch == header.producer_epoch

    def _is_known_by_a_marker(self, header: BatchHeader) -> bool:
        """Whether the log showed no batch of the producer, only that a transaction of it ended."""
        known = self.states.entry(header.producer_id)
        return known is not None and not known.batches and known.producer_epoch == header.producer_epoch

    def _repeated(self, file: str, batch: FoundBatch, first_offset: int) -> None:
        header = batch.header
        if header.base_sequence == 0 and self._crc_at(first_offset) != batch.crc:
            self._began_again(file, batch)
            return
        self._findings.damage(
            file,
            f"the batch of offset {first_offset} is stored a second time at {header.base_offset}: producer"
            f" {header.producer_id} epoch {header.producer_epoch} sequences"
            f" {header.base_sequence}..{header.last_sequence}",
            position=batch.position,
        )

    def _began_again(self, file: str, batch: FoundBatch) -> None:
        header = batch.header
        self._findings.warning(
            file,
            f"producer {header.producer_id} begins again at sequence 0 in epoch {header.producer_epoch}:"
            " right if it had expired in between",
            position=batch.position,
        )
        self.states.forget(header.producer_id)


class SnapshotCheck:
    """Compares each snapshot of one partition with the replay, when the replay reaches its offset."""

    def __init__(self, disk: Disk, replay: ProducerCheck, findings: Findings) -> None:
        self._disk = disk
        self._replay = replay
        self._findings = findings
        self.checked = 0

    def load(self, file: str, offset: int, path: Path) -> ProducerTable | None:
        """The table of a snapshot file, or None with a finding. Raises OSError."""
        try:
            stored_offset, frozen = decode_snapshot(self._disk.read_file(path))
            if stored_offset != offset:
                raise ValueError(f"it is named by offset {offset}, and says {stored_offset}")
            return ProducerTable.from_frozen(frozen)
        except ValueError as error:
            self._findings.damage(file, f"not a valid snapshot: {error}")
            return None

    def compare(self, file: str, table: ProducerTable, first_offset: int) -> None:
        """Compare with the replay as it is now; the log holds every batch from `first_offset` on."""
        self.checked += 1
        states = self._replay.states
        for slot in table.in_idle_order():
            entry = table.entry(slot)
            self._compare_one(file, entry, states.entry(entry.producer_id), first_offset)
        missing = sum(
            1
            for entry in states.entries()
            if not table.find(entry.producer_id)
            and self._replay.newest_timestamp - entry.last_timestamp < _DAY_MS
        )
        if missing:
            self._findings.warning(
                file,
                f"{missing} producers that wrote within the last day are not in it: right if they expired",
            )

    def _compare_one(
        self, file: str, entry: ProducerEntry, replayed: ProducerEntry | None, first_offset: int
    ) -> None:
        here = [batch for batch in entry.batches if batch.last_offset >= first_offset]
        moved = any(batch.last_offset == NO_OFFSET for batch in entry.batches)
        if replayed is None:
            if here and not self._replay.states.evicted:
                self._findings.damage(
                    file, f"producer {entry.producer_id}: the log has no batch of it", found=_shown(here)
                )
            return
        if moved and not here:
            self._findings.warning(
                file, f"producer {entry.producer_id} was moved by `tidelog fault sequence`"
            )
            return
        if entry.producer_epoch != replayed.producer_epoch:
            self._findings.damage(
                file,
                f"producer {entry.producer_id} has another epoch than in the log",
                expected=replayed.producer_epoch,
                found=entry.producer_epoch,
            )
            return
        began_at, shown_at = entry.current_txn_start_offset, replayed.current_txn_start_offset
        if began_at != shown_at and not 0 <= began_at < first_offset:
            self._findings.damage(
                file,
                f"producer {entry.producer_id} has another open transaction than in the log (-1: none)",
                expected=shown_at,
                found=began_at,
            )
        there = [batch for batch in replayed.batches if batch.last_offset >= first_offset]
        count = max(min(len(here), len(there)), 1)
        if there[-count:] != here[-count:] or len(here) > len(there):
            self._findings.damage(
                file,
                f"producer {entry.producer_id} has other batches than in the log",
                expected=_shown(replayed.batches),
                found=_shown(here),
            )
        elif len(entry.batches) < len(there) and not moved and _began_late(entry.batches):
            self._findings.warning(
                file,
                f"producer {entry.producer_id}: only its last {len(entry.batches)} batches are known",
                expected=_shown(replayed.batches),
                found=_shown(entry.batches),
            )


def _began_late(batches: tuple[CachedBatch, ...]) -> bool:
    """Whether the oldest batch known is not the first of its epoch."""
    return batches[0].last_sequence != batches[0].offset_delta


def _shown(batches: list[CachedBatch] | tuple[CachedBatch, ...]) -> str:
    return (
        " ".join(
            f"sequence {batch.last_sequence} at offsets {batch.base_offset}..{batch.last_offset}"
            f" ({batch.timestamp})"
            for batch in batches
        )
        or "none"
    )
