"""A power cut on the files of a killed broker: what was never synced is lost, or comes back as zeros.

Owns the choice of what is lost: bytes, and names of new files. Invariant: whatever was
synced stays, so a broker that acknowledges only durable records loses none. Changed names, names of folders
and the catalog's database stay too. Only the saved boot id changes: the next boot has another one.

`cut_power` blocks, and needs a dead broker.
"""

import os
import random
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Final, NamedTuple

BOOT_ID: Final = ".boot_id"
_SUFFIXES = (".log", ".index", ".timeindex", ".snapshot", ".tmp", ".cleaned", ".swap", "checkpoint")


class Left(NamedTuple):
    """What is left of a file: its first bytes."""

    size: int
    has_zeros: bool
    """Whether zeros take the place of the others."""


def may_be_lost(name: str) -> bool:
    """Whether a power cut touches files of this name."""
    return name.endswith(_SUFFIXES)


def left_of(size: int, durable_size: int, rng: random.Random, *, is_named: bool) -> Left | None:
    """What a power cut leaves of a file; None if the file is missing.

    It ends early, or its tail reads as zeros, as on file systems that stored the new length but not the data.
    Or it is missing, even if it was synced, because its folder was not.
    """
    if not is_named and rng.random() < 0.5:
        return None
    at = rng.randint(min(durable_size, size), size)
    return Left(at, at < size and rng.random() < 0.3)


def cut_power(data_dir: Path, synced: Mapping[int, int], named: Container[int], rng: random.Random) -> int:
    """Remove a random part of the bytes that were not synced, and return their number. `synced` holds the
    durable size of each inode, `named` the inodes whose names are durable."""
    lost = 0
    (data_dir / BOOT_ID).unlink(missing_ok=True)
    for path in sorted(data_dir.rglob("*")):
        if not path.is_file() or not may_be_lost(path.name):
            continue
        status = path.stat()
        number, size = status.st_ino, status.st_size
        left = left_of(size, synced.get(number, 0), rng, is_named=number in named)
        if left is None:
            lost += size
            path.unlink()
            continue
        lost += size - left.size
        if left.size < size:
            os.truncate(path, left.size)
            if left.has_zeros:
                os.truncate(path, size)
    return lost
