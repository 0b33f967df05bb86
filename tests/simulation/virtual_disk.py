"""The disk of a simulated broker: it outlives it, and loses what was not synced.

Owns which bytes and names are durable, and when the broker dies on the way: a broker can be made to die at
any of its writes, just before or just after it, so between any two records. Real files in a folder of the
memory's file system; `faults.power` removes what a power cut would.
"""

import errno
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

from faults.power import cut_power
from tests.simulation.virtual_loop import Node, NodeDied
from tidelog.broker.storage.disk import Disk
from tidelog.protocol.types import Buffer


class Platter:
    """What is durable of the files of all lives of a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.synced: dict[int, int] = {}
        self.named: set[int] = set()
        self.cuts_all = False
        """Whether a power cut removes all that is not durable, instead of a part."""

    def copied_to(self, folder: Path) -> "Platter":
        """Another disk with what this one has now, all of it durable."""
        shutil.copytree(self.folder, folder)
        copy = Platter(folder)
        for path in folder.rglob("*"):
            found = path.stat()
            copy.synced[found.st_ino] = found.st_size
            copy.named.add(found.st_ino)
        return copy

    def cut_power(self, rng: random.Random) -> int:
        """Remove a part of what is not durable. Returns the number of bytes."""
        return cut_power(self.folder, self.synced, self.named, _All() if self.cuts_all else rng)


class _All(random.Random):
    """Draws the loss of everything."""

    def random(self) -> float:
        return 0.0

    def randint(self, a: int, b: int) -> int:
        return a


class VirtualDisk(Disk):
    """The system calls of one life. Those of a dead node have no effect."""

    def __init__(self, platter: Platter, node: Node) -> None:
        self._platter = platter
        self._node = node
        self._open: set[int] = set()
        self.dies_at_write: int | None = None
        """How many writes are left, the last of which the broker does not survive."""
        self.does_last_write = True
        self.is_full = False
        """Whether segments of topics that clients write take nothing more."""
        self._segments: set[int] = set()

    def close_all(self) -> None:
        """The process is gone."""
        for fd in self._open:
            os.close(fd)
        self._open.clear()

    def _check(self) -> None:
        if self._node.is_dead:
            raise NodeDied

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        self._check()
        fd = super().open(path, flags)
        self._open.add(fd)
        is_segment = path.suffix == ".log" and not path.parent.name.startswith("__")
        (self._segments.add if is_segment else self._segments.discard)(fd)
        return fd

    def close(self, fd: int) -> None:
        if fd in self._open:
            self._open.discard(fd)
            super().close(fd)

    def writev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self._check()
        if self.is_full and fd in self._segments:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.dies_at_write is not None:
            self.dies_at_write -= 1
            if self.dies_at_write <= 0:
                if self.does_last_write:
                    super().writev(fd, buffers, position)
                self._node.kill()
                raise NodeDied
        return super().writev(fd, buffers, position)

    def fdatasync(self, fd: int) -> None:
        self._check()
        found = os.fstat(fd)
        self._platter.synced[found.st_ino] = found.st_size

    def sync_queue(self) -> None:
        return None

    def fsync_directory(self, path: Path) -> None:
        self._check()
        with os.scandir(path) as entries:
            self._platter.named.update(map(os.DirEntry.inode, entries))

    def truncate(self, fd: int, size: int) -> None:
        self._check()
        super().truncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        self._check()
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._check()
        super().unlink(path)

    def free_handles(self) -> int:
        return 1 << 16
