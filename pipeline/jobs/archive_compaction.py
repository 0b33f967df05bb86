"""Joins the small files of an archive into large ones, exactly, beside any reader.

Owns which files are joined: consecutive ones of one date and partition, up to the most rows of a file, if
none has more than half of the rows. So a record is written again only when its file at least doubles.

Why this is exact, whenever a run is killed: a new folder beside the archive gets the joined files and links
to the others, all of it durable. The two folders are exchanged in one step (`exchange`). Then the old one,
which readers no longer see, is deleted. A reader lists one folder or the other, and each holds every record
once. A reader that listed the old files before and opens one later finds it gone: an error, but no wrong
result. The archive's log needs no change: a file whose offsets are all in another one is not missed.

Folders with files of other names, as other tools write them, are left alone.
"""

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.pipeline.jobs.archive_files import (
    ArchiveError,
    describe,
    join_files,
    offsets_in_name,
    rows_of,
    sync,
)

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


class ArchiveFile(NamedTuple):
    """A file of one date by its name, and the rows in it."""

    partition: int
    first_offset: int
    last_offset: int
    path: Path
    rows: int


def plan(files: Iterable[ArchiveFile], rows_per_file: int) -> list[list[ArchiveFile]]:
    """Which files of one date become one, each group in the order of offsets."""
    groups: list[list[ArchiveFile]] = []
    for file in sorted(files):
        last = groups[-1] if groups else []
        is_next = bool(last) and last[0].partition == file.partition
        if is_next and sum(each.rows for each in last) + file.rows <= rows_per_file:
            last.append(file)
        else:
            groups.append([file])
    return [joined for group in groups for joined in _without_large(group)]


def _without_large(files: list[ArchiveFile]) -> list[list[ArchiveFile]]:
    """Consecutive files as they are joined: one with more than half of the rows stays as it is."""
    if len(files) <= 1:
        return []
    largest = max(range(len(files)), key=lambda index: files[index].rows)
    if 2 * files[largest].rows <= sum(each.rows for each in files):
        return [files]
    return _without_large(files[:largest]) + _without_large(files[largest + 1 :])


def compact(root: Path, workspace: Path, rows_per_file: int, compression: str) -> int:
    """Join the files of all dates below `root`. Returns how many fewer there are.

    `workspace` is a folder in the same file system that no reader sees. Raises ArchiveError where folders
    cannot be exchanged, or where a file does not hold what its name says.
    """
    gone = 0
    for folder in sorted(root.glob("topic=*/date=*")):
        files = _files_in(folder)
        if groups := plan(files, rows_per_file):
            gone += _compact_folder(folder, workspace, files, groups, compression)
    return gone


def _files_in(folder: Path) -> list[ArchiveFile]:
    """The folder's files; none where it holds anything else, or too few to be joined."""
    files = []
    for path in folder.iterdir():
        if (offsets := offsets_in_name(path.name)) is None:
            return []
        files.append((offsets, path))
    if len({partition for (partition, _, _), _ in files}) == len(files):
        return []
    return [ArchiveFile(*offsets, path, rows_of(path)) for offsets, path in files]


def _compact_folder(
    folder: Path,
    workspace: Path,
    files: Sequence[ArchiveFile],
    groups: Sequence[Sequence[ArchiveFile]],
    compression: str,
) -> int:
    new = workspace / uuid.uuid4().hex / folder.parent.name / folder.name
    new.mkdir(parents=True)
    joined = {each.path for group in groups for each in group}
    for file in files:
        if file.path not in joined:
            os.link(file.path, new / file.path.name)
    for group in groups:
        paths = [each.path for each in group]
        join_files(paths, new / "draft", compression)
        draft = describe(new / "draft")
        if (draft.first_offset, draft.last_offset, draft.rows) != (
            group[0].first_offset,
            group[-1].last_offset,
            sum(each.rows for each in group),
        ):
            raise ArchiveError(
                f"{paths[0]} to {paths[-1].name} hold offsets {draft.first_offset} to {draft.last_offset} in"
                f" {draft.rows} rows, which is not what their names say: restore them"
            )
        draft.draft.rename(new / Path(draft.name).name)
    for made in (new, *new.parents[:3]):
        sync(made)
    try:
        exchange(new, folder)
    except FileNotFoundError:
        return 0  # The date was deleted meanwhile.
    except OSError as error:
        raise ArchiveError(
            f"the files in {folder} cannot be joined: its file system cannot exchange two folders in one step"
            f" ({error.strerror}). All records are archived; leave out compact"
        ) from None
    sync(folder.parent)
    shutil.rmtree(new)
    return len(joined) - len(groups)


def exchange(one: Path, other: Path) -> None:
    """Give each of two folders the other's name, in one step. Raises OSError, as of rename."""
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if hasattr(library, "renameat2"):
        failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    elif hasattr(library, "renamex_np"):
        failed = library.renamex_np(*names, _RENAME_EXCHANGE)
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(other))
