"""Runs a load as a process of its own (`python -m bench.loads`) and reads the JSON line that it prints.

A load that fails, or does not end, raises LoadError with its output. Its process has ended by then.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from bench.machine import Watch
from bench.targets.process import Target

TIMEOUT_S = 600
_LAST_CHARACTERS = 2000


class LoadError(RuntimeError):
    """A load did not finish as it should."""


@dataclass(frozen=True)
class Outcome:
    """What a load printed, the CPU seconds that the server used meanwhile, and the part (0 to 1) of all
    processors' time that neither of them used, but others.
    """

    numbers: dict[str, Any]
    server_cpu_s: float
    others_share: float


def run_load(target: Target, load: str, **options: object) -> Outcome:
    """Run a load against a target. Raises LoadError, or TargetError if the target has ended."""
    cpu_before, watch = target.cpu_seconds(), Watch([target.pid])
    numbers = run_program(load, port=target.port, **options)
    others_share = watch.others_share()
    target.check_alive()
    return Outcome(numbers, target.cpu_seconds() - cpu_before, others_share)


def run_program(load: str, **options: object) -> dict[str, Any]:
    """Run a load without a server; what it printed. Raises LoadError."""
    command = [sys.executable, "-m", "bench.loads", load, json.dumps(options)]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise LoadError(f"{load} did not end within {TIMEOUT_S} s") from None
    if finished.returncode:
        raise LoadError(f"{load}: {finished.stderr.strip()[-_LAST_CHARACTERS:]}")
    # What a JVM printed may stand before it.
    return dict(json.loads(finished.stdout.splitlines()[-1]))
