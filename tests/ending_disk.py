"""A disk whose process ends before a change, as after kill -9: what was written before stays."""

import os
from collections.abc import Sequence
from pathlib import Path

from tidelog.broker.storage.disk import Disk
from tidelog.protocol.types import Buffer

MANY = 1 << 30


class Killed(BaseException):
    """The process ended."""


class EndingDisk(Disk):
    """Makes `left` more changes. After them each change raises `error`, and nothing changes any more."""

    left = MANY
    error: BaseException = Killed()

    def change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.error

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        if flags & os.O_CREAT and not path.exists():
            self.change()
        return super().open(path, flags)

    def writev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self.change()
        return super().writev(fd, buffers, position)

    def truncate(self, fd: int, size: int) -> None:
        self.change()
        super().truncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        self.change()
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self.change()
        super().unlink(path)

    def remove_directory(self, path: Path) -> None:
        self.change()
        super().remove_directory(path)

    def make_directory(self, path: Path) -> None:
        if not path.exists():
            self.change()
        super().make_directory(path)
