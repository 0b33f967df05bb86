"""The plan of faults is the same for the same seed, holds every kind, and kills once, in the middle."""

from collections import Counter
from itertools import pairwise

import pytest

from demo.plan import FAULTS, Kind, make_plan


def test_a_seed_gives_one_plan() -> None:
    assert make_plan(1) == make_plan(1)
    assert make_plan(1) != make_plan(2)


@pytest.mark.parametrize("seed", range(5))
def test_every_kind_comes_and_the_kill_once_in_the_middle(seed: int) -> None:
    plan = make_plan(seed)
    counts = Counter(step.kind for step in plan)
    assert len(plan) == FAULTS + 1
    assert counts.pop(Kind.KILL) == 1
    assert len(counts) == len(Kind) - 1
    assert max(counts.values()) - min(counts.values()) <= 1
    assert [number for number, step in enumerate(plan) if step.kind is Kind.KILL] == [FAULTS // 2]


def test_steps_are_spread_evenly() -> None:
    marks = [step.mark for step in make_plan(1)]
    gaps = [after - before for before, after in pairwise(marks)]
    assert 0 < marks[0] < marks[-1] < 1
    assert max(gaps) - min(gaps) < 1e-9


def test_acks_are_dropped_one_to_five_at_a_time() -> None:
    dropped = {step.frames for seed in range(20) for step in make_plan(seed) if step.kind is Kind.DROP_ACKS}
    assert dropped == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("faults", [0, 1])
def test_a_small_plan_still_kills(faults: int) -> None:
    assert len(make_plan(7, faults)) == faults + 1
