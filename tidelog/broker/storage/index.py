"""The index files of a segment, and Kafka's two sparse ones in its formats: `.index` and `.timeindex`.

Owns the entries and their files. `.index`: relative offset i32, position i32; the offset is that of the last
record of the batch that starts at the position. `.timeindex`: timestamp i64, relative offset i32; no record
at or before the offset is younger than the timestamp. Both fields of both ascend strictly.

Invariants: the entries of the active segment are in memory. A checkpoint, a roll and a close write them to
the file, which is open only meanwhile. The entries of a closed segment are read from the file. A caller
compares an entry with the batch that it points to, so a wrong entry costs time, not correctness.

Look-ups are safe in any thread; everything else belongs to the loop.
"""

import os
import threading
from pathlib import Path
from struct import Struct
from typing import Generic, TypeVar

from tidelog.broker.storage.disk import Disk, OpenFile

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
EntryT = TypeVar("EntryT", bound=tuple[int, ...])
_OPENING = threading.Lock()


class IndexFile(Generic[EntryT]):
    """Entries of one size in ascending order, in memory or in their file."""

    __slots__ = ("_disk", "_entries", "_file", "_is_as_loaded", "count", "entry", "path", "written")

    def __init__(self, disk: Disk, path: Path, entry: Struct) -> None:
        self.entry = entry
        self.count = 0
        self.written = 0
        """Bytes that the file holds for certain."""
        self._disk = disk
        self.path = path
        self._entries: bytearray | None = bytearray()
        self._file: OpenFile | None = None
        # Whether the file holds just these entries, or there is neither a file nor an entry.
        self._is_as_loaded = False

    @property
    def exists(self) -> bool:
        return self._disk.exists(self.file_path)

    @property
    def file_path(self) -> Path:
        return self.path

    def _add(self, packed: bytes) -> None:
        if self._entries is None:
            self._entries = bytearray(self._read(0, self.count))
        self._is_as_loaded = False
        self._entries += packed
        self.count += 1

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries. The file follows at the next `write_out`."""
        if self._entries is None:
            self._entries = bytearray(self._read(0, self.count))
        self._is_as_loaded &= count >= self.count
        del self._entries[count * self.entry.size :]
        self.count = count
        self.written = min(self.written, len(self._entries))

    def at(self, number: int, *, nowait: bool = False) -> EntryT:
        """Entry `number`, which must exist."""
        entries = self._entries
        if entries is not None:
            return self.entry.unpack_from(entries, number * self.entry.size)  # type: ignore[return-value]
        return self.entry.unpack(self._read(number, 1, nowait=nowait))  # type: ignore[return-value]

    def whole(self) -> bytes:
        """All entries as in the file. Raises OSError."""
        if self._entries is None and self.count:
            return self._read(0, self.count)
        return bytes(self._entries or b"")

    def take(self, data: bytes) -> None:
        """Hold these entries in memory. The last may be cut off, and is left out then."""
        self.count = len(data) // self.entry.size
        self._entries = bytearray(data[: self.count * self.entry.size])

    def last(self) -> EntryT | None:
        return self.at(self.count - 1) if self.count else None

    def keep_below(self, value: int, field: int) -> None:
        """Forget the entries whose field `field`, by which they ascend, is `value` or more."""
        self.truncate(self._count_up_to(value - 1, field))

    def _count_up_to(self, value: int, field: int, *, nowait: bool = False) -> int:
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.at(middle, nowait=nowait)[field] <= value:
                low = middle + 1
            else:
                high = middle
        return low

    def pending(self) -> tuple[bytes, int]:
        """What the file lacks, and the position where it belongs."""
        if self._entries is None:
            return b"", self.written
        return bytes(memoryview(self._entries)[self.written :]), self.written

    @property
    def is_written(self) -> bool:
        """Whether the file lacks nothing."""
        return self.written == self.count * self.entry.size

    def acquire(self) -> OpenFile | None:
        """The file, kept open until its `release`; None when the index is closed."""
        file = self._open()
        return file if file.acquire() else None

    def note_written(self, size: int) -> None:
        """The file holds the first `size` bytes by now."""
        self.written = max(self.written, min(size, self.count * self.entry.size))

    def write_out(self) -> None:
        """Make the file equal to the entries in memory; without any there need be none."""
        if self._entries is None or self._is_as_loaded:
            return
        data, position = self.pending()
        file = self._open()
        if data:
            self._disk.write_all(file.fd, [data], position)
        self._disk.truncate(file.fd, position + len(data))
        self.written = position + len(data)

    def write_out_whole(self) -> None:
        """`write_out`, which makes the file even without an entry."""
        self._is_as_loaded &= self.exists
        self.write_out()

    def leave_memory(self) -> None:
        """The segment is closed and all is written out: forget the copy in memory."""
        self._entries = None

    def sync(self) -> None:
        self._disk.fdatasync(self._open().fd)

    def rest(self) -> None:
        """Close the file if the entries are in memory: the next write opens it again."""
        if self._entries is not None:
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> OpenFile:
        file = self._file
        if file is None:
            with _OPENING:
                file = self._file
                if file is None:
                    path = self.file_path
                    # It exists if it is to be read; that of a deleted segment must not come back.
                    flags = os.O_RDWR | (0 if self._entries is None else os.O_CREAT)
                    file = self._file = OpenFile(self._disk, path, self._disk.open(path, flags))
        return file

    def _read(self, number: int, count: int, *, nowait: bool = False) -> bytes:
        size = count * self.entry.size
        data = bytes(self._open().read(size, number * self.entry.size, nowait=nowait))
        if len(data) != size:
            raise OSError(f"{self.file_path}: entry {number} is beyond the end of the file")
        return data


class SparseIndex(IndexFile[tuple[int, int]]):
    """`entry` is OFFSET_ENTRY or TIME_ENTRY."""

    __slots__ = ()

    def load_sealed(self) -> bool:
        """Use the file of a closed segment as it is; False when it is missing or of an odd size."""
        if not self.exists:
            return False
        size = self._disk.size(self._open().fd)
        if size % self.entry.size:
            return False
        self.count = size // self.entry.size
        self.written = size
        self._entries = None
        return True

    def load_active(self, first_limit: int, second_limit: int) -> bool:
        """Read the leading entries that ascend and stay below the limits; False when any was left out."""
        if not self.exists:
            self._is_as_loaded = True
            return False
        data = self._disk.read_file(self.path)
        whole = len(data) // self.entry.size
        first, second = -(1 << 62), -1
        count = 0
        for key, value in self.entry.iter_unpack(data[: whole * self.entry.size]):
            if not (first < key < first_limit and second < value < second_limit):
                break
            first, second = key, value
            count += 1
        self._entries = bytearray(data[: count * self.entry.size])
        self.count = count
        self.written = len(self._entries)
        self._is_as_loaded = count * self.entry.size == len(data)
        return self._is_as_loaded

    def append(self, first: int, second: int) -> None:
        self._add(self.entry.pack(first, second))

    def floor(self, value: int, field: int = 0, *, nowait: bool = False) -> tuple[int, int] | None:
        """The last entry whose field 0 or 1 is at most `value`, or None."""
        number = self._count_up_to(value, field, nowait=nowait)
        return self.at(number - 1, nowait=nowait) if number else None
