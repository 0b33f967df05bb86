"""Runs a load as a process of its own and reads the JSON line that it prints.

A load that fails, or does not end, raises LoadError with what it said; its process is gone by then.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from bench.targets.process import Target

TIMEOUT_S = 300


class LoadError(RuntimeError):
    """A load did not finish as it should."""


@dataclass(frozen=True)
class Outcome:
    """What a load printed, and the CPU seconds that the server used meanwhile."""

    numbers: dict[str, float]
    server_cpu_s: float


def run_load(target: Target, module: str, *options: object) -> Outcome:
    """Run `bench.loads.<module>` against a target. Raises LoadError, or TargetError when the target died."""
    cpu_before = target.cpu_seconds()
    finished = _finished(module, target.port, *options)
    target.check_alive()
    numbers = _numbers(f"{module} against {target.name}", finished)
    return Outcome(numbers, target.cpu_seconds() - cpu_before)


def run_program(module: str, *options: object) -> dict[str, Any]:
    """Run `bench.loads.<module>` without a server; what it printed. Raises LoadError."""
    return _numbers(module, _finished(module, *options))


def _finished(module: str, *options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"bench.loads.{module}", *map(str, options)]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise LoadError(f"{module} did not end within {TIMEOUT_S} s") from None


def _numbers(what: str, finished: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    if finished.returncode:
        raise LoadError(f"{what}: {finished.stderr.strip()}")
    return dict(json.loads(finished.stdout))
