"""Disk space that is reserved for the cluster store, so that topics can be deleted on a full disk.

Owns the size of SQLite's write-ahead log while it is not written: `ROOM_BYTES` on the disk from the start.
Commits overwrite it: a checkpoint after `CHECKPOINT_FRAMES` lets them begin at its front again, so most of it
is free for the next commit at any time, and no other writer on the disk can take it.

Invariants: no byte that SQLite wrote is changed. Zeros after the last frame, or instead of the first, mean
the end of the log to SQLite, as after a crash. If the disk has no space for this, the store works without it.

Source: SQLite's "WAL-mode File Format".
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOM_BYTES: Final = 1 << 20
"""254 frames of a page each. Deleting a topic of 10,000 partitions takes about a hundred."""
CHECKPOINT_FRAMES: Final = 64


def keep_room(database: Path) -> None:
    """Give the log of a database its full size, whether it is open or not."""
    log = database.with_name(database.name + "-wal")
    with suppress(OSError):
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(fd).st_size < ROOM_BYTES and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, ROOM_BYTES)
        finally:
            os.close(fd)
