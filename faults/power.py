"""A power cut on the files of a killed broker: what was never synced is lost, or comes back as zeros.

Owns the choice of what is lost: bytes, and names of new files. Invariant: whatever was
synced stays, so a broker that acknowledges only durable records loses none. Changed names, names of folders
and the catalog's database stay too. Only the saved boot id changes: the next boot has another one. Blocking;
the broker must be dead.
"""

import os
import random
from collections.abc import Container, Mapping
from pathlib import Path

_SUFFIXES = (".log", ".index", ".timeindex", ".snapshot", ".tmp", ".cleaned", ".swap")
_KEPT = "checkpoint"
_BOOT_ID = ".boot_id"


def cut_power(data_dir: Path, synced: Mapping[int, int], named: Container[int], rng: random.Random) -> int:
    """Remove a random part of the bytes that were not synced, and return their number. `synced` holds the
    durable size of each inode, `named` the inodes whose names are durable.

    A file ends early, or its tail reads as zeros, as on file systems that stored the new length but not the
    data. Or the file is missing, even if it was synced, because its folder was not.
    """
    lost = 0
    (data_dir / _BOOT_ID).unlink(missing_ok=True)
    for path in sorted(data_dir.rglob("*")):
        if not path.is_file() or not (path.suffix in _SUFFIXES or path.name.endswith(_KEPT)):
            continue
        status = path.stat()
        if status.st_ino not in named and rng.random() < 0.5:
            lost += status.st_size
            path.unlink()
            continue
        durable = min(synced.get(status.st_ino, 0), status.st_size)
        at = rng.randint(durable, status.st_size)
        if at == status.st_size:
            continue
        lost += status.st_size - at
        os.truncate(path, at)
        if rng.random() < 0.3:
            os.truncate(path, status.st_size)
    return lost
