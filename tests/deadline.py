"""No test lasts for ever: past its deadline it fails, wherever it hangs, with what every thread was doing.

Owns SIGALRM while a test runs. A test that waits for a process or a socket says so with a deadline of its
own, which tells more; this one is for the waits that nobody thought of.
"""

import faulthandler
import signal
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 300.0
_STANDARD_ERROR = 2


class Hanging(Exception):
    """Raised in the main thread, where the test waits."""


@contextmanager
def deadline(what: str, seconds: float = SECONDS) -> Iterator[None]:
    """Raise Hanging within the block when it takes longer. Blocks may stand within each other."""

    def late(number: int, frame: object) -> None:
        faulthandler.dump_traceback(file=_STANDARD_ERROR, all_threads=True)
        raise Hanging(f"{what} took longer than {seconds:g} s; what the threads did is on standard error")

    before = signal.signal(signal.SIGALRM, late)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left)
