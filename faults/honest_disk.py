"""`python -m faults.honest_disk JOURNAL DELAY_MS THREAD_SHARE …`: a broker whose syncs are recorded.

Runs `python -m tidelog.broker …` in this process. `os.fdatasync`, `os.fsync` and the queue in which the
kernel syncs logs are wrapped. Each sync takes up to `DELAY_MS` longer, as on a busy disk. Before the broker
gets the result, the file's inode and durable size are written to the journal. After a kill -9, `faults.power`
removes bytes that were never synced, as a real power cut would. `THREAD_SHARE`, 0 to 1, is the share of syncs
that the queue refuses, as if it were full; the broker's threads do those. `step_clock` steps the broker's
clock while it runs, by a file beside the journal.

Owns the journal's format: entries of two little-endian uint64, inode and size; the last entry of an inode
counts. A special value instead of a size says that a directory was synced while it named the inode.
"""

import asyncio
import mmap
import os
import random
import runpy
import stat
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.sync_queue import SyncQueue

_ENTRY: Final = struct.Struct("<QQ")
_NAMED: Final = 2**64 - 1
_OFFSET: Final = struct.Struct("<q")


def synced_sizes(journal: Path) -> dict[int, int]:
    """Inode -> bytes that are durable."""
    return dict(entry for entry in _entries(journal) if entry[1] != _NAMED)


def named_files(journal: Path) -> set[int]:
    """The inodes whose names are durable."""
    return {inode for inode, size in _entries(journal) if size == _NAMED}


def _entries(journal: Path) -> list[tuple[int, int]]:
    data = journal.read_bytes() if journal.exists() else b""
    return list(_ENTRY.iter_unpack(data[: len(data) - len(data) % _ENTRY.size]))


def step_clock(journal: Path, ms: int) -> None:
    """From now on the clock of the broker with this journal is off by so much."""
    with _clock_of(journal).open("r+b") as file:
        file.write(_OFFSET.pack(ms * 1_000_000))


def _clock_of(journal: Path) -> Path:
    return journal.with_name("clock")


def follow_clock(journal: Path) -> None:
    """Let `step_clock` step what Python's clock says here. With libfaketime time.sleep would fail."""
    path = _clock_of(journal)
    path.touch()
    os.truncate(path, _OFFSET.size)
    with path.open("rb") as file:
        off = mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)
    honest = time.time_ns
    time.time_ns = lambda: honest() + _OFFSET.unpack_from(off)[0]
    time.time = lambda: time.time_ns() / 1e9


class Journal:
    """The journal of how many bytes of each file are durable."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, before: os.stat_result) -> None:
        """A sync succeeded that began when the file was as `before`."""
        os.write(self._fd, _ENTRY.pack(before.st_ino, before.st_size))

    def noting(self, sync: Callable[[int], None], delay_ms: float) -> Callable[[int], None]:
        """`sync` with a delay and a journal entry."""

        def noting_sync(fd: int) -> None:
            before = os.fstat(fd)
            named = [entry.inode() for entry in os.scandir(fd)] if stat.S_ISDIR(before.st_mode) else []
            time.sleep(random.random() * delay_ms / 1000)
            sync(fd)
            self.note(before)
            os.write(self._fd, b"".join(_ENTRY.pack(inode, _NAMED) for inode in named))

        return noting_sync


class NotingQueue:
    """A `SyncQueue` that answers late and records its answers. For an asyncio loop."""

    def __init__(self, queue: SyncQueue, journal: Journal, delay_ms: float, thread_share: float) -> None:
        self._queue = queue
        self._journal = journal
        self._delay_ms = delay_ms
        self._thread_share = thread_share
        self._before: dict[int, os.stat_result] = {}
        self._late: list[tuple[float, int, OSError | None]] = []
        """The time to deliver each answer, its ticket and the answer."""
        self._alarm: asyncio.TimerHandle | None = None

    def fileno(self) -> int:
        return self._queue.fileno()

    def submit(self, fd: int) -> int | None:
        if random.random() < self._thread_share:
            return None
        before = os.fstat(fd)
        ticket = self._queue.submit(fd)
        if ticket is not None:
            self._before[ticket] = before
        return ticket

    def finished(self) -> list[tuple[int, OSError | None]]:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for ticket, error in self._queue.finished():
            self._late.append((now + random.random() * self._delay_ms / 1000, ticket, error))
        finished = [(ticket, error) for due, ticket, error in self._late if due <= now]
        for ticket, error in finished:
            before = self._before.pop(ticket)
            if error is None:
                self._journal.note(before)
        self._late = [answer for answer in self._late if answer[0] > now]
        if self._alarm is not None:
            self._alarm.cancel()
        if self._late:
            self._alarm = loop.call_at(min(self._late)[0], os.eventfd_write, self.fileno(), 1)
        return finished

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._queue.close()


def main() -> None:
    """Remove the own arguments and run the broker."""
    journal, delay_ms, thread_share = Journal(Path(sys.argv[1])), float(sys.argv[2]), float(sys.argv[3])

    def sync_queue(disk: Disk) -> NotingQueue | None:
        queue = SyncQueue.open()
        return None if queue is None else NotingQueue(queue, journal, delay_ms, thread_share)

    follow_clock(Path(sys.argv[1]))
    Disk.sync_queue = sync_queue  # type: ignore[method-assign, assignment]
    os.fdatasync = journal.noting(os.fdatasync, delay_ms)  # type: ignore[assignment]
    os.fsync = journal.noting(os.fsync, delay_ms)  # type: ignore[assignment]
    sys.argv[1:4] = []
    runpy.run_module("tidelog.broker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
