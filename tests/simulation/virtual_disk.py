"""The disk of a simulated broker: the system calls of one life on a `Platter`.

Owns when the broker dies on the way: it can be made to die at any of its writes, just before or just after
it, so between any two records.
"""

import errno
import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tests.simulation.platter import File, Platter, error_of
from tests.simulation.virtual_loop import Node, NodeDied
from tidelog.broker.storage.disk import Disk, MappedWindow
from tidelog.protocol.types import Buffer

_MANY = 1 << 16


class VirtualDisk(Disk):
    """Those of a dead node have no effect."""

    def __init__(self, platter: Platter, node: Node) -> None:
        self._platter = platter
        self._node = node
        self._open: dict[int, File] = {}
        self._numbers = count(3)
        self.dies_at_write: int | None = None
        """How many writes are left, the last of which the broker does not survive."""
        self.does_last_write = True
        self.is_full = False
        """Whether segments of topics that clients write take nothing more."""
        self._segments: set[int] = set()

    def close_all(self) -> None:
        """The process is gone."""
        for fd in list(self._open):
            self.close(fd)

    def _check(self) -> None:
        if self._node.is_dead:
            raise NodeDied

    def _file(self, fd: int) -> File:
        try:
            return self._open[fd]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        self._check()
        file = self._platter.entry(path)
        if file is None and flags & os.O_CREAT:
            file = self._platter.make_file(self._node.loop.now_ms())
            self._platter.folder_at(path.parent)[path.name] = file
        elif not isinstance(file, File):
            raise error_of(errno.ENOENT if file is None else errno.EISDIR, path)
        elif flags & os.O_TRUNC:
            file.resize(0)
        fd = next(self._numbers)
        self._open[fd] = file
        if path.suffix == ".log" and not path.parent.name.startswith("__"):
            self._segments.add(fd)
        return fd

    def close(self, fd: int) -> None:
        if (file := self._open.pop(fd, None)) is not None:
            file.locked_by.pop((self, fd), None)
            self._segments.discard(fd)

    def size(self, fd: int) -> int:
        return len(self._file(fd).data)

    def writev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self._check()
        if self.is_full and fd in self._segments:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.dies_at_write is not None:
            self.dies_at_write -= 1
            if self.dies_at_write <= 0:
                if self.does_last_write:
                    self._write(fd, buffers, position)
                self._node.kill()
                raise NodeDied
        return self._write(fd, buffers, position)

    def _write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        file, written = self._file(fd), b"".join(buffers)
        if position > len(file.data):
            file.resize(position)
        file.data[position : position + len(written)] = written
        file.modified_ms = self._node.loop.now_ms()
        return len(written)

    def preadv(self, fd: int, buffer: memoryview, position: int, flags: int = 0) -> int:
        found = self._file(fd).data[position : position + len(buffer)]
        buffer[: len(found)] = found
        return len(found)

    def read(self, fd: int, size: int, position: int, *, nowait: bool = False) -> memoryview:
        return memoryview(self._file(fd).data[position : position + size])

    def map(self, fd: int, size: int, position: int) -> MappedWindow | None:
        return None

    def fdatasync(self, fd: int) -> None:
        self._check()
        file = self._file(fd)
        file.durable_size = len(file.data)

    def sync_queue(self) -> None:
        return None

    def fsync_directory(self, path: Path) -> None:
        self._check()
        for entry in self._platter.folder_at(path).values():
            if isinstance(entry, File):
                entry.is_named = True

    def truncate(self, fd: int, size: int) -> None:
        self._check()
        file = self._file(fd)
        file.resize(size)
        file.modified_ms = self._node.loop.now_ms()

    def rename(self, old: Path, new: Path) -> None:
        self._check()
        source, target = self._platter.folder_at(old.parent), self._platter.folder_at(new.parent)
        moved, replaced = self._platter.entry(old), self._platter.entry(new)
        if moved is None:
            raise error_of(errno.ENOENT, old)
        if moved is replaced:
            return
        if isinstance(replaced, dict) and (isinstance(moved, File) or replaced):
            raise error_of(errno.EISDIR if isinstance(moved, File) else errno.ENOTEMPTY, new)
        if isinstance(replaced, File):
            if isinstance(moved, dict):
                raise error_of(errno.ENOTDIR, new)
            replaced.is_linked = False
        target[new.name] = source.pop(old.name)

    def unlink(self, path: Path) -> None:
        self._check()
        self._platter.file(path).is_linked = False
        del self._platter.folder_at(path.parent)[path.name]

    def remove_directory(self, path: Path) -> None:
        self._check()
        if self._platter.folder_at(path):
            raise error_of(errno.ENOTEMPTY, path)
        del self._platter.folder_at(path.parent)[path.name]

    def make_directory(self, path: Path) -> None:
        self._check()
        self._platter.make_folder(path)

    def list_directory(self, path: Path) -> list[str]:
        return sorted(self._platter.folder_at(path))

    def is_directory(self, path: Path) -> bool:
        return isinstance(self._platter.entry(path), dict)

    def exists(self, path: Path) -> bool:
        return self._platter.entry(path) is not None

    def names_and_size(self, fd: int) -> tuple[int, int]:
        file = self._file(fd)
        return int(file.is_linked), len(file.data)

    def modified_ms(self, path: Path) -> int:
        return self._platter.file(path).modified_ms

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        self._check()
        self._platter.file(path).modified_ms = modified_ms

    def boot_id(self) -> str:
        return "of all lives"

    def place_of(self, path: Path) -> str:
        found = self._platter.entry(path)
        return f"{self._platter.folder}:{found.number}" if isinstance(found, File) else ""

    def free_handles(self) -> int:
        return _MANY

    def handle_limit(self) -> int:
        return _MANY

    def lock(self, fd: int, *, shared: bool = False) -> bool:
        locks = self._file(fd).locked_by
        others = [is_shared for owner, is_shared in locks.items() if owner != (self, fd)]
        if others and not (shared and all(others)):
            return False
        locks[self, fd] = shared
        return True
