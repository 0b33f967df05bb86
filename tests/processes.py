"""Processes that tests start: what is still there when a test has ended is killed, and the test fails.

Reads /proc, so it finds nothing on systems without it.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults.process_tree import command_of

_TASKS = Path("/proc/self/task")


def children() -> set[int]:
    """Processes that any thread of this one has started and that were not waited for."""
    found: set[int] = set()
    for task in _TASKS.iterdir() if _TASKS.exists() else ():
        try:
            found.update(map(int, (task / "children").read_text().split()))
        except OSError:
            continue  # The thread has ended meanwhile.
    return found


@contextmanager
def none_left() -> Iterator[None]:
    """Kill what the block started and did not end; AssertionError if there was any."""
    before = children()
    yield
    left = {pid: command_of(pid) for pid in children() - before}
    running = {pid: command for pid, command in left.items() if command}
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert not running, f"processes that the test left behind: {running}"
