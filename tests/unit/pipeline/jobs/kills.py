"""A run of the archive that ends where a kill might end it, inside the process of the test."""

import os
from typing import Any, NoReturn

from tidelog.pipeline.jobs.archive_log import Archive


class Killed(BaseException):
    """Nothing in the product catches it."""


def die(*_: Any) -> NoReturn:
    """Put in the place of what a kill never comes to."""
    raise Killed


def release(archive: Archive, *_: object) -> None:
    """All that is left of an archive's run when its process was killed: the kernel lets go of the lock."""
    os.close(archive._lock)
