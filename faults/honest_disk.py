"""`python -m faults.honest_disk JOURNAL DELAY_MS …`: a broker whose disk notes what it was told to keep.

Runs `python -m broker …` in this process, with `os.fdatasync` and `os.fsync` wrapped: each takes up to
`DELAY_MS` longer, as a busy disk would, and writes down the file's inode and the size that is durable once it
returned. After a kill -9 `faults.power` takes away what was never synced, which a real power cut would.

Owns the journal's format: entries of two little-endian uint64, inode and size, the last one of an inode
counts. Started by `faults.runner`, and imports nothing of the broker but its command.
"""

import os
import random
import runpy
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_ENTRY: Final = struct.Struct("<QQ")


def synced_sizes(journal: Path) -> dict[int, int]:
    """Inode -> bytes that are durable."""
    if not journal.exists():
        return {}
    data = journal.read_bytes()
    return dict(_ENTRY.iter_unpack(data[: len(data) - len(data) % _ENTRY.size]))


def _noting(sync: Callable[[int], None], journal_fd: int, delay_ms: float) -> Callable[[int], None]:
    rng = random.Random()

    def noting_sync(fd: int) -> None:
        # What is written while the sync is under way may or may not be covered by it.
        before = os.fstat(fd)
        time.sleep(rng.random() * delay_ms / 1000)
        sync(fd)
        os.write(journal_fd, _ENTRY.pack(before.st_ino, before.st_size))

    return noting_sync


def main() -> None:
    """Take the own arguments away and become the broker."""
    journal, delay_ms = sys.argv[1], float(sys.argv[2])
    journal_fd = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.fdatasync = _noting(os.fdatasync, journal_fd, delay_ms)  # type: ignore[assignment]
    os.fsync = _noting(os.fsync, journal_fd, delay_ms)  # type: ignore[assignment]
    sys.argv[1:3] = []
    runpy.run_module("broker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
