"""What a store that is served over a socket and its clients send each other: JSON objects in frames.

Owns the frame (a length of four bytes, then the JSON), the bound on its size, and the form of each answer and
of each error. A connection begins with a frame that names the protocol's version and what the client wants:

- `calls`: requests, one after the other: load, commit, settle;
- `commits`: what is committed after a revision, a frame each;
- `session`: the session of a broker. It lives as long as the connection;
- `sessions`: all sessions that live, a frame each time they change.

Invariant: no more than `MOST_FRAME_BYTES` are read, whatever length the other side names.
"""

import asyncio
import os
import struct
from collections.abc import Mapping
from typing import Any, Final

from tidelog.broker.cluster.facts import decoded, encoded
from tidelog.broker.cluster.store import SessionHeld, SessionLives, StoreConflict, StoreError

VERSION: Final = 1
MOST_FRAME_BYTES: Final = 128 << 20
"""A commit holds no more than a client's request asked for, which is at most 100 MiB by default."""
LINES_PER_FRAME: Final = 200
"""An image is sent in parts of this number of lines, none of which is larger than a commit."""
_LENGTH: Final = struct.Struct(">I")
_KINDS: Final[tuple[type[Exception], ...]] = (SessionLives, SessionHeld, StoreConflict, StoreError)
"""The most special first."""
_OS_ERROR: Final = "OSError"


class BadFrame(Exception):
    """The other side does not follow the protocol; the connection ends."""


async def read_frame(reader: asyncio.StreamReader) -> Mapping[str, Any] | None:
    """The next frame; None at the end of the connection. Raises BadFrame, OSError."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MOST_FRAME_BYTES:
            raise BadFrame(f"expected a frame of at most {MOST_FRAME_BYTES} bytes, got {length}")
        return decoded(await reader.readexactly(length))
    except asyncio.IncompleteReadError:
        return None
    except ValueError as error:
        raise BadFrame(str(error)) from error


async def write_frame(writer: asyncio.StreamWriter, fields: Mapping[str, object]) -> None:
    """Raises StoreError for what is too large, OSError."""
    text = encoded(fields).encode()
    if len(text) > MOST_FRAME_BYTES:
        raise StoreError(
            f"a change of {len(text)} bytes is too large for the cluster store, which takes "
            f"{MOST_FRAME_BYTES}: make it in smaller steps"
        )
    writer.write(_LENGTH.pack(len(text)) + text)
    await writer.drain()


def error_fields(error: Exception) -> dict[str, object]:
    """An error as values that JSON knows."""
    kind = next((kind.__name__ for kind in _KINDS if isinstance(error, kind)), _OS_ERROR)
    number = error.errno if isinstance(error, OSError) else None
    return {"error": kind, "message": str(error), "errno": number}


def raise_error(fields: Mapping[str, Any]) -> None:
    """Raise the error that an answer holds, if it holds one."""
    kind, message, number = (fields.get(name) for name in ("error", "message", "errno"))
    if kind is None:
        return
    for known in _KINDS:
        if kind == known.__name__:
            raise known(str(message))
    raise OSError(number, os.strerror(number)) if isinstance(number, int) else OSError(str(message))
