"""A file read piece by piece, and the batches of a segment one after the other.

Owns the buffer (1 MiB, whatever the size of the file or of a batch) and how reading continues after bytes
that are not a batch: at the next entry of the offset index that a batch confirms. Reads only.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Self

from crc32c import crc32c

from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.integrity import is_reserved, may_follow
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    CURRENT_MAGIC,
    BatchHeader,
    EndTransactionMarker,
    read_batch_header,
    read_marker,
)

CHUNK_BYTES = 1 << 20
_CRC_COVERS_FROM = 21


class FileReader:
    """Reads one file piece by piece. Raises OSError."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._fd = disk.open(path, os.O_RDONLY)
        self.path = path
        self.size = disk.size(self._fd)
        self._chunk = memoryview(b"")
        self._chunk_at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._disk.close(self._fd)

    def at(self, position: int, size: int) -> memoryview:
        """`size` bytes (at most CHUNK_BYTES), fewer at the end; valid until the next call."""
        start = position - self._chunk_at
        if start < 0 or start + size > len(self._chunk):
            self._chunk = self._disk.read(self._fd, CHUNK_BYTES, position)
            self._chunk_at, start = position, 0
        return self._chunk[start : start + size]

    def is_reserved_from(self, position: int) -> bool:
        """Whether batches end there, in a file that a crash left longer."""
        return is_reserved(position, self.size, self.at)

    def entries(self, entry: Struct) -> Iterator[tuple[int, tuple[int, int]]]:
        """(position, fields) of each whole entry."""
        per_piece = CHUNK_BYTES // entry.size * entry.size
        for position in range(0, self.size - self.size % entry.size, per_piece):
            piece = self.at(position, min(per_piece, self.size - position))
            whole = len(piece) - len(piece) % entry.size
            for number, (first, second) in enumerate(entry.iter_unpack(piece[:whole])):
                yield position + number * entry.size, (first, second)


class Broken(NamedTuple):
    """Bytes that are no batch, and why."""

    position: int
    problem: str


class FoundBatch(NamedTuple):
    """A batch by its header; `crc` is what its bytes give, `marker` what a producer's control batch says."""

    position: int
    header: BatchHeader
    crc: int
    marker: EndTransactionMarker | None = None

    @property
    def end(self) -> int:
        return self.position + self.header.size_bytes


def batch_at(reader: FileReader, position: int) -> FoundBatch | Broken:
    """What begins at `position`. Raises OSError."""
    left = reader.size - position
    if left < BATCH_HEADER_SIZE:
        return Broken(position, f"{left} bytes are no batch header")
    try:
        header = read_batch_header(reader.at(position, BATCH_HEADER_SIZE))
    except ProtocolError as error:
        return Broken(position, str(error).replace("at byte 0: ", ""))
    if header.magic != CURRENT_MAGIC:
        return Broken(position, f"no batch begins here (expected magic {CURRENT_MAGIC}, got {header.magic})")
    if header.size_bytes > left:
        return Broken(position, f"a batch of {header.size_bytes} bytes is cut off after {left}")
    crc = 0
    at, end = position + _CRC_COVERS_FROM, position + header.size_bytes
    while at < end:
        piece = reader.at(at, min(CHUNK_BYTES, end - at))
        if not piece:
            raise OSError(f"{reader.path} became shorter while it was read")
        crc = crc32c(piece, crc)
        at += len(piece)
    return FoundBatch(position, header, crc, _marker_of(reader, position, header))


def _marker_of(reader: FileReader, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """None also if it cannot be decoded: its CRC is right, so it was stored like this and changed nothing."""
    if not header.is_control or header.producer_id < 0 or header.size_bytes > CHUNK_BYTES:
        return None
    try:
        return read_marker(reader.at(position, header.size_bytes))
    except ProtocolError:
        return None


def begins_batch(reader: FileReader, position: int, end_offset: int, cleaned_offset: int) -> bool:
    """Whether a batch that may follow one up to `end_offset`, or the end of the file, is at `position`."""
    if position == reader.size:
        return True
    found = batch_at(reader, position)
    return isinstance(found, FoundBatch) and may_follow(found.header.base_offset, end_offset, cleaned_offset)
