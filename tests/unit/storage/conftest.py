"""What a storage test leaves open is closed when it ends; a log would keep its file handles otherwise."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

_OPEN = Path("/proc/self/fd")


def _files_below(folder: Path) -> set[int]:
    """Descriptors of files and folders below `folder`, also of those that are deleted."""
    found = set()
    for name in os.listdir(_OPEN) if _OPEN.exists() else ():
        with suppress(OSError):
            if os.readlink(_OPEN / name).startswith(f"{folder}/"):
                found.add(int(name))
    return found


@pytest.fixture(autouse=True)
def _nothing_is_left_open(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.getbasetemp()
    before = _files_below(folder)
    yield
    for descriptor in _files_below(folder) - before:
        os.close(descriptor)
