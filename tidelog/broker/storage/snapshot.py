"""Producer state on disk: `%020d.snapshot`, named by the offset up to which it covers the log.

Owns our format, little-endian: magic, version, a mark of the partition's folder, the offset, the producers'
clock, the counts, the window (how many batches of each producer), the size of a slot, count and CRC-32C of
the aborted transactions of each segment, then the order arrays and the slots of `producer_table` as they lie
in memory (with the open transactions), id and epoch of each evicted producer, then the CRC-32C of all before.

Invariants: a snapshot is complete or absent (written under another name, synced, renamed). Writing one never
replaces another: a second one at the same offset is `%020d.2.snapshot`. `load_newest` never fails because of
a damaged snapshot: that one is renamed to `.corrupt` and named in the result. The two newest up to the
durable end of the log are kept.

Writing is safe in a thread, on a frozen table.
"""

import errno
import os
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.producer_table import CACHED_BATCHES, SLOT_SIZE, SLOTS_PER_CHUNK, FrozenTable
from tidelog.protocol.types import Buffer

SUFFIX = ".snapshot"
CORRUPT_SUFFIX = ".corrupt"
_KEPT = 2
_MAGIC = b"TLPS"
_VERSION = 4
_HEADER = Struct("<4sHHqqiiiiHH")
_COUNT = Struct("<i")
_ABORTED = Struct("<qiI")
_EVICTED = Struct("<qh")
_CRC = Struct("<I")


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """The newest usable snapshot, and the damaged ones that were set aside before it was found."""

    offset: int
    frozen: FrozenTable | None
    set_aside: list[str]
    path: Path | None = None


class SnapshotName(NamedTuple):
    """Which snapshot a file is: of those at one offset, the one with the larger number is the newer."""

    offset: int
    number: int


def snapshot_path(folder: Path, offset: int, number: int = 1) -> Path:
    return folder / f"{offset:020d}{f'.{number}' if number > 1 else ''}{SUFFIX}"


def snapshots(disk: Disk, folder: Path) -> list[SnapshotName]:
    """The snapshots in a partition's folder, the oldest first."""
    found = []
    for name in disk.list_directory(folder):
        offset, _, number = name.removesuffix(SUFFIX).partition(".")
        if name.endswith(SUFFIX) and offset.isdigit() and (number.isdigit() or not number):
            found.append(SnapshotName(int(offset), int(number or 1)))
    return sorted(found)


def _mark_of(folder: Path) -> int:
    """16 bits that distinguish a partition's snapshots from those of others."""
    return int(crc32c(folder.name.encode())) % 0xFFFF + 1


def _encode(frozen: FrozenTable, offset: int, mark: int) -> Iterator[Buffer]:
    header = _HEADER.pack(
        _MAGIC,
        _VERSION,
        mark,
        offset,
        frozen.clock_ms,
        frozen.count,
        len(frozen.next),
        len(frozen.chunks),
        frozen.first_free,
        CACHED_BATCHES,
        SLOT_SIZE,
    )
    header += _COUNT.pack(len(frozen.aborted))
    header += b"".join(_ABORTED.pack(base, *known) for base, known in frozen.aborted.items())
    crc = 0
    for buffer in (header, memoryview(frozen.previous).cast("B"), memoryview(frozen.next).cast("B")):
        crc = crc32c(buffer, crc)
        yield buffer
    for chunk in frozen.chunks:
        crc = crc32c(chunk, crc)
        yield chunk
    evicted = b"".join(starmap(_EVICTED.pack, frozen.evicted.items()))
    if evicted:
        crc = crc32c(evicted, crc)
        yield evicted
    yield _CRC.pack(crc)


def write_snapshot(
    disk: Disk, folder: Path, offset: int, frozen: FrozenTable, durable_end: int | None = None
) -> int:
    """Write a snapshot durably, then delete what is no longer needed. Returns its size. Raises OSError.

    Kept are the newest two up to `durable_end` (without it, `offset`) and all beyond it. A crash may remove
    what the log holds beyond it; then every snapshot that covers more than the log is deleted.
    """
    buffers = list(_encode(frozen, offset, _mark_of(folder)))
    number = max((name.number for name in snapshots(disk, folder) if name.offset == offset), default=0) + 1
    disk.replace_file(snapshot_path(folder, offset, number), buffers)
    safe_end = offset if durable_end is None else durable_end
    for old in [name for name in snapshots(disk, folder) if name.offset <= safe_end][:-_KEPT]:
        disk.unlink(snapshot_path(folder, *old))
    return sum(map(len, buffers))


def encode_snapshot(frozen: FrozenTable, offset: int, folder: Path) -> bytes:
    """The bytes of a snapshot of the partition in this folder, without a file."""
    return b"".join(_encode(frozen, offset, _mark_of(folder)))


def decode_snapshot(data: bytes) -> tuple[int, FrozenTable]:
    """(offset, table) of any partition. Raises ValueError that says what is wrong with the bytes."""
    view = memoryview(data)
    return _decode(len(data), lambda position, size: view[position : position + size], None)


def read_snapshot(disk: Disk, path: Path) -> tuple[int, FrozenTable]:
    """As `decode_snapshot`, of a file, a chunk at a time: no step keeps other threads waiting for long.

    Raises ValueError, OSError.
    """
    fd = disk.open(path, os.O_RDONLY)
    try:
        return _decode(disk.size(fd), lambda position, size: disk.read(fd, size, position), path.parent)
    finally:
        disk.close(fd)


def _decode(
    size: int, read: Callable[[int, int], memoryview], folder: Path | None
) -> tuple[int, FrozenTable]:
    if size < _HEADER.size + _CRC.size:
        raise ValueError(f"{size} bytes are too few for a snapshot")
    header = bytes(read(0, _HEADER.size))
    magic, version, mark, offset, clock_ms, count, links, chunks, first_free, *slots_of = _HEADER.unpack(
        header
    )
    if (magic, version) != (_MAGIC, _VERSION):
        raise ValueError(f"expected {_MAGIC!r} version {_VERSION}, got {magic!r} version {version}")
    if folder is not None and mark != _mark_of(folder):
        raise ValueError(f"it was written for another partition than {folder.name}")
    header, aborted = _read_aborted(header, size, read)
    chunk_size = SLOTS_PER_CHUNK * SLOT_SIZE
    slots_end = len(header) + 8 * links + chunks * chunk_size
    evicted_size = size - slots_end - _CRC.size
    is_whole = evicted_size >= 0 and not evicted_size % _EVICTED.size
    if min(links, chunks) < 1 or slots_of != [CACHED_BATCHES, SLOT_SIZE] or not is_whole:
        raise ValueError(
            f"expected {slots_end + _CRC.size} bytes and {CACHED_BATCHES} batches in {SLOT_SIZE} bytes, "
            f"got {size} bytes and {slots_of[0]} in {slots_of[1]}"
        )
    crc = crc32c(header)
    at = len(header)
    previous, following = array("i"), array("i")
    for order in (previous, following):
        piece = read(at, 4 * links)
        crc = crc32c(piece, crc)
        order.frombytes(piece)
        at += 4 * links
    slots = []
    for start in range(at, slots_end, chunk_size):
        piece = read(start, chunk_size)
        crc = crc32c(piece, crc)
        slots.append(bytearray(piece))
    piece = read(slots_end, evicted_size)
    crc = crc32c(piece, crc)
    evicted = dict(_EVICTED.iter_unpack(piece))
    (stored,) = _CRC.unpack(read(size - _CRC.size, _CRC.size))
    if stored != crc:
        raise ValueError(f"expected CRC {stored:08x}, got {crc:08x}")
    return offset, FrozenTable(count, first_free, previous, following, slots, clock_ms, evicted, aborted)


def _read_aborted(
    header: bytes, size: int, read: Callable[[int, int], memoryview]
) -> tuple[bytes, dict[int, tuple[int, int]]]:
    """The header with what follows it about aborted transactions, and that by segment."""
    piece = bytes(read(len(header), _COUNT.size))
    count = _COUNT.unpack(piece)[0] if len(piece) == _COUNT.size else -1
    if not 0 <= count * _ABORTED.size <= size:
        raise ValueError(f"{size} bytes cannot hold the aborted transactions of {count} segments")
    fields = bytes(read(len(header) + _COUNT.size, count * _ABORTED.size))
    if len(fields) != count * _ABORTED.size:
        raise ValueError(f"{size} bytes end within the aborted transactions of {count} segments")
    known = {base: (entries, crc) for base, entries, crc in _ABORTED.iter_unpack(fields)}
    return header + piece + fields, known


def set_aside(disk: Disk, path: Path, error: Exception) -> str:
    """Take a damaged snapshot out of use without losing its bytes; returns what to report. Raises OSError."""
    aside = path.with_name(path.name + CORRUPT_SUFFIX)
    disk.rename(path, aside)
    return f"{aside.name}: {error}"


def load_newest(disk: Disk, folder: Path, at_or_before: int) -> LoadedSnapshot:
    """The newest usable snapshot that does not run ahead of the log's end.

    Those beyond `at_or_before` cover lost batches and are deleted. Without any, the offset is -1.
    """
    damaged: list[str] = []
    for name in reversed(snapshots(disk, folder)):
        path = snapshot_path(folder, *name)
        if name.offset > at_or_before:
            disk.unlink(path)
            continue
        try:
            stored_offset, frozen = read_snapshot(disk, path)
            if stored_offset != name.offset:
                raise ValueError(f"it says offset {stored_offset}")
        except (ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise
            damaged.append(set_aside(disk, path, error))
            continue
        return LoadedSnapshot(name.offset, frozen, damaged, path)
    return LoadedSnapshot(-1, None, damaged)
