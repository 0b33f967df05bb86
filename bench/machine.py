"""The machine: what it is, how fast its disk is, and how much of it other programs used during a measurement.

Invariant of a `Watch`: the bench's own processes are not counted as others. These are itself, its children
that have ended and been waited for, and the servers whose ids it was given. Reads /proc, so it needs Linux.
"""

import os
import platform
import re
import resource
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from bench.targets.process import cpu_seconds
from tidelog.cli.bench import percentile

_CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Of /proc/stat's first line: user, nice, system, irq, softirq and steal are work; idle and iowait are not.
_BUSY_FIELDS = (0, 1, 2, 5, 6, 7)
# Of a disk's statistics in sysfs (Documentation/block/stat.rst): io_ticks.
_DISK_BUSY_MS_FIELD = 9
_APPENDS = 300
_APPEND_BYTES = 200
_ROOT = Path(__file__).parent.parent


def busy_seconds(stat: str) -> float:
    """CPU seconds that all processors have worked since boot, from the text of /proc/stat."""
    fields = stat.splitlines()[0].split()[1:]
    return sum(int(fields[number]) for number in _BUSY_FIELDS) / _CLOCK_TICKS_PER_S


def disk_seconds(folder: Path) -> float:
    """Seconds since boot for which the disk of `folder` had work; 0 if the system does not count them."""
    device = folder.stat().st_dev
    try:
        counted = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text()
    except OSError:
        return 0.0
    return int(counted.split()[_DISK_BUSY_MS_FIELD]) / 1000


class Watch:
    """Begins to watch when it is made. `servers` are ids of processes that run all the time."""

    def __init__(self, servers: Iterable[int] = ()) -> None:
        self._servers = tuple(servers)
        self._began = time.perf_counter()
        self._others_before = self._others()

    def add(self, server: int) -> None:
        """Of a server that was started since."""
        self._servers = (*self._servers, server)

    def _others(self) -> float:
        own = sum(
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
        return busy_seconds(Path("/proc/stat").read_text()) - own - sum(map(cpu_seconds, self._servers))

    def others_share(self) -> float:
        """The part (0 to 1) of all processors' time that others used since the start."""
        capacity = (time.perf_counter() - self._began) * (os.cpu_count() or 1)
        return min(max((self._others() - self._others_before) / capacity, 0.0), 1.0)


def describe(folder: Path) -> dict[str, object]:
    """What the measurements were taken on, and of: processors, memory, kernel, disk of `folder`, commit."""
    model = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    taken = fdatasync_seconds(folder / "fdatasync")
    return {
        "commit": _commit(),
        "processor": model[1] if model else platform.machine(),
        "processors": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "fdatasync_p50_ms": percentile(taken, 0.50) * 1000,
        "fdatasync_p99_ms": percentile(taken, 0.99) * 1000,
    }


def _commit() -> str:
    """The commit of this checkout, with "+" where files differ from it; empty outside of git."""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def fdatasync_seconds(path: Path) -> list[float]:
    """Append and fdatasync, one after the other; the time of each fdatasync, ascending. Removes the file."""
    data = bytes(_APPEND_BYTES)
    taken: list[float] = []
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for _ in range(_APPENDS):
            os.write(file, data)
            begin = time.perf_counter()
            os.fdatasync(file)
            taken.append(time.perf_counter() - begin)
    finally:
        os.close(file)
        path.unlink()
    return sorted(taken)
