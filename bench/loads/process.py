"""Runs a load as a process of its own (`python -m bench.loads`) and reads the JSON line that it prints.

A load that fails, or does not end, raises LoadError with its output. Its process has ended by then.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.machine import Watch, disk_seconds
from bench.targets.process import Server, cpu_seconds

TIMEOUT_S = 600
_LAST_CHARACTERS = 2000


class LoadError(RuntimeError):
    """A load did not finish as it should."""


@dataclass(frozen=True)
class Outcome:
    """What a load printed, the CPU seconds that each part of the server used meanwhile, the part (0 to 1)
    of all processors' time that neither of them used, but others, and how long the disk had work."""

    numbers: dict[str, Any]
    cpu_s: Mapping[str, float]
    others_share: float
    disk_s: float

    @property
    def busy(self) -> tuple[float, float, float]:
        """How many processors the server and the load kept busy while it ran, and how many disks."""
        seconds = float(self.numbers["run_seconds"])
        client = float(self.numbers["run_cpu_seconds"]) / seconds
        return self.server_cpu_s / seconds, client, self.disk_s / seconds

    @property
    def server_cpu_s(self) -> float:
        return sum(self.cpu_s.values())


def run_load(server: Server, load: str, **options: object) -> Outcome:
    """Run a load against a server. Raises LoadError, or TargetError if the server has ended."""
    before, pids = cpu_of(server), [pid for part in server.parts().values() for pid in part]
    watch, disk_s = Watch(pids), disk_seconds(server.folder)
    numbers = run_program(load, port=server.port, **options)
    others_share, disk_s = watch.others_share(), disk_seconds(server.folder) - disk_s
    server.check_alive()
    used = {part: seconds - before[part] for part, seconds in cpu_of(server).items()}
    return Outcome(numbers, used, others_share, disk_s)


def cpu_of(server: Server) -> dict[str, float]:
    """CPU seconds that each part of a server has used so far."""
    return {part: sum(map(cpu_seconds, pids)) for part, pids in server.parts().items()}


def run_program(load: str, **options: object) -> dict[str, Any]:
    """Run a load without a server; what it printed. Raises LoadError."""
    command = [sys.executable, "-m", "bench.loads", load, json.dumps(options)]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise LoadError(f"{load} did not end within {TIMEOUT_S} s") from None
    if finished.returncode:
        raise LoadError(f"{load}: {finished.stderr.strip()[-_LAST_CHARACTERS:]}")
    # Output of the JVM may precede it.
    return dict(json.loads(finished.stdout.splitlines()[-1]))
