"""Several brokers over a model of etcd on virtual time, with clients: what the design promises, under faults.

To replay a seed: `python -m tests.simulation.transactions --brokers 3 --first SEED --seeds 1`.
"""

import pytest

from tests.simulation.transactions import play
from tests.simulation.world import Shape


@pytest.mark.parametrize(("brokers", "seed"), [(2, 2), (5, 5)])
def test_brokers_lose_double_and_tear_nothing(brokers: int, seed: int) -> None:
    run = play(seed, Shape(brokers))
    assert run.findings == []
    assert run.done["transactions: its commit was confirmed"] > 0
    assert run.done["commits of the catalog"] > 10
