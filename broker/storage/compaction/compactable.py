"""What an open log gives to a cleaner, and takes back from it.

Owns the first dirty offset of the log and its file `cleaner-offset-checkpoint`: Kafka's name and format with
one offset, in the partition's folder, so that it is deleted with the partition. All before it went through
the offset map of a clean.

Invariants: the first dirty offset never comes after the end of the log, so that appends after a truncation
are dirty; the cleaned offset is durable before a file with gaps takes its place; the segments of a swap stay
in the log until it is done.

`swap` runs in a thread, the rest on the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tidelog.broker.storage.checkpoints import CheckpointError, read_cleaned_offset, write_cleaned_offset
from tidelog.broker.storage.cleaned_offset import CleanedOffset
from tidelog.broker.storage.compaction.cleaner import CleanTask
from tidelog.broker.storage.compaction.selection import Cleanable, cleanable
from tidelog.broker.storage.compaction.swap import discard, swap_in
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.log_segments import LogSegments
from tidelog.broker.storage.segment import Segment
from tidelog.broker.storage.upkeep import Upkeep

FIRST_DIRTY_OFFSET = "cleaner-offset-checkpoint"


class Compactable:
    """Of one log."""

    def __init__(
        self,
        folder: Path,
        disk: Disk,
        segments: LogSegments,
        upkeep: Upkeep,
        cleaned: CleanedOffset,
    ) -> None:
        """Blocking. Raises OSError."""
        self._folder = folder
        self._disk = disk
        self._segments = segments
        self._upkeep = upkeep
        self._cleaned = cleaned
        self._path = folder / FIRST_DIRTY_OFFSET
        self._deleted: list[Path] = []
        try:
            self.first_dirty_offset = read_cleaned_offset(disk, self._path)
        except CheckpointError:
            self.first_dirty_offset = 0  # All is cleaned again.
        if self.first_dirty_offset > segments.active.end_offset:
            self.save_first_dirty(0)

    def cleanable(self, config: LogConfig, stable_offset: int, now_ms: int) -> Cleanable:
        """What may be cleaned now. Nothing at or after `stable_offset` is touched.

        Where producers of more are in no snapshot yet, it asks for one.
        """
        segments = self._segments.segments
        stable_offset = min(stable_offset, self._segments.flushed_end_offset)
        closed_end = segments[-1].base_offset
        if len(segments) > 1 and self._upkeep.covered_offset < closed_end:
            self._upkeep.cover(closed_end)
        return cleanable(
            segments,
            first_dirty_offset=self.first_dirty_offset,
            stable_offset=stable_offset,
            covered_offset=self._upkeep.covered_offset,
            config=config,
            now_ms=now_ms,
        )

    def first_timestamps(self, found: Cleanable) -> list[int]:
        """Those with which the dirty segments that may be cleaned begin; -1 for none. In any thread.

        Raises OSError, CorruptSegmentError.
        """
        times = []
        for segment in self._segments.segments:
            if found.first_dirty_offset < segment.end_offset <= found.end_offset and segment.size_bytes:
                try:
                    times.append(next(segment.walk(0)).max_timestamp)
                except OSError:
                    if not segment.log.is_closed:  # Else it was deleted meanwhile.
                        raise
        return times

    def begin(
        self, config: LogConfig, found: Cleanable, stable_offset: int, now_ms: int, map_bytes: int
    ) -> CleanTask:
        """A clean of what was found."""
        segments = self._segments.segments
        return CleanTask(
            self._folder, self._disk, segments, self._cleaned, config, found, stable_offset, now_ms, map_bytes
        )

    def begin_swap(self, old: Sequence[Segment]) -> bool:
        """Keep the old segments; False if the log has lost one since, and there is nothing to swap."""
        if not self._segments.begin_swap(old):
            return False
        self._cleaned.allow(old[-1].end_offset)
        return True

    def swap(self, old: Sequence[Segment], new: Segment) -> None:
        """Change the files. Raises OSError where nothing has changed, and HalfSwappedError."""
        try:
            self._cleaned.save(old[-1].end_offset)
        except OSError:
            discard(self._disk, new)
            raise
        self._deleted += swap_in(self._disk, self._folder, old, new)

    def finish_swap(self, old: Sequence[Segment], new: Segment | None) -> None:
        """`swap` has returned; None where it raised."""
        self._segments.finish_swap(old, new)

    def take_deleted_files(self) -> list[Path]:
        """Renamed files that wait to be unlinked."""
        deleted, self._deleted = self._deleted, []
        return deleted

    def save_first_dirty(self, offset: int) -> None:
        """All before `offset` went through a map and was swapped in. Blocking; raises OSError."""
        write_cleaned_offset(self._disk, self._path, offset)
        self.first_dirty_offset = offset
