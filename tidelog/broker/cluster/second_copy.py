"""The second copy of the catalog, beside the SQLite file: `cluster.copy` in the data folder.

Owns the file. It is text: the first line describes the file as it was written (`format`, identity, number of
topics and users, size). Then there is a line per topic, one per user, one per commit since, then zeros up to
the named size. A line is the CRC-32C of its JSON, a space, the JSON.

Invariants:
- a commit is acknowledged only when it is in SQLite and here. So a whole copy is the newest state, except for
  a commit that was not acknowledged to any client;
- the file is replaced as a whole, or a line is written over zeros whose disk space was allocated before;
- damage in the file is not an error of `read_copy`: it returns what is wrong, and the state before the
  damage. The size shows when a file was cut off at the end of a line.

Text and a few lines of code rather than a second SQLite file: what damages one must not damage the other.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from crc32c import crc32c

from tidelog.broker.cluster.catalog import Delta
from tidelog.broker.cluster.choice import Found
from tidelog.broker.cluster.facts import (
    StoredCluster,
    decoded,
    delta_fields,
    delta_of,
    encoded,
    list_of,
    whole_number,
)
from tidelog.broker.cluster.image_lines import first_line, other_lines, read_image

_GIVEN_UP: Final = b"given up"
"""Replaces the first line's checksum."""
FORMAT: Final = 5
ROOM_BYTES: Final = 256 << 10
"""The least free bytes behind a copy just written: enough for some thousand deletions on a full disk."""


def read_copy(path: Path) -> Found:
    """What the copy at `path` holds. Raises OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Found()
    return _parsed(data)


def write_copy(path: Path, cluster: StoredCluster) -> None:
    """Replace the copy by one of `cluster`, durably. Raises OSError; then it is as before."""
    facts = b"".join(map(_line, other_lines(cluster.catalog)))
    # The first line names the size, in always as many digits.
    used = len(_first_line(cluster, 0)) + len(facts)
    size = used + max(ROOM_BYTES, used)
    text = _first_line(cluster, size) + facts
    temporary = path.with_name(path.name + ".tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_bytes(fd, text + bytes(size - len(text)), 0)
            os.fdatasync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()  # On a full disk it would take the remaining space.
        raise
    _sync_folder(path.parent)


def give_up(path: Path) -> None:
    """Mark the copy as invalid, if it exists. Needs no disk space.

    Raises OSError.
    """
    with suppress(FileNotFoundError):
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            write_bytes(fd, _GIVEN_UP, 0)
            os.fdatasync(fd)
        finally:
            os.close(fd)


class CopyFile:
    """The copy of a store that is open: lines are added to it."""

    def __init__(self, path: Path) -> None:
        """It has to be whole. Raises OSError."""
        data = path.read_bytes()
        self._position, self._size = len(data.rstrip(b"\0")), len(data)
        self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def has_room_for(self, line: bytes) -> bool:
        return self._position + len(line) <= self._size

    def append(self, line: bytes) -> None:
        """Durable when it returns. Raises OSError; then append nothing more to the file."""
        write_bytes(self._fd, line, self._position)
        os.fdatasync(self._fd)
        self._position += len(line)

    def close(self) -> None:
        os.close(self._fd)


def commit_line(deltas: Sequence[Delta], revision: int) -> bytes:
    """The line of a commit after which the store is at `revision`."""
    return _line({"revision": revision, "deltas": [delta_fields(delta) for delta in deltas]})


def _line(fields: object) -> bytes:
    text = encoded(fields).encode()
    return b"%08x %s\n" % (crc32c(text), text)


def _first_line(cluster: StoredCluster, size: int) -> bytes:
    more = {"format": FORMAT, "size": f"{size:012d}", "node_id": cluster.node_id}
    return _line(more | first_line(cluster.catalog))


def _parsed(data: bytes) -> Found:
    text, _, rest = data.partition(b"\0")
    *lines, torn = text.split(b"\n")
    fields = [_fields_of(line) for line in lines]
    after: list[StoredCluster | None] = []
    problem = ""
    try:
        after.extend(_replayed(fields))  # Keeps what came before an error.
        if torn or rest.strip(b"\0"):
            raise ValueError("what follows is neither a line nor zeros for one")
        if _size_in(fields) != len(data):
            raise ValueError(f"the file has {len(data)} bytes, which is not what its first line says")
    except (ValueError, KeyError, TypeError) as error:
        problem = f"after line {len(after)}: {error}"
    newest = max((each["revision"] for each in fields if each and "revision" in each), default=-1)
    cluster = after[-1] if after else None
    if data.startswith(_GIVEN_UP):
        return Found(None, "given up on a full disk", newest, is_end_known=True)
    # A power cut leaves any part of the last line.
    unread = data[text.rfind(b"\n") + 1 :].rstrip(b"\0")
    is_end_known = _size_in(fields) == len(data) and b"\n" not in unread[:-1]
    return Found(None if problem else cluster, problem, newest, cluster, is_end_known)


def _size_in(lines: Sequence[Mapping[str, Any] | None]) -> int:
    """The size of the file that the first line names, -1 where it cannot be read."""
    return int(lines[0].get("size", -1)) if lines and lines[0] else -1


def _fields_of(line: bytes) -> Mapping[str, Any] | None:
    """What a line holds; None if its checksum says that it is damaged."""
    with suppress(ValueError):
        if line[8:9] == b" " and int(line[:8], 16) == crc32c(line[9:]):
            return decoded(line[9:])
    return None


def _replayed(lines: Sequence[Mapping[str, Any] | None]) -> Iterator[StoredCluster | None]:
    """The cluster after each line, None until all of the first part was read.

    Raises ValueError, KeyError, TypeError for the first line that is damaged or does not follow.
    """
    remaining = iter(lines)
    first = _next_line(remaining)
    if first["format"] != FORMAT:
        raise ValueError(f"expected format {FORMAT}, got {first['format']}")
    yield None
    catalog = yield from read_image(first, _each_next(remaining))
    cluster = StoredCluster(catalog, whole_number(first["node_id"]))
    yield cluster
    for line in remaining:
        if line is None:
            raise ValueError("its checksum is wrong")
        for delta in map(delta_of, list_of(line["deltas"])):
            catalog.apply(delta)
        if line["revision"] != catalog.revision:
            raise ValueError(f"expected revision {catalog.revision}, got {line['revision']}")
        yield cluster


def _each_next(lines: Iterator[Mapping[str, Any] | None]) -> Iterator[Mapping[str, Any]]:
    while True:
        yield _next_line(lines)


def _next_line(lines: Iterator[Mapping[str, Any] | None]) -> Mapping[str, Any]:
    line = next(lines, None)
    if line is None:
        raise ValueError("a line is missing or its checksum is wrong")
    return line


def write_bytes(fd: int, data: bytes, position: int) -> None:
    """All of `data`. Raises OSError."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        position += written
        view = view[written:]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
