"""Three brokers with three replicas of each partition, two of which have to be in sync, under all faults.

To replay a seed: `make simulation REPLICAS=3 SEED=SEED SEEDS=1`.
"""

import pytest

from tests.simulation.transactions import play
from tests.simulation.world import Shape


@pytest.mark.parametrize("seed", [1, 4])
def test_replicas_lose_double_and_tear_nothing_and_become_equal(seed: int) -> None:
    run = play(seed, Shape(replicas=3))
    assert run.findings == []
    assert run.done["transactions: its commit was confirmed"] > 0
