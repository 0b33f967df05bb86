"""A schedule is its seed: another process, whose hashes differ, plays the very same one."""

import hashlib
import os
import subprocess
import sys

from tests.simulation import transactions
from tests.simulation.test_exactly_once import ROUGH, play
from tests.simulation.world import Shape

SEEDS = range(6)
OF_CLUSTERS = (51_000, Shape(3, 3)), (51_005, Shape(3, 3)), (51_006, Shape(3, 3, is_tiered=True))


def digest() -> str:
    """Of what is stored and how each record ended, over some schedules."""
    found = hashlib.sha256()
    for seed in SEEDS:
        alone = play(seed, ROUGH, delivery_timeout_ms=300)
        for key, log in sorted(alone.broker.logs.items()):
            found.update(repr((key, log.values, log.headers)).encode())
        for key in sorted(alone.client.sent):
            ends = [
                (value, str(outcome.error), outcome.base_offset) for value, outcome, _ in alone.outcomes(key)
            ]
            found.update(repr((key, ends)).encode())
    for seed, shape in OF_CLUSTERS:
        run = transactions.play(seed, shape)
        found.update(repr((sorted(run.done.items()), run.findings)).encode())
    return found.hexdigest()


def test_a_seed_plays_the_same_schedule_in_every_process() -> None:
    program = "from tests.simulation.test_replay import digest; print(digest())"
    shown = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout.split()[-1]
        for seed in ("1", "2")
    }
    assert len(shown) == 1
