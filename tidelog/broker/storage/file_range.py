"""Bytes of a segment that are sent from the page cache and never come into this process.

Owns `FileRange`, which is in an answer in place of a buffer: it has a length, and the connection sends it in
parts. Invariants: its file stays open as long as it exists, also if retention or compaction deletes the
segment meanwhile; nothing is sent of a file whose bytes are about to change (`OpenFile.revoke`); only `read`
may wait for the disk.

For the event loop; `read` also in a thread.
"""

import time
from typing import Final

from tidelog.broker.storage.disk import ColdRead, OpenFile

LEAST_BYTES: Final = 128 * 1024
"""Below this size copying costs less."""
_MOST_AT_ONCE: Final = 1 << 20
_STAYS_CACHED_SECONDS: Final = 0.005
"""How long pages that were cached are taken to be so still: as long as it takes to make an answer of them."""
_now = time.perf_counter


class FileRange:
    """What is left of `size` bytes from `position`. The caller has acquired `file`; this releases it."""

    __slots__ = ("_cached_until", "_file", "_position", "_size")

    def __init__(self, file: OpenFile, position: int, size: int) -> None:
        self._cached_until = 0.0
        self._file = file
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def send(self, socket_fd: int) -> bool:
        """Give the kernel what the socket takes now, at most 1 MiB; whether the socket took all of that.

        Raises ColdRead when the bytes would have to come from the disk, ConnectionError or TimeoutError when
        the client is gone, and another OSError when the file cannot be read.
        """
        file = self._file
        size = min(self._size, _MOST_AT_ONCE)
        file.check_kept()
        if _now() > self._cached_until and not file.disk.is_cached(file.fd, self._position, size):
            raise ColdRead
        try:
            count = file.disk.send_file(socket_fd, file.fd, self._position, size)
        except BlockingIOError:
            return False
        if not count:
            raise self._too_short()
        self.skip(count)
        return count == size

    def is_cached(self) -> bool:
        """Whether all can be sent without waiting for the disk. For a moment `send` does not ask again."""
        file = self._file
        if not file.disk.is_cached(file.fd, self._position, self._size):
            return False
        self._cached_until = _now() + _STAYS_CACHED_SECONDS
        return True

    def take(self, size: int) -> memoryview:
        """The next bytes, at most `size`, which leave the range. Raises ColdRead and OSError."""
        data = self.read(size, nowait=True)
        self.skip(len(data))
        return data

    def read(self, size: int, *, nowait: bool = False) -> memoryview:
        """The next bytes, at most `size`, which stay in the range.

        Raises OSError, and ColdRead when `nowait`.
        """
        file = self._file
        file.check_kept()
        size = min(size, self._size)
        data = file.disk.read(file.fd, size, self._position, nowait=nowait)
        if len(data) < size:
            raise self._too_short()
        return data

    def _too_short(self) -> OSError:
        return OSError(f"{self._file.path} ends within the {self._size} bytes at {self._position}")

    def skip(self, count: int) -> None:
        """`count` bytes have been sent."""
        self._position += count
        self._size -= count

    def __del__(self) -> None:
        self._file.release()
