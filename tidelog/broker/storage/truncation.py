"""Cutting a closed log back to an offset, or emptying it: changes its files for the next opening.

Owns which files change, and in which order. Indexes and producer state are not changed here: recovery
rebuilds them from the batches that stay and from the snapshots that cover no more than those.

Invariants: whole batches stay; after each step the files hold a log that ends between the new end and the old
one, without a hole, and no other file covers more than the log will hold. So the caller lowers the recovery
point first.

Blocking. Source: Kafka's UnifiedLog.truncateTo.
"""

from pathlib import Path
from typing import NamedTuple

from tidelog.broker.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    read_leader_epochs,
    write_leader_epochs,
)
from tidelog.broker.storage.cleaned_offset import CleanedOffset
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.local_segment import INDEX_SUFFIXES, LOG_SUFFIX, LocalSegment
from tidelog.broker.storage.snapshot import snapshot_path, snapshots

_UNKNOWN_END = 1 << 62


class Cut(NamedTuple):
    """Where a log is to end: the segment that stays last, its size, the offset after it, and what goes."""

    path: Path
    size_bytes: int
    end_offset: int
    dropped: list[Path]
    """Segments after it, the last one first."""
    first_offset: int
    """Where the first segment begins."""


def empty_folder(disk: Disk, folder: Path) -> None:
    """Remove all that a closed log holds, durably, and keep whose folder it is. Raises OSError; then a log is
    left that begins later, and the caller has taken back its recovery point."""
    names = [Path(name) for name in disk.list_directory(folder)]
    logs = sorted(name for name in names if name.suffix == LOG_SUFFIX)
    kept = {PARTITION_METADATA, *(log.name for log in logs)}
    for name in [*(each for each in names if each.name not in kept), *logs]:
        disk.unlink(folder / name.name)
    disk.fsync_directory(folder)


def find_cut(disk: Disk, folder: Path, offset: int) -> Cut:
    """The cut before the batch that holds `offset`, or at the end of the log. Raises OSError."""
    names = [Path(name) for name in disk.list_directory(folder)]
    bases = sorted(int(name.stem) for name in names if name.suffix == LOG_SUFFIX and name.stem.isdigit())
    last = max((base for base in bases if base <= offset), default=bases[0])
    cleaned = CleanedOffset(disk, folder)
    cleaned.load()
    segment = LocalSegment(disk, folder, last, 0, cleaned, is_new=False)
    try:
        size, end_offset = disk.size(segment.log.fd), last
        segment.tail = (size, _UNKNOWN_END)
        for place in segment.walk(0):
            if place.last_offset >= offset:
                size = place.position
                break
            end_offset = place.last_offset + 1
    finally:
        segment.close()
    dropped = [folder / f"{base:020d}{LOG_SUFFIX}" for base in reversed(bases) if base > last]
    return Cut(segment.path, size, end_offset, dropped, bases[0])


def apply_cut(disk: Disk, cut: Cut) -> None:
    """Change the files, durably. Raises OSError; then the log may end anywhere from the cut on."""
    folder = cut.path.parent
    for name in snapshots(disk, folder):
        if name.offset > cut.end_offset:
            disk.unlink(snapshot_path(folder, *name))
    epochs = read_leader_epochs(disk, folder / LEADER_EPOCHS)
    kept = [(epoch, start) for epoch, start in epochs if start < cut.end_offset]
    if kept != epochs:
        write_leader_epochs(disk, folder / LEADER_EPOCHS, kept)
    disk.fsync_directory(folder)
    for path in cut.dropped:
        for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
            if disk.exists(path.with_suffix(suffix)):
                disk.unlink(path.with_suffix(suffix))
        disk.fsync_directory(folder)
    fd = disk.open(cut.path)
    try:
        disk.truncate(fd, cut.size_bytes)
        disk.fdatasync(fd)
    finally:
        disk.close(fd)
