"""The highest producer id in any file of a folder, for use when the catalog may have lost some.

Reads every batch and every snapshot, also of logs that cannot be opened, and after damage. An id
counts if the CRC of its batch or snapshot is right; those of mirrored sources (`FOREIGN_IDS_FROM`) do not.

Blocking, and as slow as the disk: use it only if a plain start does not give a better answer.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import structlog

from tidelog.broker.storage.checkpoints import PRODUCER_IDS_BOUND, CheckpointError, read_number
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.local_segment import DELETED_SUFFIX, LOG_SUFFIX
from tidelog.broker.storage.process_folders import process_folders
from tidelog.broker.storage.producer_table import FOREIGN_IDS_FROM, entries_of
from tidelog.broker.storage.recovery import DAMAGED_SUFFIX
from tidelog.broker.storage.snapshot import SUFFIX as SNAPSHOT_SUFFIX
from tidelog.broker.storage.snapshot import read_snapshot
from tidelog.broker.storage.swap import SWAP_SUFFIX
from tidelog.protocol import records
from tidelog.protocol.errors import ProtocolError

_CHUNK_BYTES = 1 << 20
_LONGEST_BEHIND_DAMAGE = 16 << 20
_MAGIC_AT = 16
_SUFFIXES = (LOG_SUFFIX, DAMAGED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX)
logger = structlog.get_logger(__name__)


def log_folders(disk: Disk, data_dir: Path) -> list[Path]:
    """All folders in a data folder, those out of use too. Raises OSError."""
    folders = [data_dir / name for name in disk.list_directory(data_dir)]
    return [folder for folder in folders if disk.is_directory(folder)]


def highest_producer_id_below(disk: Disk, data_dir: Path) -> int:
    """The highest that any process of a data folder knows to be given, or -1. Raises OSError."""
    highest = -1
    for place in process_folders(data_dir).values():
        # With a note that is damaged, only the logs count.
        with suppress(CheckpointError):
            highest = max(highest, read_number(disk, place / PRODUCER_IDS_BOUND) - 1)
        for folder in log_folders(disk, place):
            highest = max(highest, highest_producer_id_in(disk, folder))
    return highest


def highest_producer_id_in(disk: Disk, folder: Path) -> int:
    """The highest in a folder, or -1. What cannot be read is reported and left out."""
    highest = -1
    try:
        names = disk.list_directory(folder) if disk.is_directory(folder) else []
    except OSError as error:
        return _unread(folder, error)
    for name in names:
        path = folder / name
        try:
            if name.endswith(SNAPSHOT_SUFFIX):
                highest = max(highest, _highest_in_snapshot(disk, path))
            elif LOG_SUFFIX in name and name.endswith(_SUFFIXES):
                highest = max(highest, _highest_in_log(disk, path))
        except OSError as error:
            _unread(path, error)
    return highest


def _unread(path: Path, error: OSError) -> int:
    advice = "producer ids that only this file names are not known to be taken; check the disk"
    logger.warning("producer_ids_not_read", path=str(path), error=str(error), advice=advice)
    return -1


def _highest_in_snapshot(disk: Disk, path: Path) -> int:
    try:
        _, frozen = read_snapshot(disk, path)
    except ValueError:
        return -1  # Damaged: the log has what it was made from.
    ids = [entry.producer_id for entry in entries_of(frozen)]
    return max((each for each in [*ids, *frozen.evicted] if each < FOREIGN_IDS_FROM), default=-1)


def _highest_in_log(disk: Disk, path: Path) -> int:
    fd = disk.open(path, os.O_RDONLY)
    try:
        return max((each for each in _ids_in(_Window(disk, fd)) if each < FOREIGN_IDS_FROM), default=-1)
    finally:
        disk.close(fd)


class _Window:
    """A file read in large pieces, forwards."""

    def __init__(self, disk: Disk, fd: int) -> None:
        self.size = disk.size(fd)
        self._disk = disk
        self._fd = fd
        self._start = 0
        self._bytes = b""

    def read(self, position: int, size: int) -> bytes:
        """`size` bytes from `position` on, fewer where the file became shorter."""
        at = position - self._start
        if at < 0 or at + size > len(self._bytes):
            self._start, at = position, 0
            self._bytes = bytes(self._disk.read(self._fd, max(size, _CHUNK_BYTES), position))
        return self._bytes[at : at + size]

    def next_magic(self, position: int) -> int:
        """The next position from `position` on, within some bytes, that may hold a batch's magic."""
        piece = self.read(position, min(_CHUNK_BYTES // 4, self.size - position))
        found = piece.find(records.CURRENT_MAGIC, 0)
        return position + (found if found >= 0 else max(len(piece), 1))


def _ids_in(window: _Window) -> Iterator[int]:
    """The producer id of each whole batch: one after the other, or where one begins after damage."""
    position, longest = 0, window.size
    while window.size - position >= records.BATCH_HEADER_SIZE:
        header = _header(window.read(position, records.BATCH_HEADER_SIZE))
        if header is not None and header.size_bytes <= min(longest, window.size - position):
            batch = window.read(position, header.size_bytes)
            if records.batch_crc_is_valid(batch, header):
                yield header.producer_id
                position, longest = position + header.size_bytes, window.size
                continue
        # What looks like a batch in the middle of damage may claim any size.
        longest = _LONGEST_BEHIND_DAMAGE
        position = window.next_magic(position + 1 + _MAGIC_AT) - _MAGIC_AT


def _header(data: bytes) -> records.BatchHeader | None:
    try:
        header = records.read_batch_header(data)
    except ProtocolError:
        return None
    return header if header.magic == records.CURRENT_MAGIC else None
