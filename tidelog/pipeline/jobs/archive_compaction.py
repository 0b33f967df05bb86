"""Joins the small files of an archive into large ones, exactly, beside any reader.

Owns which files are joined: consecutive ones of one date and partition, up to the most rows of a file, if
none has more than half of the rows.

Why this is exact, whenever a run is killed: a new folder beside the archive gets the joined files and links
to the others, all of it durable. The two folders are exchanged in one step (`exchange`). Then the old one,
which readers no longer see, is deleted. A reader lists one folder or the other, and each holds every record
once.

Folders with files of other names, as other tools write them, are left alone.
"""

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tidelog.pipeline.durable_files import sync
from tidelog.pipeline.jobs.archive_files import ArchiveError, DraftFile, describe, join_files, offsets_in_name

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


def plan(files: Iterable[DraftFile], rows_per_file: int) -> list[list[DraftFile]]:
    """Which files of one date become one, each group in the order of offsets."""
    groups: list[list[DraftFile]] = []
    for file in sorted(files, key=lambda each: each.name):
        last = groups[-1] if groups else []
        is_next = bool(last) and last[0].partition == file.partition
        if is_next and sum(each.rows for each in last) + file.rows <= rows_per_file:
            last.append(file)
        else:
            groups.append([file])
    return [joined for group in groups for joined in _without_large(group)]


def _without_large(files: list[DraftFile]) -> list[list[DraftFile]]:
    """Consecutive files as they are joined: one with more than half of the rows is not changed."""
    if len(files) <= 1:
        return []
    largest = max(range(len(files)), key=lambda index: files[index].rows)
    if 2 * files[largest].rows <= sum(each.rows for each in files):
        return [files]
    return _without_large(files[:largest]) + _without_large(files[largest + 1 :])


def compact(root: Path, workspace: Path, rows_per_file: int, compression: str) -> int:
    """Join the files of all dates below `root`. Returns how many fewer there are.

    `workspace` is a folder in the same file system that no reader sees. Raises ArchiveError if folders
    cannot be exchanged, or where a file does not hold what its name says.
    """
    gone = 0
    for folder in sorted(root.glob("topic=*/date=*")):
        files = _files_in(folder)
        if groups := plan(files, rows_per_file):
            gone += _compact_folder(folder, workspace, files, groups, compression)
    return gone


def _files_in(folder: Path) -> list[DraftFile]:
    """The folder's files; none where it holds anything else, or too few to be joined.

    Raises ArchiveError if a file does not hold what its name says.
    """
    paths = sorted(folder.iterdir())
    offsets = [found for path in paths if (found := offsets_in_name(path.name)) is not None]
    if len(offsets) < len(paths) or len({partition for partition, _, _ in offsets}) == len(paths):
        return []
    files = [describe(path) for path in paths]
    for file in files:
        if Path(file.name).name != file.draft.name:
            raise ArchiveError(f"{file.draft} holds the offsets of {Path(file.name).name}: restore it")
    return files


def _compact_folder(
    folder: Path,
    workspace: Path,
    files: Sequence[DraftFile],
    groups: Sequence[Sequence[DraftFile]],
    compression: str,
) -> int:
    new = workspace / uuid.uuid4().hex / folder.parent.name / folder.name
    new.mkdir(parents=True)
    joined = {each.draft for group in groups for each in group}
    for file in files:
        if file.draft not in joined:
            os.link(file.draft, new / file.draft.name)
    for group in groups:
        join_files([each.draft for each in group], new / "draft", compression)
        (new / "draft").rename(new / Path(describe(new / "draft").name).name)
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
