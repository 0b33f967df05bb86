"""Runs a load as a process of its own and reads the JSON line that it prints.

Called by scenarios. A load that fails, or does not end, raises LoadError with what it said; its process is
gone by then.
"""

import json
import subprocess
import sys
from dataclasses import dataclass

from bench.targets.process import Target

TIMEOUT_S = 90


class LoadError(RuntimeError):
    """A load did not finish as it should."""


@dataclass(frozen=True)
class Outcome:
    """What a load printed, and the CPU seconds that the server used meanwhile."""

    numbers: dict[str, float]
    server_cpu_s: float


def run_load(target: Target, module: str, *options: object) -> Outcome:
    """Run `bench.loads.<module>` against a target. Raises LoadError, or TargetError when the target died."""
    command = [sys.executable, "-m", f"bench.loads.{module}", str(target.port), *map(str, options)]
    cpu_before = target.cpu_seconds()
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise LoadError(f"{module} against {target.name} did not end within {TIMEOUT_S} s") from None
    target.check_alive()
    if finished.returncode:
        raise LoadError(f"{module} against {target.name}: {finished.stderr.strip()}")
    return Outcome(json.loads(finished.stdout), target.cpu_seconds() - cpu_before)
