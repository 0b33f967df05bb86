"""A folder in memory for tests whose subject is not the disk.

Owns the choice of the tests that use it: those of `tests/unit` and `tests/property`. They flush thousands of
times, and on a machine with a slow or busy disk they would wait for little else. Tests that start brokers as
processes stay on the disk of the machine.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")
_LEAST_FREE_BYTES = 1 << 30
_USERS = ("tests/unit/", "tests/property/")


def memory_folder() -> Path | None:
    """A new folder, or None where the machine has no file system in memory with space for the tests."""
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _LEAST_FREE_BYTES:
        return None
    return Path(tempfile.mkdtemp(prefix="tidelog-tests-", dir=_MEMORY))


@contextmanager
def in_memory(folder: Path | None, test_id: str) -> Iterator[None]:
    """Within it, `tempfile` makes files and folders in `folder`, if this test is one that may."""
    if folder is None or not test_id.startswith(_USERS):
        yield
        return
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
