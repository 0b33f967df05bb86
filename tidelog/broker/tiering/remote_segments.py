"""Segments in remote storage, read by ranges through caches.

Owns the caches of a broker: blocks of segments, so that a consumer that reads on costs one request per
`BLOCK_BYTES`, and indexes, whole. Invariants: each cache holds at most its limit, and one entry at least;
what is read is checked (CRC and offsets) each time, as of a local segment that was never read; blocks of a
segment in which that finds damage do not stay in the cache.

In any thread. Raises OSError if the store fails, CorruptSegmentError for damage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from crc32c import crc32c

from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from tidelog.broker.storage.integrity import CorruptSegmentError
from tidelog.broker.storage.log_types import Read
from tidelog.broker.storage.segment import Place, Slice
from tidelog.broker.storage.segment_reader import SegmentReader
from tidelog.broker.storage.transaction_index import TransactionIndex
from tidelog.protocol.types import NO_TIMESTAMP
from tidelog.remote_log.manifest import INDEXES_SUFFIX, LOG_SUFFIX, CopiedSegment
from tidelog.remote_log.object_store import ObjectStore

BLOCK_BYTES = 4 << 20
_ValueT = TypeVar("_ValueT")


class ByteCache(Generic[_ValueT]):
    """The values that were used last, within a number of bytes."""

    def __init__(self, most_bytes: int) -> None:
        self.size_bytes = 0
        self._most_bytes = most_bytes
        self._values: dict[object, tuple[_ValueT, int]] = {}
        self._lock = threading.Lock()

    def get(self, key: object, load: Callable[[], tuple[_ValueT, int]]) -> _ValueT:
        """The value of a key. `load` gives it and its size, where it is not here."""
        with self._lock:
            known = self._values.pop(key, None)
            if known is not None:
                self._values[key] = known
                return known[0]
        value, size = load()
        with self._lock:
            if (before := self._values.pop(key, None)) is not None:
                self.size_bytes -= before[1]
            self._values[key] = (value, size)
            self.size_bytes += size
            while self.size_bytes > self._most_bytes and len(self._values) > 1:
                oldest = next(iter(self._values))
                self.size_bytes -= self._values.pop(oldest)[1]
        return value

    def drop(self, is_dropped: Callable[[Any], bool]) -> None:
        """Forget the values of these keys."""
        with self._lock:
            for key in list(filter(is_dropped, self._values)):
                self.size_bytes -= self._values.pop(key)[1]


class RemoteReader:
    """Reads the remote segments of one broker, through its caches."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        block_cache_bytes: int,
        index_cache_bytes: int,
        note_read: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`note_read` is called with the size of each range that the store gave."""
        self.store = store
        self._blocks: ByteCache[memoryview] = ByteCache(block_cache_bytes)
        self._indexes: ByteCache[_OpenedSegment] = ByteCache(index_cache_bytes)
        self._note_read = note_read

    def read(self, name: str, position: int, size: int, end: int) -> memoryview:
        """Bytes of an object of `end` bytes."""
        size = min(size, end - position)
        parts = []
        while size > 0:
            number, at = divmod(position, BLOCK_BYTES)
            part = self._block(name, number, end)[at : at + size]
            if not part:
                break
            parts.append(part)
            position += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _block(self, name: str, number: int, end: int) -> memoryview:
        def load() -> tuple[memoryview, int]:
            start = number * BLOCK_BYTES
            data = memoryview(self.store.get_range(name, start, min(BLOCK_BYTES, end - start)))
            self._note_read(len(data))
            return data, len(data)

        return self._blocks.get((name, number), load)

    @contextmanager
    def checking(self, name: str) -> Iterator[None]:
        """Damage may have come about on the way: then the next read asks the store again."""
        try:
            yield
        except CorruptSegmentError:
            self._blocks.drop(lambda key: bool(key[0] == name))
            raise

    def opened(self, path: str, copied: CopiedSegment) -> _OpenedSegment:
        def load() -> tuple[_OpenedSegment, int]:
            size = sum(copied.index_sizes)
            data = self.store.get(path + INDEXES_SUFFIX, size + 1)
            self._note_read(len(data))
            if len(data) != size or crc32c(data) != copied.indexes_crc:
                raise CorruptSegmentError(f"{path}{INDEXES_SUFFIX} is damaged: its checksum is wrong")
            return _OpenedSegment(self, path, copied, data), len(data)

        return self._indexes.get(path, load)


class _OpenedSegment(SegmentReader):
    """A remote segment with its indexes in memory."""

    def __init__(self, reader: RemoteReader, path: str, copied: CopiedSegment, indexes: bytes) -> None:
        self._reader = reader
        self._object = path + LOG_SUFFIX
        self.path = Path(self._object)
        self.base_offset = copied.base_offset
        self.tail = self.flushed_tail = (copied.size_bytes, copied.end_offset)
        self.unverified = (-1, copied.size_bytes)
        self.max_timestamp, self.max_timestamp_offset = copied.max_timestamp, copied.max_timestamp_offset
        disk = Disk()
        self.offset_index = SparseIndex(disk, self.path, OFFSET_ENTRY)
        self.time_index = SparseIndex(disk, self.path, TIME_ENTRY)
        self.transaction_index = TransactionIndex(disk, self.path)
        offsets, times, _ = copied.index_sizes
        self.offset_index.take(indexes[:offsets])
        self.time_index.take(indexes[offsets : offsets + times])
        self.transaction_index.take(indexes[offsets + times :])

    @property
    def gaps_end_offset(self) -> int:
        """A log may have been compacted before it was tiered."""
        return self.end_offset

    def read_bytes(self, position: int, size: int, *, nowait: bool = False) -> memoryview:
        return self._reader.read(self._object, position, size, self.size_bytes)


class RemoteSegment:
    """Implements `Segment`, and loads nothing before it has to."""

    def __init__(self, reader: RemoteReader, path: str, copied: CopiedSegment) -> None:
        self._reader = reader
        self._path = path
        self._copied = copied
        self.base_offset = copied.base_offset
        self.end_offset = copied.end_offset
        self.max_timestamp = copied.max_timestamp
        self.max_timestamp_offset = copied.max_timestamp_offset

    @property
    def transaction_index(self) -> RemoteSegment:
        return self

    @property
    def count(self) -> int:
        """As `AbortedTransactions`, with those whose markers come later."""
        return self._copied.aborted_count

    def aborted(
        self, offset: int, upper_offset: int, *, nowait: bool = False
    ) -> tuple[list[tuple[int, int]], bool]:
        """All of them: see `copying`."""
        return self._opened.transaction_index.aborted(offset, upper_offset)[0], True

    @property
    def _opened(self) -> _OpenedSegment:
        return self._reader.opened(self._path, self._copied)

    def read(self, wanted: Read, start: int | None = None) -> Slice | None:
        with self._checking:
            return self._opened.read(wanted._replace(nowait=False), start)

    def batches(self, offset: int, timestamp_ms: int = NO_TIMESTAMP) -> Iterator[Place]:
        with self._checking:
            yield from self._opened.batches(offset, timestamp_ms)

    def read_batch(self, place: Place) -> memoryview:
        with self._checking:
            return self._opened.read_batch(place)

    @property
    def _checking(self) -> AbstractContextManager[None]:
        return self._reader.checking(self._path + LOG_SUFFIX)
