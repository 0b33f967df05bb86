"""Rules are switched off, one at a time, and a scenario finds that; with all rules it finds nothing."""

import pytest

from tests.simulation import mutants, replica_mutants, share_mutants, tiering_mutants
from tests.simulation.mutants import Mutant, found_by

_TABLES = mutants, replica_mutants, share_mutants, tiering_mutants
_ALL = {name: mutant for table in _TABLES for name, mutant in table.MUTANTS.items()}


@pytest.mark.parametrize("mutant", _ALL.values(), ids=_ALL.keys())
def test_brokers_that_lack_a_rule_are_found_by_the_checker_of_the_rule_and_no_others(mutant: Mutant) -> None:
    assert mutant.scenario.play().findings == []
    (found,) = found_by(mutant, [mutant.scenario.play])
    assert found is not None, f"nothing needs the rule: {mutant.rule}"
