"""A plan spreads replicas and leaders evenly, over brokers and racks, and moves no more than it has to."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.reassignment_plan import spread

BROKERS = (1, 2, 3, 4, 5)
replicas = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True)
RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}


@given(
    st.lists(replicas, min_size=1, max_size=20),
    st.lists(st.sampled_from(BROKERS), min_size=3, max_size=5, unique=True),
    st.sampled_from((None, 1, 2, 3)),
)
def test_each_broker_gets_as_much_as_the_others(
    present: list[list[int]], brokers: list[int], factor: int | None
) -> None:
    before = dict(enumerate(present))
    moved = spread(before, brokers, {}, factor)
    for key, now in moved.items():
        assert len(now) == len({*now} & {*brokers}) == (factor or len(before[key]))
    load = Counter(dict.fromkeys(brokers, 0))
    load.update(each for now in moved.values() for each in now)
    assert max(load.values()) - min(load.values()) <= 1
    again = spread(moved, brokers, {}, factor)
    assert [{*now} for now in again.values()] == [{*now} for now in moved.values()]


def test_what_is_spread_stays() -> None:
    present = {0: [1, 2], 1: [2, 3], 2: [3, 1]}
    assert spread(present, (1, 2, 3), {}) == present
    assert spread(present, (1, 2, 3), {}, 3) == {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
    grown = spread(present, (1, 2, 3, 4), {})
    assert Counter(each for now in grown.values() for each in now) == {1: 1, 2: 2, 3: 2, 4: 1}


def test_replicas_are_in_as_many_racks_as_there_are() -> None:
    present = {number: [1, 2, 3] for number in range(10)}
    moved = spread(present, BROKERS, RACKS)
    assert all({RACKS[each] for each in now} == {"a", "b", "c"} for now in moved.values())
    assert max(Counter(now[0] for now in moved.values()).values()) <= 3


def test_there_are_no_more_replicas_than_brokers() -> None:
    with pytest.raises(ValueError, match="3 replicas need as many brokers, and there are 2"):
        spread({0: [1]}, (1, 2), {}, 3)
