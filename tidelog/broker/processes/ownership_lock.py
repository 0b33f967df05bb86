"""Only one broker of several processes uses a data folder.

Owns two files in `processes/` of the data folder. `.first` is locked by the parent process alone. `.lock` is
locked by all processes, which inherit it, so it is free once the last one has ended. Each broker process also
locks its own folder (`storage.manager`).

Invariant: while the parent process runs, another start fails at once. If it was killed, its processes end by
themselves, and the next start waits for them.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.storage.manager import LOCK_FILE, DataFolderError
from tidelog.broker.storage.process_folders import PROCESSES

FIRST_FILE: Final = ".first"
_CHECK_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 30.0
"""How much longer than shutdown.timeout.ms they may take."""
logger = structlog.get_logger(__name__)


def patience_seconds(config: BrokerConfig) -> float:
    """How long the processes of a first process that was killed may take to end."""
    return config.shutdown_timeout_ms / 1000 + _PATIENCE_SECONDS


class Held(NamedTuple):
    """The handles that hold the locks."""

    first: int
    """For the first process only."""
    every: int
    """For every process."""


def take(data_dir: Path, patience_seconds: float) -> Held:
    """Lock the folder for this process and those that it will start. Raises DataFolderError, OSError."""
    parent = data_dir / PROCESSES
    parent.mkdir(0o700, parents=True, exist_ok=True)
    first = _opened(parent / FIRST_FILE)
    try:
        if not _is_locked(first):
            raise _in_use(data_dir)
        every = _opened(parent / LOCK_FILE)
        try:
            _wait(every, data_dir, patience_seconds)
        except BaseException:
            os.close(every)
            raise
    except BaseException:
        os.close(first)
        raise
    return Held(first, every)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _wait(fd: int, data_dir: Path, patience_seconds: float) -> None:
    deadline = time.monotonic() + patience_seconds
    if _is_locked(fd):
        return
    logger.warning(
        "processes_awaited",
        data_dir=str(data_dir),
        advice="nothing to do: the parent process of the last start was killed, and the others are ending",
    )
    while not _is_locked(fd):
        if time.monotonic() > deadline:
            raise _in_use(data_dir)
        time.sleep(_CHECK_SECONDS)


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _in_use(data_dir: Path) -> DataFolderError:
    return DataFolderError(
        f"another broker is using {data_dir}; stop it, or choose another folder with --data-dir"
    )
