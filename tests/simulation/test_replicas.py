"""Three brokers with three replicas of each partition, two of which have to be in sync, under all faults.

To replay a seed: `make simulation REPLICAS=3 SEED=SEED SEEDS=1`.
"""

import pytest

from tests.simulation.mutants import found_by
from tests.simulation.replica_mutants import HUNT, MUTANTS
from tests.simulation.transactions import play
from tests.simulation.world import Shape

_TRIED = 40


@pytest.mark.parametrize("seed", [1, 4])
def test_replicas_lose_double_and_tear_nothing_and_become_equal(seed: int) -> None:
    run = play(seed, Shape(replicas=3))
    assert run.findings == []
    assert run.done["transactions: its commit was confirmed"] > 0


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if not mutant.is_rare])
def test_brokers_that_lack_a_rule_of_replication_are_found(name: str) -> None:
    mutant = MUTANTS[name]
    found = found_by(mutant, range(mutant.seed, mutant.seed + _TRIED), HUNT)
    assert found is not None, f"no seed needs the rule: {mutant.rule}"
