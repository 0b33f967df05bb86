"""Processes that tests start: what is still there when a test has ended is killed, and the test fails.

Reads /proc, so it finds nothing on systems without it.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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


def command_of(pid: int) -> str:
    """Its command line, empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def descendants(pid: int) -> list[int]:
    """The processes below `pid`, parents first."""
    below: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        # A process may end while it is looked at.
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            below.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for parent in found:
        found += below.get(parent, ())
    return found[1:]


def kill_tree(pid: int) -> None:
    """kill -9 for a process and all below it, the parents first so that none is started again."""
    for each in [pid, *descendants(pid)]:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


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
