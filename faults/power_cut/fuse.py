"""A file system of one file, `disk`, whose bytes are those of a `VolatileDisk`.

Owns the few messages of the FUSE protocol that the kernel sends for a loop device on such a file. Invariant:
a flush of the loop device arrives as FSYNC and is answered after the disk has flushed; nothing is cached
between the kernel and the disk. Source: include/uapi/linux/fuse.h, protocol 7.31. Linux only, needs root.
"""

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Final

from faults.power_cut.volatile import VolatileDisk

DISK_NAME: Final = b"disk"
_ROOT: Final = 1
_DISK: Final = 2
_MAJOR: Final = 7
_MINOR: Final = 31
_MAX_WRITE_BYTES: Final = 128 * 1024
_BUFFER_BYTES: Final = _MAX_WRITE_BYTES + 4096
_BIG_WRITES: Final = 1 << 5
_DIRECT_IO: Final = 1
_VALID_SECONDS: Final = 3600
_REQUEST: Final = struct.Struct("<IIQQIIIHH")
_ANSWER: Final = struct.Struct("<IiQ")
_INIT: Final = struct.Struct("<IIIIHHIIHHI28x")
_ATTRIBUTES: Final = struct.Struct("<QQQQQQIIIIIIIIII")
_READ_OR_WRITE: Final = struct.Struct("<QQIIQII")


class _Operation(IntEnum):
    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    RELEASEDIR = 29
    ACCESS = 34
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42


_WITHOUT_ANSWER: Final = (_Operation.FORGET, _Operation.BATCH_FORGET, _Operation.INTERRUPT)


def mount(folder: Path) -> int:
    """Mount on `folder`; the descriptor to `serve`. Raises OSError."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tidelog-faults", bytes(folder), b"fuse", 0, options):
        number = ctypes.get_errno()
        os.close(fd)
        raise OSError(number, f"mounting FUSE: {os.strerror(number)}")
    return fd


def serve(fd: int, disk: VolatileDisk) -> None:
    """Answer the kernel until the file system is unmounted."""
    server = _Server(disk)
    while True:
        try:
            request = os.read(fd, _BUFFER_BYTES)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                continue
            if error.errno == errno.ENODEV:
                return
            raise
        if answer := server.answer(request):
            os.write(fd, answer)


class _Server:
    def __init__(self, disk: VolatileDisk) -> None:
        self._disk = disk
        self._by_operation: dict[int, Callable[[int, bytes], bytes]] = {
            _Operation.INIT: self._init,
            _Operation.LOOKUP: self._lookup,
            _Operation.GETATTR: self._attributes,
            _Operation.SETATTR: self._attributes,
            _Operation.OPEN: lambda node, body: struct.pack("<QII", 0, _DIRECT_IO, 0),
            _Operation.OPENDIR: lambda node, body: struct.pack("<QII", 0, 0, 0),
            _Operation.READ: self._read,
            _Operation.WRITE: self._write,
            _Operation.FSYNC: self._flush,
            _Operation.FLUSH: lambda node, body: b"",
            _Operation.STATFS: lambda node, body: bytes(80),
            _Operation.ACCESS: lambda node, body: b"",
            _Operation.RELEASE: lambda node, body: b"",
            _Operation.RELEASEDIR: lambda node, body: b"",
            _Operation.DESTROY: lambda node, body: b"",
        }

    def answer(self, request: bytes) -> bytes:
        """The bytes to write back, none where the kernel waits for none."""
        _, operation, unique, node, *_ = _REQUEST.unpack_from(request)
        if operation in _WITHOUT_ANSWER:
            return b""
        handler = self._by_operation.get(operation)
        try:
            if handler is None:
                raise OSError(errno.ENOSYS, "not needed for one file")
            body = handler(node, request[_REQUEST.size :])
        except OSError as error:
            return _ANSWER.pack(_ANSWER.size, -(error.errno or errno.EIO), unique)
        return _ANSWER.pack(_ANSWER.size + len(body), 0, unique) + body

    def _init(self, node: int, body: bytes) -> bytes:
        return _INIT.pack(_MAJOR, _MINOR, 0, _BIG_WRITES, 0, 0, _MAX_WRITE_BYTES, 1, 0, 0, 0)

    def _lookup(self, node: int, body: bytes) -> bytes:
        if body.rstrip(b"\0") != DISK_NAME:
            raise OSError(errno.ENOENT, "there is one file")
        head = struct.pack("<QQQQII", _DISK, 0, _VALID_SECONDS, _VALID_SECONDS, 0, 0)
        return head + self._attributes_of(_DISK)

    def _attributes(self, node: int, body: bytes) -> bytes:
        return struct.pack("<QII", _VALID_SECONDS, 0, 0) + self._attributes_of(node)

    def _attributes_of(self, node: int) -> bytes:
        is_root = node == _ROOT
        size = 0 if is_root else self._disk.size_bytes
        mode = stat.S_IFDIR | 0o700 if is_root else stat.S_IFREG | 0o600
        times = (0, 0, 0, 0, 0, 0)
        return _ATTRIBUTES.pack(node, size, size // 512, *times, mode, 1, 0, 0, 0, 4096, 0)

    def _read(self, node: int, body: bytes) -> bytes:
        _, offset, size, *_ = _READ_OR_WRITE.unpack_from(body)
        return self._disk.read(offset, size)

    def _write(self, node: int, body: bytes) -> bytes:
        _, offset, size, *_ = _READ_OR_WRITE.unpack_from(body)
        try:
            self._disk.write(offset, body[_READ_OR_WRITE.size : _READ_OR_WRITE.size + size])
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from error
        return struct.pack("<II", size, 0)

    def _flush(self, node: int, body: bytes) -> bytes:
        self._disk.flush()
        return b""
