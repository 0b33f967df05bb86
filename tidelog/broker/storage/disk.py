"""The only place that touches files.

Owns every system call on the data folder, so that a test can make any of them fail by overriding a method
of `Disk` (`sync_queue` steps aside for an overridden `fdatasync`); and `OpenFile`, a descriptor that is
closed only when its last user is done with it, and of which parts are mapped (`MappedWindow`).

Invariants: nothing here retries, hides or logs an error: OSError goes to the caller, which knows what it
means. `writev` and `preadv` may do less than asked, as the system does; `write_all` and `read` do not. Only
`open`, `list_directory` and `fsync_directory` take a file handle, before they do anything else.

Safe in any thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import BuiltinFunctionType
from typing import Final

from tidelog.broker.storage.sync_queue import SyncQueue
from tidelog.protocol.types import Buffer

_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
LEAST_MAPPED_BYTES: Final = 128 * 1024
"""Fewer bytes are copied in less time."""
WINDOW_BYTES: Final = 8 << 20
_OVERLAP_BYTES: Final = 1 << 20
"""Of a window with the next one: what most consumers want at once lies in one window."""
_MOST_WINDOWS: Final = 64
_HANDLES_PER_WINDOW: Final = 64
"""Of all that the process may have: each window takes one."""
_BUFFERS_PER_WRITE = 256
_MANY = 1 << 30
_NOT_CACHED = (errno.EAGAIN, errno.EWOULDBLOCK)
_OUT_OF_HANDLES = (errno.EMFILE, errno.ENFILE)
HANDLES_ADVICE = (
    "too many files are open: raise the limit (ulimit -n) or close some of them; nothing is damaged, and "
    "the work continues by itself once file handles are free"
)
SPACE_ADVICE = (
    "free space on the disk that holds the data folder; nothing is damaged, and the broker tries again by "
    "itself"
)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""After these errors, except from a sync (`SyncError`), the disk still works: the write is cut off, the log
continues."""
_mincore = ctypes.PyDLL(None).mincore if sys.platform == "linux" else None
"""PyDLL keeps the interpreter: the call never waits."""
_NO_NOWAIT = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class SyncError(OSError):
    """A sync failed: what it covered may be lost, whatever its errno is. It is never repeated."""


def may_be_repeated(error: BaseException | None) -> bool:
    """Whether space or file handles were lacking, and no sync has failed: nothing is in doubt."""
    if isinstance(error, SyncError) or not isinstance(error, OSError):
        return False
    return error.errno in FULL or is_out_of_handles(error)


def is_out_of_handles(error: BaseException | None) -> bool:
    """Whether no file could be opened, because the process or the system has too many open.

    Nothing was done then: the call can be repeated.
    """
    return isinstance(error, OSError) and error.errno in _OUT_OF_HANDLES


def advice_on(error: BaseException | None, otherwise: str) -> str:
    """What to do about `error`: HANDLES_ADVICE if it says that handles are lacking."""
    return HANDLES_ADVICE if is_out_of_handles(error) else otherwise


def repeated_advice_on(error: BaseException | None, otherwise: str) -> str:
    """What to do about `error` of work that is done again if `may_be_repeated`."""
    return advice_on(error, SPACE_ADVICE if may_be_repeated(error) else otherwise)


class HandleLimitError(OSError):
    """More files are asked for than the process may ever have open; the message says how many."""


class ColdRead(Exception):
    """The bytes are not in the page cache: read them again in a thread, without `nowait`."""


class MappedWindow(mmap.mmap):
    """A part of a file. Only system calls may read it: where the disk fails or the file was cut off, a call
    fails with EFAULT, but other access would end the process (SIGBUS)."""

    file: OpenFile
    position: int


_windows: dict[tuple[OpenFile, int], MappedWindow] = {}
"""By file and number; the one used last is at the end."""
_windows_lock: Final = threading.Lock()
"""Files are mapped by the loop, and closed by other threads too."""


def in_memory(buffers: Sequence[Buffer], skipped_bytes: int = 0) -> list[Buffer]:
    """What follows the first bytes of these, with what is mapped read from its file. Raises OSError."""
    found: list[Buffer] = []
    for each in buffers:
        size = len(each)
        if skipped_bytes and size <= skipped_bytes:
            skipped_bytes -= size
            continue
        rest = memoryview(each)[skipped_bytes:] if skipped_bytes else each
        window = rest.obj if isinstance(rest, memoryview) else None
        if isinstance(window, MappedWindow):
            file, position = window.file, window.position + _address(rest) - _address(window)
            rest = file.read(size - skipped_bytes, position)
            if len(rest) < size - skipped_bytes:
                raise OSError(f"{file.path} ends within {size - skipped_bytes} bytes at {position}")
        found.append(rest)
        skipped_bytes = 0
    return found


def _address(buffer: Buffer | MappedWindow) -> int:
    """Of a buffer that may be written, as private mappings may."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


class Disk:
    """System calls by name. Offsets and sizes are bytes."""

    writev: Callable[[int, Sequence[Buffer], int], int] = staticmethod(os.pwritev)
    """Descriptor, buffers and position -> how many bytes were written."""

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def preadv(self, fd: int, buffer: memoryview, position: int, flags: int = 0) -> int:
        return os.preadv(fd, [buffer], position, flags)

    def map(self, fd: int, size: int, position: int) -> MappedWindow | None:
        """A mapping of these bytes; None if the file lacks some of them, or they have to be read.

        They have to be read where a test has replaced `preadv`, so that the replacement is called.
        """
        if _mincore is None or type(self).preadv is not Disk.preadv:
            return None
        with suppress(OSError, ValueError):  # No handle is free; the file is shorter.
            # A private copy, although nothing is written: of others ctypes does not give the address.
            return MappedWindow(fd, size, access=mmap.ACCESS_COPY, offset=position)
        return None

    def is_cached(self, address: int, size: int) -> bool:
        """Whether all pages of a mapping from `address` on are in the page cache. Source: mincore(2)."""
        start = address - address % mmap.PAGESIZE
        size += address - start
        pages = bytearray(-(-size // mmap.PAGESIZE))
        found = ctypes.byref(ctypes.c_char.from_buffer(pages))
        failed = _mincore is None or _mincore(ctypes.c_void_p(start), ctypes.c_size_t(size), found)
        return not failed and 0 not in pages

    def fdatasync(self, fd: int) -> None:
        """Raises SyncError."""
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise SyncError(error.errno, error.strerror) from error

    def sync_queue(self) -> SyncQueue | None:
        """The kernel's own way to `fdatasync` without a thread; None if there is none.

        None too if a test has replaced `fdatasync`, so that the replacement is called.
        """
        if type(self).fdatasync is not Disk.fdatasync or not isinstance(os.fdatasync, BuiltinFunctionType):
            return None
        return SyncQueue.open()

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def remove_directory(self, path: Path) -> None:
        os.rmdir(path)

    def make_directory(self, path: Path) -> None:
        """For this user alone, whatever its umask is."""
        path.mkdir(0o700, parents=True, exist_ok=True)

    def list_directory(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def exists(self, path: Path) -> bool:
        return path.exists()

    def names_and_size(self, fd: int) -> tuple[int, int]:
        """How many names lead to the open file (without one its bytes go with the process), and its size."""
        found = os.fstat(fd)
        return found.st_nlink, found.st_size

    def modified_ms(self, path: Path) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2)

    def fsync_directory(self, path: Path) -> None:
        """Make the names in a directory durable: without it a power cut may remove a new file.

        Raises SyncError, and OSError if the directory cannot be opened.
        """
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise SyncError(error.errno, error.strerror) from error
        finally:
            os.close(fd)

    def boot_id(self) -> str:
        """An id that changes with each start of this machine; "" where unknown."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""

    def place_of(self, path: Path) -> str:
        """Names a file of this machine until that starts again; a copy has another name. "" where unknown."""
        try:
            found = os.stat(path)
        except OSError:
            return ""
        boot_id = self.boot_id()
        return f"{boot_id}:{found.st_dev}:{found.st_ino}" if boot_id else ""

    def free_handles(self) -> int:
        """How many more files this process may open."""
        limit = self.handle_limit()
        try:
            return limit - _open_handles()
        except OSError as error:
            return 0 if is_out_of_handles(error) else limit

    def handle_limit(self) -> int:
        """How many files this process may have open."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _MANY if soft == resource.RLIM_INFINITY else soft

    def lock(self, fd: int, *, shared: bool = False) -> bool:
        """Take the flock, exclusive or shared; False when another process holds it."""
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def write_all(self, fd: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write every byte, going on after short writes. Raises OSError; part may be written then."""
        total = sum(map(len, buffers))
        written = self.writev(fd, buffers, position)
        while written < total:
            rest = memoryview(b"".join(buffers))[written:]
            count = self.writev(fd, [rest], position + written)
            if count <= 0:
                raise OSError(errno.EIO, f"write of {len(rest)} bytes wrote nothing")
            written += count

    def read(self, fd: int, size: int, position: int, *, nowait: bool = False) -> memoryview:
        """`size` bytes, or fewer at the end of the file.

        Raises ColdRead when `nowait` and some of them are not in the page cache.
        """
        view = memoryview(bytearray(size))
        done = 0
        while done < size:
            try:
                count = self.preadv(fd, view[done:], position + done, _RWF_NOWAIT if nowait else 0)
            except OSError as error:
                if nowait and error.errno in _NOT_CACHED:
                    raise ColdRead from None
                if nowait and error.errno in _NO_NOWAIT:
                    nowait = False
                    continue
                raise
            if count == 0:
                break
            done += count
        return view[:done]

    def read_file(self, path: Path) -> bytes:
        fd = self.open(path, os.O_RDONLY)
        try:
            return bytes(self.read(fd, self.size(fd), 0))
        finally:
            self.close(fd)

    def replace_file(
        self, path: Path, buffers: Iterable[Buffer], *, durably: bool = True, syncs_name: bool = True
    ) -> None:
        """Write a whole file durably; after a crash it has either the old or the new content.

        At most 256 of the buffers are held at a time. Without `durably` a power cut may leave an empty file
        or none; a killed process leaves old or new. Without `syncs_name` the new content is durable once the
        caller syncs the folder.
        """
        temporary = path.with_name(path.name + ".tmp")
        fd = self.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            try:
                self._write_pieces(fd, buffers)
                if durably:
                    self.fdatasync(fd)
            finally:
                self.close(fd)
            self.rename(temporary, path)
        except OSError:
            with suppress(OSError):
                self.unlink(temporary)  # It may take the last space of the disk.
            raise
        if durably and syncs_name:
            self.fsync_directory(path.parent)

    def _write_pieces(self, fd: int, buffers: Iterable[Buffer]) -> None:
        position, pieces = 0, iter(buffers)
        while some := list(islice(pieces, _BUFFERS_PER_WRITE)):
            self.write_all(fd, some, position)
            position += sum(map(len, some))


def _open_handles() -> int:
    """How many handles this process has. Raises OSError."""
    with suppress(OSError):
        # Linux gives it as the size of this folder since version 6.2.
        if count := os.stat("/proc/self/fd").st_size:
            return count
    return len(os.listdir("/dev/fd"))


class OpenFile:
    """A descriptor with users in several threads: `close` takes effect when the last of them is done."""

    __slots__ = ("_closing", "_lock", "_users", "disk", "fd", "path")

    def __init__(self, disk: Disk, path: Path, fd: int) -> None:
        self.disk = disk
        self.path = path
        self.fd = fd
        self._users = 0
        self._closing = False
        self._lock = threading.Lock()

    def acquire(self) -> bool:
        """Keep the descriptor open until `release`; False when it is closed already."""
        with self._lock:
            if self._closing:
                return False
            self._users += 1
            return True

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._closing and self._users == 0
        if last:
            self.disk.close(self.fd)

    def read(self, size: int, position: int, *, nowait: bool = False) -> memoryview:
        """As `Disk.read`. Raises OSError also if it is closed."""
        if not self.acquire():
            raise OSError(f"{self.path} was closed")
        try:
            return self.disk.read(self.fd, size, position, nowait=nowait)
        finally:
            self.release()

    def mapped(self, size: int, position: int) -> memoryview | None:
        """A view of a `MappedWindow`; None where the bytes have to be read: some are not in the page cache,
        or the file does not hold a whole window. For the event loop only."""
        number, start = divmod(position, WINDOW_BYTES)
        if start + size > WINDOW_BYTES + _OVERLAP_BYTES or not self.acquire():
            return None
        try:
            with _windows_lock:
                window = self._window(number)
            if window is None:
                return None
            view = memoryview(window)[start : start + size]
            return view if self.disk.is_cached(_address(view), size) else None
        finally:
            self.release()

    def _window(self, number: int) -> MappedWindow | None:
        known = _windows.pop((self, number), None)
        window = known
        if window is None:
            first = number * WINDOW_BYTES
            window = self.disk.map(self.fd, WINDOW_BYTES + _OVERLAP_BYTES, first)
            if window is None:
                return None
            window.file, window.position = self, first
        if not self._closing:
            _windows[self, number] = window
            if known is None and len(_windows) > min(
                _MOST_WINDOWS, self.disk.handle_limit() // _HANDLES_PER_WINDOW
            ):
                del _windows[next(iter(_windows))]
        return window

    def close(self) -> None:
        with self._lock:
            if self._closing:
                return
            self._closing = True
            last = self._users == 0
        with _windows_lock:
            for key in [each for each in _windows if each[0] is self]:
                del _windows[key]
        if last:
            self.disk.close(self.fd)
