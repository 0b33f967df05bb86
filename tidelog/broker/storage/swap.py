"""Putting a cleaned segment in the place of the segments that it was written from, so that a crash leaves the
old ones or the new one, never a mixture.

Owns the two suffixes and the order of the renames, which are Kafka's: a file is written as `.cleaned` and
synced; it is committed when its `.log.swap` is durable; then the old segments go, and then it gets its final
name, over that of the first old one. Each of these three steps is durable before the next one begins.

Invariants: a start removes `.cleaned` files and completes `.swap` files; the first old log keeps its name
until the new one takes it, so a folder always has a segment of that base offset. A `.log.swap` that is
damaged is kept aside and reported, and changes nothing. A swap waits for file handles, and where the disk has
no space for a name, the old segments are the log again.

Blocking. Source: Kafka's LocalLog.replaceSegments and LogLoader.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from tidelog.broker.storage.disk import FULL, Disk, is_out_of_handles
from tidelog.broker.storage.file_reader import FileReader, FoundBatch, batch_at
from tidelog.broker.storage.local_segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, LocalSegment

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_ASIDE_SUFFIX = ".damaged"
_SWAP_LOG = LOG_SUFFIX + SWAP_SUFFIX
_HANDLES_TRIES = 200
_HANDLES_RETRY_SECONDS = 0.05


class HalfSwappedError(OSError):
    """A swap began and could not be completed. The next start completes it; until then the log is offline."""


class _TakenBackError(OSError):
    """The disk has no space for names. The old segments are the log again."""


def swap_in(disk: Disk, folder: Path, old: Sequence[LocalSegment], new: LocalSegment) -> list[Path]:
    """Put `new`, which is synced and has CLEANED_SUFFIX, in the place of the old ones. Returns files to
    unlink.

    Raises OSError if nothing has changed, then `new` is discarded; and HalfSwappedError.
    """
    try:
        new.rename_to(SWAP_SUFFIX)
    except OSError:
        discard(disk, new)
        raise
    try:
        _sync_names(disk, folder)
        renamed = _renamed(disk, folder, old[1:], new)
        _give_names(disk, folder, old[1:], new)
        _sync_names(disk, folder)
    except _TakenBackError:
        raise
    except OSError as error:
        raise HalfSwappedError(error.errno, f"{new.path} could not be swapped in: {error}") from error
    return renamed


def _renamed(disk: Disk, folder: Path, old: Sequence[LocalSegment], new: LocalSegment) -> list[Path]:
    """Take old segments out of the log, durably. Raises OSError, and _TakenBackError."""
    renamed: list[Path] = []
    try:
        for segment in old:
            renamed += segment.rename_to_deleted()
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise _taken_back(disk, folder, old, new, error) from error
    if renamed:
        _sync_names(disk, folder)
    return renamed


def _give_names(disk: Disk, folder: Path, old: Sequence[LocalSegment], new: LocalSegment) -> None:
    """Let the new segment take its final names. Raises OSError, and _TakenBackError."""
    first_renamed = new.paths[-1]
    try:
        new.rename_to("")
    except OSError as error:
        # Else an index of the first old segment is gone already.
        if error.errno not in FULL or not disk.exists(first_renamed):
            raise
        raise _taken_back(disk, folder, old, new, error) from error


def _taken_back(
    disk: Disk, folder: Path, old: Sequence[LocalSegment], new: LocalSegment, error: OSError
) -> _TakenBackError:
    """Put `old` back into the log and discard the new segment. Raises OSError."""
    for segment in old:
        segment.rename_from_deleted()
    _sync_names(disk, folder)  # Before the new one goes: all records are in it.
    discard(disk, new)
    return _TakenBackError(error.errno, error.strerror)


def _sync_names(disk: Disk, folder: Path) -> None:
    """`fsync_directory`, which is repeated for some seconds while there is no file handle. Raises OSError."""
    for _ in range(_HANDLES_TRIES):
        try:
            disk.fsync_directory(folder)
        except OSError as error:
            if not is_out_of_handles(error):
                raise
            time.sleep(_HANDLES_RETRY_SECONDS)
        else:
            return
    disk.fsync_directory(folder)


def discard(disk: Disk, new: LocalSegment) -> None:
    """Remove what was written of a segment that was not committed. Raises OSError."""
    new.close()
    for path in new.paths:
        for each in (path, path.with_suffix(SWAP_SUFFIX)):
            if disk.exists(each):
                disk.unlink(each)


def finish_swaps(disk: Disk, folder: Path) -> list[str]:
    """Do at a start what a crash left undone; returns what is wrong with files, if anything.

    Raises OSError.
    """
    names = disk.list_directory(folder)
    problems = []
    for base, path in _swapped_logs(folder, names).items():
        end_offset = _end_of(disk, path)
        if end_offset is None:
            aside = path.with_name(path.name + _ASIDE_SUFFIX)
            disk.rename(path, aside)
            problems.append(
                f"{path.name} is damaged: the segments that it was made from stay; it is {aside.name}"
            )
            continue
        for replaced in _bases(names):
            if base < replaced < end_offset:
                _unlink_all(disk, folder, replaced, (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        # It is not certain whether the indexes are those of the new segment. They are made again.
        _unlink_all(disk, folder, base, (INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        disk.fsync_directory(folder)
        disk.rename(path, folder / f"{base:020d}{LOG_SUFFIX}")
        disk.fsync_directory(folder)
    for name in names:
        if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) and disk.exists(folder / name):
            disk.unlink(folder / name)
    return problems


def log_files(disk: Disk, folder: Path) -> dict[int, Path]:
    """Base offset -> file, ascending: those of the log as the next start will find it. Changes nothing.

    Raises OSError.
    """
    names = disk.list_directory(folder)
    files = {base: folder / f"{base:020d}{LOG_SUFFIX}" for base in _bases(names)}
    for base, path in _swapped_logs(folder, names).items():
        end_offset = _end_of(disk, path)
        if end_offset is not None:
            files = {each: file for each, file in files.items() if not base < each < end_offset}
            files[base] = path
    return dict(sorted(files.items()))


def _bases(names: Sequence[str]) -> list[int]:
    paths = [Path(name) for name in names]
    return sorted(int(path.stem) for path in paths if path.suffix == LOG_SUFFIX and path.stem.isdigit())


def _swapped_logs(folder: Path, names: Sequence[str]) -> dict[int, Path]:
    swapped = {name.removesuffix(_SWAP_LOG): folder / name for name in names if name.endswith(_SWAP_LOG)}
    return {int(base): path for base, path in sorted(swapped.items()) if base.isdigit()}


def _end_of(disk: Disk, path: Path) -> int | None:
    """The offset after the last batch of a file that holds whole batches; None for any other."""
    end_offset = None
    with FileReader(disk, path) as reader:
        position = 0
        while position < reader.size:
            found = batch_at(reader, position)
            if not isinstance(found, FoundBatch) or found.crc != found.header.crc:
                return None
            if end_offset is not None and found.header.base_offset < end_offset:
                return None
            end_offset = found.header.last_offset + 1
            position = found.end
    return end_offset


def _unlink_all(disk: Disk, folder: Path, base: int, suffixes: Sequence[str]) -> None:
    for suffix in suffixes:
        path = folder / f"{base:020d}{suffix}"
        if disk.exists(path):
            disk.unlink(path)
