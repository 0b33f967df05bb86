"""The processes below a process: which they are, and their end.

Reads /proc, so it finds nothing on systems without it.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path


def command_of(pid: int) -> str:
    """Its command line, empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def state_of(pid: int) -> str:
    """The letter of /proc for the state of its main thread (T: it is stopped), empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
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
