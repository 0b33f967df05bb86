"""Rules are switched off, one at a time, and the simulation finds that; with all rules it finds nothing.

A change of the product may change what happens in a seed, so the next seeds are tried where the first one
does not find the lack of a rule any more.
"""

import pytest

from tests.simulation.mutants import HUNT, MUTANTS, found_by
from tests.simulation.transactions import play

_TRIED = 12


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if not mutant.is_rare])
def test_brokers_that_lack_a_rule_are_found(name: str) -> None:
    mutant = MUTANTS[name]
    seed = found_by(mutant, range(mutant.seed, mutant.seed + _TRIED))
    assert seed is not None, f"no seed needs the rule: {mutant.rule}"


@pytest.mark.parametrize("seed", sorted({mutant.seed for mutant in MUTANTS.values() if not mutant.is_rare}))
def test_brokers_with_all_rules_pass_the_same_seeds(seed: int) -> None:
    assert play(seed, HUNT).findings == []
