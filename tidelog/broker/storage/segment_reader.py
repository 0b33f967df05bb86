"""What is read of a segment, wherever its bytes are: batches by offset, by time and by position.

Owns the search with the help of the indexes, and the check of bytes before a reader gets them. A subclass
says where the bytes are (`read_bytes`).

Invariants: an index entry is used only after the batch that it points to has confirmed it. Batches in
`unverified` are checked (CRC and offset) before a reader gets them.

Safe in any thread.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, dropwhile
from pathlib import Path
from struct import Struct

from tidelog.broker.storage.index import SparseIndex
from tidelog.broker.storage.integrity import CorruptSegmentError, good_prefix, may_follow
from tidelog.broker.storage.log_types import Read
from tidelog.broker.storage.segment import Place, Slice
from tidelog.broker.storage.transaction_index import TransactionIndex
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    LOG_OVERHEAD,
    batch_crc_is_valid,
    largest_timestamp,
    read_batch_header,
)
from tidelog.protocol.types import NO_TIMESTAMP

_WALK_BYTES = 8192
_VERIFIED_AT_ONCE = 1 << 20
"""The most bytes that are checked before a reader gets them, because that may run on the loop."""
_PLACE = Struct(">qi9xhiqq")


class SegmentReader(ABC):
    """Implements `Segment`. A subclass sets what is declared here."""

    base_offset: int
    path: Path
    """The name in messages."""
    tail: tuple[int, int]
    """Size in bytes and end offset, set together: a reader in a thread must see both of one moment."""
    flushed_tail: tuple[int, int]
    """The tail as of a flush: readers mostly read up to there."""
    unverified: tuple[int, int]
    """The bytes that were not checked yet: first position, end."""
    max_timestamp: int
    max_timestamp_offset: int
    offset_index: SparseIndex
    time_index: SparseIndex
    transaction_index: TransactionIndex

    @property
    def size_bytes(self) -> int:
        return self.tail[0]

    @property
    def end_offset(self) -> int:
        return self.tail[1]

    @property
    @abstractmethod
    def gaps_end_offset(self) -> int:
        """Up to here offsets may be missing between two batches: see `CleanedOffset`."""

    @abstractmethod
    def read_bytes(self, position: int, size: int, *, nowait: bool = False) -> memoryview:
        """Raises OSError, and ColdRead with `nowait`."""

    def map_bytes(self, position: int, size: int) -> memoryview | None:
        """As `OpenFile.mapped`: None where they have to be read."""
        return None

    def walk(self, position: int, *, nowait: bool = False) -> Iterator[Place]:
        """Batches from `position`, which must be the start of one, to the end as it is at the first step.

        Raises CorruptSegmentError.
        """
        end, end_offset = self.tail
        cleaned_offset = self.gaps_end_offset
        expected = self.base_offset if position == 0 else None
        chunk, chunk_at = memoryview(b""), position
        while position < end:
            at = position - chunk_at
            if at + _PLACE.size > len(chunk):
                chunk_at, at = position, 0
                chunk = self.read_bytes(position, min(_WALK_BYTES, end - position), nowait=nowait)
                if len(chunk) < BATCH_HEADER_SIZE:
                    raise CorruptSegmentError(f"{self.path}: no batch header at byte {position} of {end}")
            base_offset, length, attributes, delta, first_timestamp, max_timestamp = _PLACE.unpack_from(
                chunk, at
            )
            size = length + LOG_OVERHEAD
            if size < BATCH_HEADER_SIZE or position + size > end or not 0 <= delta < end_offset - base_offset:
                raise CorruptSegmentError(
                    f"{self.path}: the bytes at {position} are no batch (length {length}, {end - position}"
                    f" bytes left; offset {base_offset} and {delta} more, the segment ends at {end_offset})"
                )
            if expected is not None and not may_follow(base_offset, expected, cleaned_offset):
                raise CorruptSegmentError(
                    f"{self.path}: byte {position}: expected a batch of offset {expected}, got {base_offset}"
                )
            expected = base_offset + delta + 1
            latest = largest_timestamp(attributes, first_timestamp, max_timestamp)
            yield Place(position, size, base_offset, base_offset + delta, latest)
            position += size

    def find(self, offset: int, *, nowait: bool = False) -> Place | None:
        """The first batch whose last offset is at least `offset`, or None."""
        entry = self.offset_index.floor(offset - self.base_offset, nowait=nowait)
        for place in self.walk_from_entry(entry, nowait=nowait):
            if place.last_offset >= offset:
                return place
        return None

    def walk_from_entry(self, entry: tuple[int, int] | None, *, nowait: bool = False) -> Iterator[Place]:
        """Batches from an entry of the offset index, or from the start when the batch contradicts it."""
        if entry is not None and 0 <= entry[1] < self.size_bytes:
            walk = self.walk(entry[1], nowait=nowait)
            with suppress(CorruptSegmentError):
                place = next(walk)
                if place.last_offset == self.base_offset + entry[0]:
                    return chain((place,), walk)
        return self.walk(0, nowait=nowait)

    def batches(self, offset: int, timestamp_ms: int = NO_TIMESTAMP) -> Iterator[Place]:
        """As `Segment`."""
        first = offset - self.base_offset
        if timestamp_ms >= 0:
            entry = self.time_index.floor(timestamp_ms)
            if entry is not None and self.time_entry_holds(entry):
                first = max(first, entry[1])
        walk = self.walk_from_entry(self.offset_index.floor(first))
        return dropwhile(lambda place: place.last_offset < offset, walk)

    def read_batch(self, place: Place) -> memoryview:
        """As `Segment`."""
        data = self.read_bytes(place.position, place.size_bytes)
        if not batch_crc_is_valid(data, read_batch_header(data)):
            raise CorruptSegmentError(f"{self.path}: the batch at byte {place.position} is damaged")
        return data

    def read(self, wanted: Read, start: int | None = None) -> Slice | None:
        """As `Segment`."""
        offset, max_bytes, upper_offset, at_least_one, nowait, is_sent = wanted
        if offset == self.base_offset:
            start = 0
        if start is None:
            found = self.find(offset, nowait=nowait)
            if found is None:
                return None
            start, offset = found.position, found.base_offset
        unverified, unverified_end = self.unverified
        is_verified = not unverified <= start < unverified_end
        if not is_verified:
            max_bytes = min(max_bytes, _VERIFIED_AT_ONCE)
        elif start < unverified < unverified_end:
            max_bytes = min(max_bytes, unverified - start)
        upper_position = None
        (size, end_offset), (flushed_size, flushed_end_offset) = self.tail, self.flushed_tail
        if upper_offset >= end_offset:
            upper_position, upper_offset = size, end_offset
        elif upper_offset == flushed_end_offset:
            upper_position = flushed_size
        if upper_position is not None and upper_position <= start + max_bytes:
            cut, next_offset = upper_position, upper_offset
        else:
            cut, next_offset = self._cut(start, start + max_bytes, upper_offset, nowait=nowait)
            if cut == start and at_least_one:
                first = next(self.walk(start, nowait=nowait))
                if first.last_offset < upper_offset:
                    cut, next_offset = first.end, first.last_offset + 1
        if cut <= start:
            return None
        data = self.map_bytes(start, cut - start) if is_sent and nowait and is_verified else None
        is_mapped = data is not None
        if data is None:
            data = self.read_bytes(start, cut - start, nowait=nowait)
        if len(data) != cut - start:
            raise CorruptSegmentError(
                f"{self.path}: expected {cut - start} bytes at {start}, got {len(data)}"
            )
        if not start and is_verified:
            # Elsewhere the batch before it says where it begins. Only system calls may read what is mapped.
            head = self.read_bytes(0, BATCH_HEADER_SIZE, nowait=nowait) if is_mapped else data
            base_offset, length, _, delta, _, _ = _PLACE.unpack_from(head)
            if (
                base_offset != self.base_offset
                or not BATCH_HEADER_SIZE <= length + LOG_OVERHEAD <= size
                or not 0 <= delta < end_offset - base_offset
            ):
                next(self.walk(0, nowait=nowait), None)  # Says what is wrong, if anything is.
        return Slice(data, next_offset, cut) if is_verified else self._verified(data, start, offset)

    def _verified(self, data: memoryview, start: int, first_offset: int) -> Slice:
        """The leading good batches of `data`. Raises CorruptSegmentError when already the first is not."""
        position, next_offset, problem = good_prefix(data, first_offset, self.gaps_end_offset)
        if problem and not position:
            raise CorruptSegmentError(f"{self.path}: the batch at byte {start} is damaged: {problem}")
        first, end = self.unverified
        if start == first:
            self.unverified = (start + position, end)
        return Slice(data[:position], next_offset, start + position)

    def _cut(self, start: int, limit: int, upper_offset: int, *, nowait: bool) -> tuple[int, int]:
        """The last position up to `limit` where a batch ends below `upper_offset`, and the offset there."""
        entry = self.offset_index.floor(limit, 1, nowait=nowait)
        if entry is not None and entry[0] + self.base_offset >= upper_offset:
            entry = self.offset_index.floor(upper_offset - 1 - self.base_offset, nowait=nowait)
        walk = self.walk(start, nowait=nowait)
        if entry is not None and start < entry[1] <= limit:
            walk = self.walk_from_entry(entry, nowait=nowait)
        cut, next_offset = start, -1
        try:
            for place in walk:
                if place.position < start:
                    continue
                if place.end > limit or place.last_offset >= upper_offset:
                    return place.position, place.base_offset
                cut, next_offset = place.end, place.last_offset + 1
        except CorruptSegmentError:
            if cut == start:
                raise  # Else what lies before the damage is given.
        return cut, next_offset

    def time_entry_holds(self, entry: tuple[int, int]) -> bool:
        """Whether the batch that an entry of the time index names confirms it."""
        expected = (self.base_offset + entry[1], entry[0])
        place = self.find(expected[0])
        return place is not None and (place.last_offset, place.max_timestamp) == expected
