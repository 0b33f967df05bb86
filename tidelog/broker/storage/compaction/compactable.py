"""The interface between an open log and its cleaner.

Owns the first dirty offset of the log and its file `cleaner-offset-checkpoint`: Kafka's name and format with
one offset, in the partition's folder, so that it is deleted with the partition.

Invariants: the first dirty offset never comes after the end of the log, so that appends after a truncation
are dirty; the cleaned offset is durable before a file with gaps takes its place; the segments of a swap stay
in the log until it is done.

`swap` runs in a thread, the rest on the event loop.
"""

from collections.abc import Sequence
from pathlib import Path

from tidelog.broker.storage import checkpoints
from tidelog.broker.storage.cleaned_offset import CleanedOffset
from tidelog.broker.storage.compaction.cleaner import CleanTask
from tidelog.broker.storage.compaction.selection import Cleanable, cleanable
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.local_segment import LocalSegment
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.log_segments import LogSegments
from tidelog.broker.storage.swap import discard, swap_in
from tidelog.broker.storage.upkeep import Upkeep


class Compactable:
    """Tells what of one open log may be cleaned, and swaps its segments for the cleaned ones."""

    def __init__(
        self, folder: Path, disk: Disk, segments: LogSegments, upkeep: Upkeep, cleaned: CleanedOffset
    ) -> None:
        """Blocking. Raises OSError."""
        self._folder = folder
        self._disk = disk
        self._segments = segments
        self._upkeep = upkeep
        self._cleaned = cleaned
        self._path = folder / checkpoints.FIRST_DIRTY_OFFSET
        self._deleted: list[Path] = []
        self._has_lost_aborted = False
        try:
            self.first_dirty_offset = checkpoints.read_number(disk, self._path)
        except checkpoints.CheckpointError:
            self.first_dirty_offset = 0  # All is cleaned again.
        if self.first_dirty_offset > segments.active.end_offset:
            self.save_first_dirty(0)

    def cleanable(self, config: LogConfig, stable_offset: int, now_ms: int) -> Cleanable:
        """What may be cleaned, once `is_covered`. Nothing at or after `stable_offset` is touched."""
        return cleanable(
            self._segments.segments,
            first_dirty_offset=self.first_dirty_offset,
            stable_offset=min(stable_offset, self._segments.flushed_end_offset),
            config=config,
            now_ms=now_ms,
        )

    def is_covered(self, found: Cleanable) -> bool:
        """Whether snapshots have the producers of what may be cleaned. If not, the next checkpoint writes
        them, and they count once all that the log holds then is flushed."""
        if self._upkeep.covered_offset < found.end_offset:
            self._upkeep.cover(found.end_offset)
            return False
        return True

    def first_timestamps(self, found: Cleanable) -> list[int]:
        """Those with which the dirty segments that may be cleaned begin; -1 for none. In any thread.

        Raises OSError, CorruptSegmentError.
        """
        return [
            next(segment.walk(0)).max_timestamp
            for segment in self._segments.segments
            if found.first_dirty_offset < segment.end_offset <= found.end_offset and segment.size_bytes
        ]

    def begin(
        self, config: LogConfig, found: Cleanable, stable_offset: int, now_ms: int, map_bytes: int
    ) -> CleanTask:
        """A clean of what was found. If the log loses a segment meanwhile, any of its steps may fail."""
        segments = self._segments.segments
        return CleanTask(
            self._folder, self._disk, segments, self._cleaned, config, found, stable_offset, now_ms, map_bytes
        )

    def has_lost_segments(self, found: Cleanable) -> bool:
        """Whether segments were deleted since `found` was."""
        return self._segments.segments[0].base_offset > found.start_offset

    def present(self, group: Sequence[LocalSegment]) -> list[LocalSegment]:
        """The segments of a group that were not deleted since the clean began. They are a group, too."""
        return [each for each in group if each.base_offset >= self._segments.segments[0].base_offset]

    def begin_swap(self, old: Sequence[LocalSegment]) -> bool:
        """Keep the old segments; False if the log has lost one since, and there is nothing to swap."""
        if not self._segments.begin_swap(old):
            return False
        self._cleaned.allow(old[-1].end_offset)
        return True

    def swap(self, old: Sequence[LocalSegment], new: LocalSegment) -> None:
        """Change the files. Raises OSError if nothing has changed, and HalfSwappedError."""
        first = old[0]
        try:
            self._cleaned.save(old[-1].end_offset)
            # Before the markers go. In memory it is right from now on, also if the file cannot be written.
            self._has_lost_aborted |= new.transaction_index.count < first.transaction_index.count
            first.transaction_index = new.transaction_index
            new.transaction_index.save()
        except OSError:
            discard(self._disk, new)
            raise
        self._deleted += swap_in(self._disk, self._folder, old, new)

    def finish_swap(self, old: Sequence[LocalSegment], new: LocalSegment | None) -> None:
        """`swap` has returned; None if it raised."""
        self._segments.finish_swap(old, new)

    def needs_snapshot(self) -> bool:
        """Whether swaps since the last call took aborted transactions out of an index. A start compares the
        indexes with the newest snapshot, so the next checkpoint writes another one."""
        needs, self._has_lost_aborted = self._has_lost_aborted, False
        if needs:
            self._upkeep.outdate_snapshots()
        return needs

    def take_deleted_files(self) -> list[Path]:
        """Renamed files that wait to be unlinked."""
        deleted, self._deleted = self._deleted, []
        return deleted

    def save_first_dirty(self, offset: int) -> None:
        """All before `offset` went through a map and was swapped in. Blocking; raises OSError."""
        checkpoints.write_number(self._disk, self._path, offset)
        self.first_dirty_offset = offset
