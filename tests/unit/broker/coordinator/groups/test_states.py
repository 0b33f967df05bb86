"""The transitions of a group: the table is Kafka's, and a group goes no other way."""

from itertools import product

import pytest

from tidelog.broker.coordinator.groups.group import Group
from tidelog.broker.coordinator.groups.states import TRANSITIONS, GroupState, IllegalTransition

LEGAL = {
    (GroupState.EMPTY, GroupState.PREPARING_REBALANCE),
    (GroupState.EMPTY, GroupState.DEAD),
    (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE),
    (GroupState.PREPARING_REBALANCE, GroupState.EMPTY),
    (GroupState.COMPLETING_REBALANCE, GroupState.STABLE),
    (GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE),
    (GroupState.STABLE, GroupState.PREPARING_REBALANCE),
}


def test_the_table_names_every_state() -> None:
    assert TRANSITIONS.keys() == set(GroupState)


@pytest.mark.parametrize(("before", "after"), [*product(GroupState, GroupState)])
def test_a_group_moves_as_the_table_says_and_no_other_way(before: GroupState, after: GroupState) -> None:
    group = Group("g", state=before)
    if (before, after) in LEGAL:
        moved = group.moved_to(after, 5)
        assert (moved.state, moved.state_since_ms) == (after, 5)
    else:
        with pytest.raises(IllegalTransition, match=f"g: {before.value} to {after.value}"):
            group.moved_to(after, 5)
