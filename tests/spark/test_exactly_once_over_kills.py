"""A short run of kills under delivery=exactly_once: a Python worker, the broker, and the driver at the end.

`python -m faults --only spark --seconds 1800` is the long one.
"""

import asyncio
from pathlib import Path

from faults.spark import trial

SEED = 14


def test_each_row_of_a_join_and_a_repartition_is_there_once_whatever_is_killed(tmp_path: Path) -> None:
    steps: list[str] = []
    outcome = asyncio.run(trial.run(SEED, 1, tmp_path, steps.append, ("Python worker", "broker")))
    assert outcome.findings == [], f"seed {SEED}, steps {steps}"
    assert outcome.tried.total() == 2, steps
