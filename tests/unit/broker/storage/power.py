"""A disk with a page cache and a plug: what fdatasync did not reach may be gone when the power goes.

The files in the folder are what the page cache shows. Beside them stands what the platters hold: a failed
fdatasync leaves the pages clean though they never got there, as Linux does, so that a later one helps
nothing.
"""

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path

from tidelog.broker.storage.disk import Disk
from tidelog.protocol.types import Buffer


class PowerDisk(Disk):
    """Use one for all lives of a folder. Names of new files are durable once their folder was synced, what
    rename and unlink change at once."""

    def __init__(self) -> None:
        self.fails_to_sync = False
        self._paths: dict[int, Path] = {}
        self._platters: dict[Path, bytearray] = {}
        self._dirty: dict[Path, list[tuple[int, int]]] = {}
        self._unnamed: set[Path] = set()

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        if not path.exists():
            self._unnamed.add(path)
        fd = super().open(path, flags)
        self._paths[fd] = path
        if path not in self._platters or flags & os.O_TRUNC:
            self._platters[path] = bytearray(path.read_bytes())
        return fd

    def writev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        size = super().writev(fd, buffers, position)
        self._dirty.setdefault(self._paths[fd], []).append((position, position + size))
        return size

    def truncate(self, fd: int, size: int) -> None:
        super().truncate(fd, size)
        path = self._paths[fd]
        self._dirty[path] = [(start, min(end, size)) for start, end in self._dirty.get(path, [])]
        del self._platters[path][size:]

    def fdatasync(self, fd: int) -> None:
        path = self._paths[fd]
        dirty = self._dirty.pop(path, [])
        if self.fails_to_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        for start, end in dirty:
            self._reach(path, start, end)
        held = self._platters[path]
        held.extend(bytes(max(0, os.fstat(fd).st_size - len(held))))

    def fsync_directory(self, path: Path) -> None:
        super().fsync_directory(path)
        self._unnamed = {each for each in self._unnamed if each.parent != path}

    def _reach(self, path: Path, start: int, end: int) -> None:
        """These bytes of the page cache get to the platters."""
        data = path.read_bytes()[start:end]
        held = self._platters[path]
        held.extend(bytes(max(0, start - len(held))))
        held[start : start + len(data)] = data

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self._platters[new] = self._platters.pop(old, bytearray(new.read_bytes()))
        self._dirty[new] = self._dirty.pop(old, [])
        self._unnamed.discard(old)
        self._paths = {fd: new if path == old else path for fd, path in self._paths.items()}

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self._platters.pop(path, None)
        self._dirty.pop(path, None)
        self._unnamed.discard(path)

    def power_cut(self, chance: random.Random) -> None:
        """Whatever was not synced is there or not, in pieces; the page cache is empty afterwards."""
        for path, ranges in self._dirty.items():
            for start, end in ranges:
                if start < end and chance.random() < 0.5:
                    self._reach(
                        path, chance.randint(start, end - 1), end if chance.random() < 0.5 else end - 1
                    )
        for path in sorted(self._unnamed):
            if chance.random() < 0.5:
                self.unlink(path)
        for path, data in self._platters.items():
            if path.exists():
                path.write_bytes(data)
        self._dirty.clear()
        self._unnamed.clear()
