"""One clean of one log: reads the dirty part into an offset map, then writes the segments again without what
the map shows to be old.

Owns the reading, writing and pacing. The log continues meanwhile: only closed segments are read, by the files
that were open when the clean began, and what is written has names that are not part of the log.

Invariants: every batch that is read is checked (CRC, offset); a damaged one ends the clean, and nothing more
changes. Groups are written and swapped in from the oldest to the newest, so that a tombstone never goes
before the records that it deletes. The first dirty offset is saved after the last swap, so a clean that was
interrupted is done again.

In any thread, one call at a time. Source: Kafka's LogCleaner.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from tidelog.broker.storage.cleaned_offset import CleanedOffset
from tidelog.broker.storage.compaction.markers import Markers, Transactions
from tidelog.broker.storage.compaction.offset_map import OffsetMap
from tidelog.broker.storage.compaction.retention import COUNTED, Outcome, Rules
from tidelog.broker.storage.compaction.selection import Cleanable, groups
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.integrity import CorruptSegmentError, problem_of
from tidelog.broker.storage.local_segment import LocalSegment
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.segment_batches import batches_of
from tidelog.broker.storage.swap import CLEANED_SUFFIX, discard
from tidelog.protocol import records
from tidelog.protocol.errors import ProtocolError

_WRITE_BYTES = 1 << 20
_BUFFERS_PER_WRITE = 256
_LARGEST_POSITION = 2**31 - 1
_EVERYTHING = 2**63 - 1


class CleanStoppedError(Exception):
    """The broker stops: what was not swapped in is left out."""


class Pacing:
    """Bounds the bytes that cleans read and write per second, and ends them when the broker stops."""

    def __init__(self, max_bytes_per_second: float, stopping: Event) -> None:
        self._seconds_per_byte = 1 / max_bytes_per_second
        self._stopping = stopping
        self._free_at = 0.0

    def spend(self, size: int) -> None:
        """Wait until `size` more bytes may be read or written. Raises CleanStoppedError."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + size * self._seconds_per_byte
        if self._stopping.wait(self._free_at - now) if self._free_at > now else self._stopping.is_set():
            raise CleanStoppedError


@dataclass(slots=True)
class CleanStats:
    """What a clean did. Sizes in bytes."""

    first_dirty_offset: int = 0
    end_offset: int = 0
    map_keys: int = 0
    map_utilization: float = 0.0
    segments_before: int = 0
    segments_after: int = 0
    bytes_read: int = 0
    bytes_before: int = 0
    """Of the segments that were written again or found to be clean."""
    bytes_after: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CleanTask:
    """The log that a clean works on, as it is when the clean begins."""

    folder: Path
    disk: Disk
    segments: Sequence[LocalSegment]
    """All of the log; the last one grows."""
    cleaned: CleanedOffset
    config: LogConfig
    range: Cleanable
    stable_offset: int
    """No open transaction lies before it."""
    now_ms: int
    map_bytes: int


class LogClean:
    """`build_map` once, then `write` for each of `groups` in order."""

    def __init__(
        self, task: CleanTask, pacing: Pacing, last_offsets: array[int], producer_ids: array[int]
    ) -> None:
        """`last_offsets`: last offset of the last batch of each producer, ascending; `producer_ids`: of all
        that are remembered, ascending."""
        self._task = task
        self._pacing = pacing
        first, end = task.range.first_dirty_offset, task.range.end_offset
        self._offsets = OffsetMap(task.map_bytes, end - first)
        self._rules = Rules(self._offsets, task.now_ms, task.config.delete_retention_ms, last_offsets)
        self._transactions: Transactions | None = None
        self._markers = Markers(task.now_ms, task.config.delete_retention_ms, producer_ids)
        self._began = time.monotonic()
        self.stats = CleanStats(first_dirty_offset=first, end_offset=first)

    def build_map(self) -> None:
        """Read the dirty part, as far as its keys fit into the map.

        Raises OSError, CorruptSegmentError, CleanStoppedError.
        """
        first, end = self._task.range.first_dirty_offset, self._task.range.end_offset
        has_taken_all = True
        for number, segment in enumerate(self._task.segments):
            if segment.base_offset >= end or not has_taken_all:
                break
            if segment.end_offset <= first:
                continue
            for header, batch in self._batches(segment, first):
                has_taken_all = self._take(number, header, batch)
                if not has_taken_all:
                    break
        self.stats.end_offset = max(first, self._offsets.latest_offset + 1)
        self.stats.map_keys = len(self._offsets)
        self.stats.map_utilization = self._offsets.utilization

    def _take(self, number: int, header: records.BatchHeader, batch: bytes) -> bool:
        """Put a batch of segment `number` into the map; False when the map is full."""
        if header.is_control:
            self._markers.note_dirty(header)
        elif header.record_count and self._outcome(header, number) in COUNTED:
            data, start = records.record_bytes(
                batch, 0, header, records.DEFAULT_MAX_DECOMPRESSED_BYTES, check_crc=False
            )
            columns = records.columns_of(data, start, header)
            # A clean before this one may have ended within the batch.
            at = bisect_left(columns.offsets, self._task.range.first_dirty_offset)
            if not self._offsets.put_all(columns.keys[at:], columns.offsets[at:]):
                return False
        self._offsets.pass_over(header.last_offset)
        return True

    def _outcome(self, header: records.BatchHeader, number: int) -> Outcome:
        """What became of a batch's transaction. In the clean part that is not looked up again."""
        if not header.is_transactional:
            return Outcome.NONE
        if header.base_offset < self._task.range.first_dirty_offset:
            return Outcome.UNKNOWN
        if self._transactions is None:
            self._transactions = self._read_markers(number)
        return self._transactions.outcome_of(header)

    def _read_markers(self, number: int) -> Transactions:
        """The ends of all transactions from segment `number` on."""
        found = Transactions()
        for segment in self._task.segments[number:]:
            for header, batch in self._batches(segment):
                if header.last_offset >= self._task.stable_offset or found.is_full:
                    return found
                if header.is_control and header.record_count and header.producer_id >= 0:
                    try:
                        marker = records.read_marker(batch)
                    except ProtocolError:
                        continue  # A kind that this version does not know: it ends nothing.
                    found.note(header.producer_id, header.base_offset, is_commit=marker.is_commit)
        return found

    def groups(self) -> Iterator[list[LocalSegment]]:
        """The segments that become one each, the oldest group first.

        A segment with aborted transactions is not joined with others: it keeps its index of them.
        """
        task = self._task

        return groups(
            task.segments[:-1],
            self.stats.end_offset,
            task.config.segment_bytes,
            lambda segment: segment.transaction_index.count > 0,
        )

    def write(self, group: Sequence[LocalSegment]) -> LocalSegment | None:
        """What is left of a group, as a synced segment with CLEANED_SUFFIX; None if all of one segment is.

        Raises OSError, CorruptSegmentError, CleanStoppedError; then nothing is left behind.
        """
        task, first = self._task, group[0]
        new = LocalSegment(
            task.disk, task.folder, first.base_offset, first.created_ms, task.cleaned, is_new=True,
            suffix=CLEANED_SUFFIX,
        )  # fmt: skip
        try:
            # It has the file of the only old segment, or there is none.
            new.transaction_index.load(_EVERYTHING)
            has_changed = self._copy(group, new) or len(group) > 1
            aborted = new.transaction_index.without(self._markers.take_unneeded())
            has_changed |= aborted is not new.transaction_index
            if has_changed:
                new.seal()
                new.transaction_index = aborted
                modified_ms = task.disk.modified_ms(group[-1].path)
                task.disk.fdatasync(new.log.fd)
                for index in (new.time_index, new.offset_index):
                    index.sync()
                # Batches without timestamps age by it.
                task.disk.set_modified_ms(new.log.path, modified_ms)
        except BaseException:
            discard(task.disk, new)
            raise
        size = sum(segment.size_bytes for segment in group)
        self.stats.segments_before += len(group)
        self.stats.segments_after += 1
        self.stats.bytes_before += size
        self.stats.bytes_after += new.size_bytes
        self.stats.seconds = time.monotonic() - self._began
        if not has_changed:
            discard(task.disk, new)
            return None
        return new

    def _copy(self, group: Sequence[LocalSegment], new: LocalSegment) -> bool:
        """Write what is left of the group's batches; whether that is less, or other, than there was."""
        output = _Output(new, self._task, self._pacing)
        has_changed = False
        unread = sum(segment.size_bytes for segment in group)
        for segment in group:
            number = self._task.segments.index(segment)
            for header, batch in self._batches(segment):
                unread -= len(batch)
                is_last = not unread
                # A horizon makes a record of the smallest size longer by 10 bytes.
                may_grow = output.size_bytes + 3 * len(batch) + unread <= _LARGEST_POSITION
                try:
                    if header.is_control:
                        left = self._markers.left_of(batch, header, is_last=is_last, may_grow=may_grow)
                    else:
                        outcome = self._outcome(header, number)
                        left = self._rules.left_of(batch, header, outcome, is_last=is_last, may_grow=may_grow)
                except ProtocolError as error:
                    raise CorruptSegmentError(f"{segment.path}: {error}") from error
                is_data = header.is_transactional and not header.is_control
                if left and is_data and records.read_batch_header(left).is_transactional:
                    self._markers.note_left(header)
                has_changed |= left is not batch
                output.add(left)
        output.write()
        return has_changed

    def _batches(self, segment: LocalSegment, offset: int = 0) -> Iterator[tuple[records.BatchHeader, bytes]]:
        """The batches of a segment from the one that holds `offset` to its end as it is now, each checked."""
        size, end_offset = segment.tail
        place = segment.find(offset) if segment.base_offset < offset else None
        position, expected = (place.position, place.base_offset) if place else (0, segment.base_offset)
        for header, view in batches_of(segment, position, size):
            if isinstance(header, str):
                raise CorruptSegmentError(f"{segment.path}: {header}")
            problem = problem_of(header, view, 0, expected, self._task.cleaned.offset)
            if problem or header.last_offset >= end_offset:
                raise CorruptSegmentError(
                    f"{segment.path}: the batch at offset {header.base_offset} is damaged: {problem}"
                )
            expected = header.last_offset + 1
            self._pacing.spend(len(view))
            self.stats.bytes_read += len(view)
            yield header, bytes(view)


class _Output:
    """Batches on their way into a new segment, many in a write."""

    def __init__(self, segment: LocalSegment, task: CleanTask, pacing: Pacing) -> None:
        self._segment = segment
        self._task = task
        self._pacing = pacing
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._segment.size_bytes

    def add(self, batch: bytes) -> None:
        """`batch` is whole, or empty."""
        if not batch:
            return
        header = records.read_batch_header(batch)
        self._segment.note(
            self._segment.size_bytes,
            len(batch),
            header.last_offset,
            header.largest_timestamp,
            self._task.config.index_interval_bytes,
        )
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= _WRITE_BYTES or len(self._waiting) == _BUFFERS_PER_WRITE:
            self.write()

    def write(self) -> None:
        """Write what waits. Raises OSError, CleanStoppedError."""
        if self._waiting:
            self._pacing.spend(self._waiting_bytes)
            position = self._segment.size_bytes - self._waiting_bytes
            self._task.disk.write_all(self._segment.log.fd, self._waiting, position)
            self._waiting, self._waiting_bytes = [], 0
