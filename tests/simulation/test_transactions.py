"""Processors in transactions against a whole broker on virtual time: each input has its outputs exactly once.

To replay a seed: `python -m tests.simulation.transactions --first SEED --seeds 1`.
"""

import pytest

from tests.simulation.transactions import play

SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_are_atomic_and_exactly_once_on_failing_networks_and_dying_machines(seed: int) -> None:
    run = play(seed)
    assert run.findings == []
    assert run.done["transactions: its commit was confirmed"] > 0


def test_a_seed_replays_exactly() -> None:
    first, again = play(1), play(1)
    assert first.done == again.done
    assert first.history.attempts == again.history.attempts
    assert first.history.ends == again.history.ends
