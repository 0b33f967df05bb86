"""Rules are switched off, one at a time, and the simulation finds that; with all rules it finds nothing.

A change of the product may change what happens in a seed, so the next seeds are tried where the first one
does not find the lack of a rule any more. Scenarios need no chance.
"""

import pytest

from tests.simulation.mutants import HUNT, MUTANTS, found_by
from tests.simulation.transactions import play

_TRIED = 40
_BY_SEED = {mutant.seed for mutant in MUTANTS.values() if mutant.scenario is None and not mutant.is_rare}


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if not mutant.is_rare])
def test_brokers_that_lack_a_rule_are_found_by_the_checker_of_the_rule(name: str) -> None:
    mutant = MUTANTS[name]
    found = found_by(mutant, range(mutant.seed, mutant.seed + _TRIED))
    assert found is not None, f"nothing needs the rule: {mutant.rule}"


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.scenario is not None])
def test_brokers_with_all_rules_pass_the_same_scenario(name: str) -> None:
    scenario = MUTANTS[name].scenario
    assert scenario is not None
    assert scenario.play().findings == []


@pytest.mark.parametrize("seed", sorted(_BY_SEED))
def test_brokers_with_all_rules_pass_the_same_seeds(seed: int) -> None:
    assert play(seed, HUNT).findings == []
