"""The files of a simulated broker, in memory: what outlives its lives, and what a power cut leaves of it.

Owns the folders and files, and which of their bytes and names are durable. `faults.power` decides what is
lost. Paths are those of the broker, below `Platter.folder`, which is nowhere on this machine.
"""

import errno
import os
import random
from itertools import count
from pathlib import Path
from typing import Any, Union

from faults.power import BOOT_ID, left_of, may_be_lost


class File:
    """One file, whatever its name is and whoever has it open."""

    __slots__ = (
        "data",
        "durable_size",
        "is_linked",
        "is_named",
        "locked_by",
        "modified_ms",
        "number",
    )

    def __init__(self, number: int, modified_ms: int, data: bytes | bytearray = b"") -> None:
        self.number = number
        self.modified_ms = modified_ms
        self.data = bytearray(data)
        self.durable_size = 0
        self.is_named = False
        self.is_linked = True
        self.locked_by: dict[Any, bool] = {}
        """Who has a lock, and whether it is shared."""

    def resize(self, size: int) -> None:
        """What is added is zeros."""
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))


Folder = dict[str, Union[File, "Folder"]]


class Platter:
    """What is there of the files of all lives of a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cuts_all = False
        """Whether a power cut removes all that is not durable, instead of a part."""
        self._root: Folder = {}
        self._depth = len(str(folder).split("/"))
        self._numbers = count(1)

    def copied_to(self, folder: Path) -> "Platter":
        """Another disk with what this one has now, all of it durable."""
        copy = Platter(folder)
        copy._root = copy._copied(self._root)
        return copy

    def _copied(self, folder: Folder) -> Folder:
        made: Folder = {}
        for name, entry in folder.items():
            if isinstance(entry, File):
                file = made[name] = self.make_file(entry.modified_ms, entry.data)
                file.durable_size, file.is_named = len(file.data), True
            else:
                made[name] = self._copied(entry)
        return made

    def make_file(self, modified_ms: int, data: bytes | bytearray = b"") -> File:
        return File(next(self._numbers), modified_ms, data)

    def entry(self, path: Path) -> File | Folder | None:
        """What has this name."""
        found: File | Folder | None = self._root
        for name in str(path).split("/")[self._depth :]:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def file(self, path: Path) -> File:
        """Raises OSError."""
        found = self.entry(path)
        if not isinstance(found, File):
            raise error_of(errno.ENOENT if found is None else errno.EISDIR, path)
        return found

    def folder_at(self, path: Path) -> Folder:
        """Raises OSError."""
        found = self.entry(path)
        if not isinstance(found, dict):
            raise error_of(errno.ENOENT if found is None else errno.ENOTDIR, path)
        return found

    def make_folder(self, path: Path) -> None:
        """And those above it. Raises OSError."""
        folder: File | Folder = self._root
        for name in str(path).split("/")[self._depth :]:
            if isinstance(folder, File):
                raise error_of(errno.ENOTDIR, path)
            folder = folder.setdefault(name, {})
        if isinstance(folder, File):
            raise error_of(errno.EEXIST, path)

    def cut_power(self, rng: random.Random) -> None:
        """Remove a part of what is not durable."""
        self._root.pop(BOOT_ID, None)
        self._cut(self._root, _All() if self.cuts_all else rng)

    def _cut(self, folder: Folder, rng: random.Random) -> None:
        for name, entry in sorted(folder.items()):
            if isinstance(entry, dict):
                self._cut(entry, rng)
            elif may_be_lost(name):
                size = len(entry.data)
                left = left_of(size, entry.durable_size, rng, is_named=entry.is_named)
                if left is None:
                    del folder[name]
                    continue
                entry.resize(left.size)
                if left.has_zeros:
                    entry.resize(size)


class _All(random.Random):
    """Draws the loss of everything."""

    def random(self) -> float:
        return 0.0

    def randint(self, a: int, b: int) -> int:
        return a


def error_of(number: int, path: Path) -> OSError:
    """As the system raises it."""
    return OSError(number, os.strerror(number), str(path))
