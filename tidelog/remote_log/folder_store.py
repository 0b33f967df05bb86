"""Objects as files of a folder, such as one on a network disk.

Owns how a file becomes an object: written under another name, made durable, and given its name in one step.
What a killed process leaves has a name of its own (`TEMPORARY_SUFFIX`), which `names` shows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from tidelog.protocol.types import Buffer

TEMPORARY_SUFFIX = ".tmp"


class FolderStore:
    """Implements `ObjectStore`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, pieces: Iterable[Buffer]) -> None:
        path = self._root / name
        temporary = self._written(path, pieces)
        os.rename(temporary, path)
        _sync_folder(path.parent)

    def put_new(self, name: str, data: bytes) -> bool:
        path = self._root / name
        temporary = self._written(path, [data])
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        _sync_folder(path.parent)
        return True

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

    def get(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def get_range(self, name: str, position: int, size: int) -> Buffer:
        with open(self._root / name, "rb", buffering=0) as file:
            file.seek(position)
            parts = []
            while size > 0 and (part := file.read(size)):
                parts.append(part)
                size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def names(self, folder: str) -> list[str]:
        return [
            str(Path(place, file).relative_to(self._root))
            for place, _, files in os.walk(self._root / folder, onerror=_raise_unless_missing)
            for file in files
        ]

    def delete(self, names: Sequence[str]) -> None:
        for path in map(self._root.joinpath, names):
            with suppress(FileNotFoundError):
                path.unlink()
        for folder in sorted({(self._root / name).parent for name in names}, reverse=True):
            with suppress(OSError):  # Objects are left in it.
                folder.rmdir()
                folder.parent.rmdir()


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
