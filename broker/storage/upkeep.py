"""What keeps a start after a crash short and a folder small: checkpoints, snapshots, deletion of segments.

Owns the recovery point, when a snapshot is due, and which closed segments may leave the disk.

Invariants:
- the recovery point never passes what is durable, indexes included; once a sync of indexes failed it
  stays where it is, for a later success would prove nothing;
- a segment leaves only when a durable snapshot knows the producers that wrote it, unless the disk is so
  full that none can be written;
- a snapshot may run ahead of what is durable: one that knows more than the log that a crash left is
  thrown away by recovery.

Used by `partition_log` alone, on the loop.
"""

from __future__ import annotations

from pathlib import Path

from broker.storage.disk import Disk
from broker.storage.log_segments import LogSegments
from broker.storage.log_types import CheckpointWork
from broker.storage.producer_state import ProducerStates
from broker.storage.snapshot import write_snapshot

_SNAPSHOT_EVERY_BYTES = 16 << 20
"""So much at most is replayed from headers, or four times the snapshot's size where that is more."""


class Upkeep:
    """One log's checkpoints and deletions."""

    def __init__(
        self,
        folder: Path,
        disk: Disk,
        segments: LogSegments,
        producers: ProducerStates,
        snapshot_offset: int,
    ) -> None:
        self.recovery_point = 0
        self.snapshot_offset = snapshot_offset
        """Offset of the newest durable snapshot, -1 without one."""
        self.snapshot_due = False
        self.bytes_since_snapshot = 0
        self._folder = folder
        self._disk = disk
        self._segments = segments
        self._producers = producers
        self._snapshot_bytes = 0
        self._is_running = False
        self._indexes_failed = False
        self._deleted: list[Path] = []

    def begin(self, end_offset: int) -> CheckpointWork | None:
        """What a checkpoint has to write, or None; see `PartitionLog.begin_checkpoint`."""
        is_due = self.snapshot_due or self.bytes_since_snapshot > max(
            _SNAPSHOT_EVERY_BYTES, 4 * self._snapshot_bytes
        )
        is_behind = self.recovery_point < self._segments.flushed_end_offset and not self._indexes_failed
        if self._is_running or not (is_due or is_behind):
            return None
        self._is_running = True
        work = self._segments.begin_checkpoint()
        if is_due:
            work.snapshot, work.snapshot_offset = self._producers.freeze(), end_offset
            self.snapshot_due, self.bytes_since_snapshot = False, 0
        return work

    def finish(self, work: CheckpointWork, error: OSError | None) -> None:
        """Take over what `work` achieved."""
        self._is_running = False
        if work.snapshot is not None:
            self._producers.thaw()
            if work.snapshot_bytes:
                self.snapshot_offset, self._snapshot_bytes = work.snapshot_offset, work.snapshot_bytes
            else:
                self.snapshot_due = True
        if error is None:
            self._segments.finish_checkpoint(work)
        self._indexes_failed |= not work.indexes_durable
        if not self._indexes_failed:
            self.recovery_point = max(self.recovery_point, work.recovery_point)

    def take_snapshot(self, end_offset: int) -> None:
        """Write the producer state as of `end_offset`, now. Raises OSError."""
        size = write_snapshot(self._disk, self._folder, end_offset, self._producers.view())
        self.snapshot_offset, self._snapshot_bytes = end_offset, size
        self.snapshot_due, self.bytes_since_snapshot = False, 0

    def drop_before(self, start_offset: int, *, anyway: bool = False) -> None:
        """Delete closed segments before `start_offset`, once what they say of producers is in a snapshot.

        `anyway`: the disk is too full for one; the state is in memory and is written when there is room.
        """
        count = 0
        for segment in self._segments.segments[:-1]:
            if segment.end_offset > start_offset:
                break
            if segment.end_offset > self.snapshot_offset and len(self._producers) and not anyway:
                self.snapshot_due = True
                break
            count += 1
        if count:
            self._deleted += self._segments.drop(count)

    def take_deleted_files(self) -> list[Path]:
        """Renamed files that wait to be unlinked."""
        deleted, self._deleted = self._deleted, []
        return deleted
