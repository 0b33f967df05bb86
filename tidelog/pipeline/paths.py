"""Folders and files that settings name: which are local paths, and the lock of a folder.

Owns the reading of a path that may be a URI, because Spark takes both, and the lock by which only one run at
a time uses a folder.
"""

import fcntl
import os
from pathlib import Path

from tidelog.pipeline.offsets import OptionError


def local_path(text: str) -> Path | None:
    """The path that a setting names as such or as a file: URI, None for what lies behind another scheme."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "file":
        return Path("/" + rest.lstrip("/"))
    if colon and len(scheme) > 1 and rest.startswith("/"):
        return None
    return Path(text)


def shared_folder(name: str, text: str) -> Path:
    """The folder that an option or a setting names, as an absolute path.

    Raises OptionError for a URI other than file:, because driver and executors must see the folder.
    """
    if (path := local_path(text)) is None:
        raise OptionError(
            f"{name}: {text} is not a path. Expected a folder that driver and executors see as a path, on a"
            " shared file system"
        )
    return path.absolute()


def try_lock(folder: Path) -> int | None:
    """Make the folder and take its lock. Returns a descriptor to close, None if another process holds it.

    The kernel releases the lock when that process ends. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return lock
