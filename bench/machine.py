"""How much else the machine had to do while the bench ran.

Owns one look at the CPUs at the start and one at the end, and the way for a load to be counted with all that
it started. Invariant: the bench's own processes, which have ended and been waited for by then, are not
counted as others; the processor time of a process that nobody waited for is nobody's. Reads /proc/stat, so
it needs Linux.

A ratio within a round still stands on a busy machine; a latency in the 99th percentile hardly does.
"""

import contextlib
import ctypes
import os
import resource
import time
from pathlib import Path

_CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Of /proc/stat's first line: user, nice, system, irq, softirq and steal are work; idle and iowait are not.
_BUSY_FIELDS = (0, 1, 2, 5, 6, 7)
QUIET_SHARE = 0.1
_PR_SET_CHILD_SUBREAPER = 36


def busy_seconds(stat: str) -> float:
    """CPU seconds that all processors have worked since boot, from the text of /proc/stat."""
    fields = stat.splitlines()[0].split()[1:]
    return sum(int(fields[number]) for number in _BUSY_FIELDS) / _CLOCK_TICKS_PER_S


class Machine:
    """Begins to watch when it is made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._busy_before = busy_seconds(Path("/proc/stat").read_text())
        self._own_before = _own_seconds()

    def others_share(self) -> float:
        """The part (0 to 1) of all processors' time that others used since the start."""
        busy = busy_seconds(Path("/proc/stat").read_text()) - self._busy_before
        others = busy - (_own_seconds() - self._own_before)
        capacity = (time.perf_counter() - self._began) * (os.cpu_count() or 1)
        return min(max(others / capacity, 0.0), 1.0)

    def note(self) -> str:
        """One line for the report."""
        share = self.others_share()
        advice = "" if share < QUIET_SHARE else ": trust the ratios more than the times, and p99 least"
        return f"Other programs took {share:.0%} of the processors' time during this run{advice}."


def _own_seconds() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def adopt_orphans() -> None:
    """Have processes whose parent ends become children of this one, as Spark's JVM leaves some behind."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot adopt orphans")


def await_children() -> None:
    """Wait until all children have ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
