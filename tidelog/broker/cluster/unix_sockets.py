"""Unix sockets between the processes of one broker, at paths that may be longer than the system allows.

Owns the way around its limit of 107 bytes: the folder is opened, and named by its number. Only the user of
this process may connect.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_LONGEST: Final = 107
_ONLY_THIS_USER: Final = 0o177


def bind_at(path: Path) -> socket.socket:
    """A bound socket that does not listen yet; one that a process left there is replaced. Raises OSError."""
    with suppress(FileNotFoundError):
        path.unlink()
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        before = os.umask(_ONLY_THIS_USER)
        try:
            with _short(path) as address:
                bound.bind(address)
        finally:
            os.umask(before)
    except BaseException:
        bound.close()
        raise
    return bound


def connect_to(path: Path) -> socket.socket:
    """A connection that does not block. Raises OSError if no process listens, or too many connections
    wait."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.setblocking(False)
        with _short(path) as address:
            connected.connect(address)
    except BaseException:
        connected.close()
        raise
    return connected


@contextmanager
def _short(path: Path) -> Iterator[str]:
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
