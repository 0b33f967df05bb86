"""Objects as files of a folder, such as one on a network disk.

Owns how a file becomes an object: written under another name, made durable, and given its name in one step.
What a killed process leaves has a name of its own (`TEMPORARY_SUFFIX`), which `names` shows. Links are not
followed: others may write into the folder too.
"""

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from uuid import uuid4

from tidelog.protocol.types import Buffer
from tidelog.remote_log.object_names import check_names, is_name, too_large

TEMPORARY_SUFFIX = ".tmp"


class FolderStore:
    """Keeps objects as files of one folder. Implements `ObjectStore`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._real_root = os.path.realpath(root)

    def put(self, name: str, pieces: Iterable[Buffer]) -> None:
        path = self._path(name)
        temporary = self._written(path, pieces)
        os.rename(temporary, path)
        _sync_folder(path.parent)

    def put_new(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        temporary = self._written(path, [data])
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        _sync_folder(path.parent)
        return True

    def _path(self, name: str) -> Path:
        """Raises OSError for a name that no object may have, or that leads out of the folder."""
        check_names(name)
        path = self._root / name
        folder = os.path.relpath(path.parent, self._root)
        if os.path.realpath(path.parent) != os.path.normpath(os.path.join(self._real_root, folder)):
            raise OSError(
                errno.ELOOP, f"{path.parent} is a link, or in one: expected a folder in {self._root}"
            )
        return path

    def _written(self, path: Path, pieces: Iterable[Buffer]) -> Path:
        self._make_folder(path.parent)
        temporary = path.with_name(f"{path.name}.{uuid4().hex}{TEMPORARY_SUFFIX}")
        try:
            with open(temporary, "xb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fdatasync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        return temporary

    def _make_folder(self, folder: Path) -> None:
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            _sync_folder(each.parent)

    def get(self, name: str, most_bytes: int) -> bytes:
        with self._opened(name) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most_bytes:
                raise too_large(str(self._root / name), size, most_bytes)
            return file.readall()

    def get_range(self, name: str, position: int, size: int) -> Buffer:
        with self._opened(name) as file:
            file.seek(position)
            parts = []
            while size > 0 and (part := file.read(size)):
                parts.append(part)
                size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _opened(self, name: str) -> FileIO:
        return open(self._path(name), "rb", buffering=0, opener=_open_no_link)

    def names(self, folder: str) -> list[str]:
        found = [
            str(Path(place, file).relative_to(self._root))
            for place, _, files in os.walk(self._path(f"{folder}/any").parent, onerror=_raise_unless_missing)
            for file in files
        ]
        return [name for name in found if is_name(name)]

    def delete(self, names: Sequence[str]) -> None:
        paths = [self._path(name) for name in names]
        for path in paths:
            with suppress(FileNotFoundError):
                path.unlink()
        for folder in sorted({path.parent for path in paths}, reverse=True):
            with suppress(OSError):  # Objects are left in it.
                while folder != self._root:
                    folder.rmdir()
                    folder = folder.parent


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
