"""Checkpoints, snapshots and deletion of segments: they keep a start after a crash short and a folder small.

Owns the recovery point, when a snapshot is due, and which closed segments may leave the disk.

Invariants:
- the recovery point never passes what is durable, indexes included; once a sync of indexes failed it
  stays where it is, because a later success would prove nothing;
- a segment is deleted only when two durable snapshots cover the producers that wrote it, so that one of
  them may be damaged; unless the disk is so full that none can be written;
- a log without appends is settled some checkpoints later, snapshot included: a close then writes nothing;
- a snapshot may be ahead of what is durable: recovery deletes one that covers more than the log that a
  crash left. So it counts only once the log is durable up to it.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tidelog.broker.storage.disk import FULL, Disk
from tidelog.broker.storage.leader_epochs import LeaderEpochs
from tidelog.broker.storage.log_segments import LogSegments
from tidelog.broker.storage.log_types import CheckpointWork
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.recovery import RecoveryReport
from tidelog.broker.storage.snapshot import snapshots, write_snapshot

_SNAPSHOT_EVERY_BYTES = 16 << 20
"""The most log bytes that are replayed from headers; four times the snapshot's size where that is more."""
_SNAPSHOT_CLOCK_MS = 3_600_000
"""The most time that producers may have aged since the newest snapshot: a start gives it to them again."""
_EVERYTHING = 2**63 - 1
_PRODUCERS_PER_REST = 4096
"""Number of producers up to which a snapshot is written at each checkpoint that found no new records in the
log."""
DROPPED_AT_ONCE = 64
"""The most segments that one step of the loop removes; each takes three renames."""


class Upkeep:
    """Makes the checkpoints and snapshots of one log, and deletes its closed segments."""

    def __init__(
        self, folder: Path, disk: Disk, segments: LogSegments, producers: ProducerStates, snapshot_offset: int
    ) -> None:
        self.recovery_point = 0
        self.snapshot_due = False
        self.appended_bytes = 0
        """How much was appended since the start."""
        self._folder = folder
        self._disk = disk
        self._segments = segments
        self._producers = producers
        self._snapshots = (-1, snapshot_offset)
        """Offsets of the two newest snapshots that are durable and good for certain; -1 for none."""
        self._snapshot_bytes = 0
        self._snapshot_moment = (producers.changes, producers.clock_ms)
        """How far the producers were when the newest snapshot was taken, beside its offset."""
        self._frozen_moment = self._snapshot_moment
        self._resting = 0
        """How many checkpoints in a row found nothing new in the log."""
        self._is_as_found = False
        """What recovery found in the files is durable and needed no change."""
        self._at_snapshot = 0
        self._at_checkpoint = 0
        self._needed_offset = -1
        """Deletion waits for two snapshots that reach it."""
        self._is_running = False
        self._indexes_failed = False
        self._deleted: list[Path] = []

    @property
    def snapshot_offset(self) -> int:
        """Offset of the newest durable snapshot, -1 without one."""
        return self._snapshots[1]

    @property
    def bytes_since_checkpoint(self) -> int:
        return self.appended_bytes - self._at_checkpoint

    def begin(self, end_offset: int) -> CheckpointWork | None:
        """What a checkpoint has to write, or None; see `PartitionLog.begin_checkpoint`. Raises OSError."""
        self._resting = self._resting + 1 if self.appended_bytes == self._at_checkpoint else 0
        rests = self._resting > len(self._producers) // _PRODUCERS_PER_REST
        is_due = (
            self.snapshot_due
            or self.appended_bytes - self._at_snapshot > max(_SNAPSHOT_EVERY_BYTES, 4 * self._snapshot_bytes)
            or (rests and self._snapshot_lags(end_offset))
        )
        is_behind = self.recovery_point < self._segments.flushed_end_offset or (
            rests and not (self._segments.active.has_whole_indexes and not self._segments.has_new_names)
        )
        if self._is_running or not (is_due or (is_behind and not self._indexes_failed)):
            return None
        if rests:
            self._segments.active.index_time()
        work = self._segments.begin_checkpoint()
        self._is_running = True
        self._at_checkpoint = self.appended_bytes
        if is_due:
            aborted = self._segments.aborted_known()
            work.snapshot = replace(self._producers.freeze(), aborted=aborted)
            work.snapshot_offset = end_offset
            self._frozen_moment = (self._producers.changes, self._producers.clock_ms)
            work.snapshot_copies = 2 if self.snapshot_offset < self._needed_offset else 1
            self.snapshot_due, self._at_snapshot = False, self.appended_bytes
        return work

    def finish(self, work: CheckpointWork, error: OSError | None) -> None:
        """Take over what `work` achieved."""
        self._is_running = False
        if work.snapshot is not None:
            self._producers.thaw()
            for _ in range(work.snapshots_written):
                self._snapshot_written(work.snapshot_offset, work.snapshot_bytes, self._frozen_moment)
            if work.snapshots_written < work.snapshot_copies:
                self.snapshot_due = True
        if error is None:
            self._segments.finish_checkpoint(work)
        if work.is_undone:
            self._segments.checkpoint_undone(work)
        elif not work.indexes_durable:
            self._indexes_failed = True
        if work.indexes_durable and not self._indexes_failed:
            self.recovery_point = max(self.recovery_point, work.recovery_point)

    def _snapshot_written(self, offset: int, size: int, moment: tuple[int, int]) -> None:
        self._snapshots = (self._snapshots[1], offset)
        self._snapshot_bytes = size
        self._snapshot_moment = moment

    def _snapshot_lags(self, end_offset: int) -> bool:
        """Whether the newest snapshot says less than a start should know."""
        changes, clock_ms = self._snapshot_moment
        is_older = len(self._producers) and self._producers.clock_ms - clock_ms >= _SNAPSHOT_CLOCK_MS
        return (
            end_offset != max(self.snapshot_offset, 0) or changes != self._producers.changes or bool(is_older)
        )

    def is_settled(self, epochs: LeaderEpochs, end_offset: int) -> bool:
        """Whether a clean start would find all in the files as they are, durable, with nothing to replay."""
        return (
            self._is_as_found
            and not self._indexes_failed
            and self.recovery_point == self._segments.flushed_end_offset == end_offset
            and not self._segments.has_new_names
            and self._segments.active.has_whole_indexes
            and not self._segments.active.is_reserved
            and not epochs.is_dirty
            and not self._snapshot_lags(end_offset)
        )

    def take_snapshot(self, end_offset: int) -> None:
        """Write the producer state as of `end_offset`, now. Raises OSError."""
        self._segments.sync_aborted(self.recovery_point)
        durable_end = self._segments.flushed_end_offset
        frozen = replace(self._producers.view(), aborted=self._segments.aborted_known())
        size = write_snapshot(self._disk, self._folder, end_offset, frozen, durable_end)
        self._snapshot_written(end_offset, size, (self._producers.changes, self._producers.clock_ms))
        self.snapshot_due, self._at_snapshot = False, self.appended_bytes

    def make_durable(self, epochs: LeaderEpochs, from_offset: int, end_offset: int) -> None:
        """Everything, now: at a close. Raises OSError."""
        if self._segments.flushed_end_offset < end_offset or self._segments.has_new_names:
            self._segments.sync_logs(from_offset)
        self._segments.sync_indexes(from_offset)
        if epochs.is_dirty:
            epochs.save(epochs.entries)
            epochs.is_dirty = False
        if self._snapshot_lags(end_offset):
            self.take_snapshot(end_offset)  # Which makes all names of the folder durable with its own.
            self._segments.has_new_names = False
        else:
            self._segments.sync_names()
        self.recovery_point = end_offset

    def start(self, report: RecoveryReport) -> None:
        """Write the results of recovery to the files. The first checkpoint makes them durable.

        A full disk keeps no log from being read: the next start will have as much to read as this one. Raises
        OSError for other problems.
        """
        is_written = True
        try:
            self._segments.write_indexes()
        except OSError as error:
            if error.errno not in FULL:
                raise
            is_written = False
        self.recovery_point = self._segments.flushed_end_offset
        # Else entries of records that the log lost may follow those that a checkpoint would add.
        self._indexes_failed = not (is_written or report.clean_shutdown)
        self._is_as_found = not (report.is_damaged or report.truncated_bytes or report.rebuilt_indexes)
        is_spare_missing = len(self._producers) and len(snapshots(self._disk, self._folder)) < 2
        self.snapshot_due = bool(is_spare_missing) or self.recovery_point < report.end_offset
        if is_spare_missing and self._segments.segments[0].base_offset:
            # Only the other one says who wrote the deleted segments.
            with suppress(OSError):
                self.take_snapshot(report.end_offset)

    @property
    def covered_offset(self) -> int:
        """Two durable snapshots know all producers of what lies before; any offset if there are none."""
        older, newest = self._snapshots
        if newest >= 0 and not len(self._producers):
            return _EVERYTHING
        return older if newest <= self._segments.flushed_end_offset else -1

    def cover(self, offset: int) -> None:
        """Let the next checkpoints write snapshots until `covered_offset` is at least `offset`."""
        if self._snapshots[0] < offset:
            self._needed_offset, self.snapshot_due = max(self._needed_offset, offset), True

    def outdate_snapshots(self) -> None:
        """The snapshots say something else than the indexes of aborted transactions: another one is due."""
        self._producers.changes += 1
        self.snapshot_due = True

    def drop_before(self, start_offset: int, *, is_full: bool = False) -> bool:
        """Delete closed segments before `start_offset`, once their producers are in two snapshots.

        `is_full`: the disk has no space for a snapshot. Then the oldest segment is deleted first; only memory
        holds its producers until the snapshot is written. Returns whether more segments can be deleted at
        once: call again in another step of the loop.
        """
        covered = self.covered_offset
        wanted = at_once = 0
        for segment in self._segments.segments[:-1]:
            if segment.end_offset > start_offset:
                break
            wanted += 1
            at_once += segment.end_offset <= covered
        if at_once < wanted and self._snapshots[0] < self._segments.segments[wanted - 1].end_offset:
            self.cover(self._segments.segments[wanted - 1].end_offset)
            at_once = at_once or int(is_full)
        if at_once:
            self._segments.drop(min(at_once, DROPPED_AT_ONCE), self._deleted)
        return at_once > DROPPED_AT_ONCE

    def take_deleted_files(self) -> list[Path]:
        """Renamed files that wait to be unlinked."""
        deleted, self._deleted = self._deleted, []
        return deleted
