"""One segment file: where a batch is, and the bytes of a range.

Owns reading `.log` files with the help of their `.index`, without the broker. Positions and sizes are bytes.
Read-only. The index only shortens the search from header to header: an entry is used if the batch at its
position confirms it, and a file without an index is read too.

Invariants: bytes come in whole batches, in the order of the file, and cover the range that was asked for, or
an error says where they end. Bytes after that range are not judged: in the folder of a running broker, the
broker may be writing there.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from tidelog.broker.storage.integrity import RESERVED_BYTES
from tidelog.pipeline.arrow.batches import batch_positions
from tidelog.pipeline.arrow.vectors import Integers
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import BATCH_HEADER_SIZE, CURRENT_MAGIC, BatchHeader, read_batch_header

LOG_SUFFIX = ".log"
READ_BYTES = 4 * 1024 * 1024
_WALK_BYTES = 4096
_INDEX_SUFFIX = ".index"
_INDEX_ENTRY_BYTES = 8


class SegmentCutError(RuntimeError):
    """A segment file ends before records that it held when the read was planned."""


class Batch(NamedTuple):
    """Where a batch lies, and its header."""

    position: int
    header: BatchHeader

    @property
    def end(self) -> int:
        return self.position + self.header.size_bytes


class SegmentFile:
    """An open `.log` file. Raises FileNotFoundError if it is gone. Close it, or use it in a `with`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.base_offset = int(path.stem)
        self._index: Integers | None = None
        self._window = b""
        self._window_at = 0
        self._file = os.open(path, os.O_RDONLY)
        self.size_bytes = os.fstat(self._file).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._file)

    def walk(self, position: int = 0) -> Iterator[Batch]:
        """Each batch from the one at `position` on, by its header; a truncated tail, or what
        was reserved for later batches, ends the iteration.

        Raises ProtocolError for a header that cannot be.
        """
        while (batch := self._batch_at(position)) is not None:
            yield batch
            position = batch.end

    def find(self, offset: int) -> Batch | None:
        """The first batch that does not end before `offset`, None when there is none."""
        for batch in self.walk(self._floor(0, offset - self.base_offset)):
            if batch.header.last_offset >= offset:
                return batch
        return None

    def first_from(self, position: int, known: int) -> Batch | None:
        """The first batch that starts at `position` or after it, None when there is none. One starts at
        `known`, which is not after it."""
        for batch in self.walk(max(self._floor(1, position), known)):
            if batch.position >= position:
                return batch
        return None

    def end_offset(self) -> int:
        """The offset after the last whole batch."""
        end = self.base_offset
        for batch in self.walk(self._floor(1, self.size_bytes)):
            end = batch.header.last_offset + 1
        return end

    def bytes_of(self, batch: Batch) -> bytes:
        return os.pread(self._file, batch.header.size_bytes, batch.position)

    def read(self, start_offset: int, end_offset: int) -> Iterator[memoryview]:
        """Whole batches from the one that holds `start_offset`, or the next one, up to the one that holds
        `end_offset` - 1. Each view is valid until the next is asked for.

        Raises SegmentCutError when the file ends before, ProtocolError for a header that cannot be.
        """
        buffer = memoryview(bytearray(READ_BYTES))
        first = self.find(start_offset)
        position = self.size_bytes if first is None else first.position
        while True:
            # Memory that is new each time would cost as much as the reading.
            data = buffer[: os.preadv(self._file, [buffer], position)]
            places = batch_positions(data, end_offset)
            if not places:
                size = self._size_of_batch(data, position, end_offset)
                if not size:
                    return
                buffer = memoryview(bytearray(size))
                continue
            last = read_batch_header(data, places[-1])
            taken = places[-1] + last.size_bytes
            yield data[:taken]
            if last.last_offset + 1 >= end_offset:
                return
            position += taken

    def _size_of_batch(self, data: memoryview, position: int, end_offset: int) -> int:
        """How much is to be read where `data` holds no whole batch before `end_offset`, because the first is
        so large; 0 when none comes any more, since the log has a gap there."""
        header = read_batch_header(data) if len(data) >= BATCH_HEADER_SIZE else None
        if header is not None and header.magic == CURRENT_MAGIC and header.base_offset >= end_offset:
            return 0
        size = 0 if header is None else header.size_bytes
        if size <= len(data):
            raise SegmentCutError(
                f"{self.path} ends at byte {position + len(data)}, records up to offset {end_offset - 1} were"
                " expected in it: it is cut short, or another one than when the read was planned"
            )
        if position + size > os.fstat(self._file).st_size:
            raise SegmentCutError(
                f"{self.path}: the batch at byte {position} takes {size} bytes and the file ends before;"
                f" records up to offset {end_offset - 1} were expected in it"
            )
        return size

    def _batch_at(self, position: int) -> Batch | None:
        at = position - self._window_at
        if at < 0 or at + BATCH_HEADER_SIZE > len(self._window):
            self._window, self._window_at, at = os.pread(self._file, _WALK_BYTES, position), position, 0
        if len(self._window) - at < BATCH_HEADER_SIZE:
            return None
        if not self.size_bytes % RESERVED_BYTES and not any(self._window[at : at + BATCH_HEADER_SIZE]):
            return None
        header = read_batch_header(self._window, at)
        if header.magic != CURRENT_MAGIC:
            raise ProtocolError(
                f"{self.path}: byte {position}: expected magic {CURRENT_MAGIC}, got {header.magic}"
            )
        batch = Batch(position, header)
        return batch if batch.end <= self.size_bytes else None

    def _floor(self, field: int, value: int) -> int:
        """The position of the last entry whose relative offset (field 0) or position (1) is at most `value`;
        0 where there is none, or where the file contradicts it."""
        if self._index is None:
            self._index = _read_index(self.path.with_suffix(_INDEX_SUFFIX))
        number = int(np.searchsorted(self._index[:, field], value, side="right"))
        if not number:
            return 0
        offset, position = map(int, self._index[number - 1])
        try:
            batch = self._batch_at(position)
        except ProtocolError:
            return 0
        is_right = batch is not None and batch.header.last_offset - self.base_offset == offset
        return position if is_right else 0


def _read_index(path: Path) -> Integers:
    """(relative offset, position) of each entry, as far as both ascend; Kafka fills up with zeros."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    whole = len(data) // _INDEX_ENTRY_BYTES * _INDEX_ENTRY_BYTES
    entries = np.frombuffer(data[:whole], ">i4").astype(np.int64).reshape(-1, 2)
    before = np.vstack((np.array([[-1, 0]]), entries[:-1])) if len(entries) else entries
    ascends = (entries > before).all(axis=1)
    return entries if ascends.all() else entries[: int(np.argmin(ascends))]
