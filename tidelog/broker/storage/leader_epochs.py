"""Which leader epoch began at which offset of a partition's log (KIP-101, KIP-320).

Owns the list and its file, `leader-epoch-checkpoint`. Epochs ascend strictly, offsets never descend.

Invariants: the file may lag behind the list until the next flush, never behind what was acknowledged with
acks=all unless the disk is full; the batches themselves carry their epoch, so recovery finds what a crash
took from the file. If compaction has removed the first batches of an epoch, or all, those that a follower
copies do not say where it began: the leader does, before they are written. A batch behind a gap counts after
a crash only if the gap was stored as a legal one (`cleaned_offset`), and this file is written before that.
"""

from collections.abc import Sequence
from pathlib import Path

from tidelog.broker.storage import checkpoints
from tidelog.broker.storage.disk import FULL, Disk
from tidelog.protocol.types import NO_LEADER_EPOCH, NO_OFFSET


class LeaderEpochs:
    """(epoch, first offset) pairs of one log."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._path = folder / checkpoints.LEADER_EPOCHS
        self.entries: list[tuple[int, int]] = []
        self.latest: int = NO_LEADER_EPOCH
        self.is_dirty = False
        self._foretold: list[tuple[int, int]] = []
        """Entries of the leader's list after the last batch here."""

    def load(self, found: list[tuple[int, int]], end_offset: int) -> str | None:
        """Read the file, add what recovery found in the last batches, drop what the log does not hold.

        Returns what was wrong with the file, if anything.
        """
        problem = None
        try:
            stored = checkpoints.read_leader_epochs(self._disk, self._path)
        except checkpoints.CheckpointError as error:
            problem, stored = str(error), []
        kept = [entry for entry in stored if entry[1] < end_offset]
        if found and kept and kept[-1][0] > found[-1][0]:
            problem = f"{self._path}: it names epoch {kept[-1][0]}, and the last batch has {found[-1][0]}"
            kept = [entry for entry in kept if entry[0] <= found[-1][0]]
        self.is_dirty = kept != stored or problem is not None
        self.entries = kept
        self.latest = kept[-1][0] if kept else NO_LEADER_EPOCH
        for epoch, offset in found:
            self.note(epoch, offset)
        return problem

    def note(self, epoch: int, offset: int) -> None:
        """A batch of `epoch` lies at `offset`; only the first of an epoch matters."""
        if epoch > self.latest:
            told = [each for each in self._foretold if each[0] <= epoch and each[1] <= offset]
            self.entries += told
            if not told or told[-1][0] != epoch:
                self.entries.append((epoch, offset))
            self._foretold = []
            self.latest = epoch
            self.is_dirty = True

    def foretell(self, entries: list[tuple[int, int]]) -> None:
        """The next batch lies behind a gap, before which these epochs began, the last one that batch's."""
        self._foretold = entries

    def is_unknown(self, epoch: int) -> bool:
        """Whether it is unknown where an epoch began whose next batch lies behind a gap."""
        return epoch > self.latest and all(each != epoch for each, _ in self._foretold)

    def add_older(self, older: Sequence[tuple[int, int]]) -> None:
        """Take over what a log does not know that begins later than its leader's did."""
        known = dict(self.entries)
        first = self.entries[0][0] if self.entries else 1 << 31
        known |= {epoch: first_offset for epoch, first_offset in older if epoch <= first}
        self.entries = sorted(known.items())
        self.latest = self.entries[-1][0] if self.entries else self.latest

    def save(self, entries: list[tuple[int, int]]) -> None:
        """Write the file, durably with the names in its folder; in any thread, with a copy of the entries.

        Raises OSError.
        """
        checkpoints.write_leader_epochs(self._disk, self._path, entries, syncs_name=False)

    def save_if_room(self, entries: list[tuple[int, int]]) -> None:
        """`save`, but on a full disk later: it must not fail a flush, and the batches hold the same."""
        try:
            self.save(entries)
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.is_dirty = True

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written, or -1."""
        found: int = NO_LEADER_EPOCH
        for epoch, start in self.entries:
            if start > offset:
                break
            found = epoch
        return found

    def end_offset_for(self, epoch: int, end_offset: int, current: int = NO_LEADER_EPOCH) -> tuple[int, int]:
        """The largest epoch up to `epoch` and where it ended, for OffsetForLeaderEpoch; else (-1, -1).

        `current` is the epoch in which this broker leads, known before its first batch.
        """
        if epoch < 0 or epoch > max(self.latest, current):
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == current or not self.entries:
            return epoch, end_offset
        found: int = NO_LEADER_EPOCH
        for known, start in self.entries:
            if known > epoch:
                return (found, start) if found >= 0 else (epoch, start)
            found = known
        return found, end_offset
