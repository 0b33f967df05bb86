"""The assignors of the broker: each partition once, evenly, and with as few moves as can be."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.broker.coordinator.consumer_groups.assignors import (
    ASSIGNORS,
    AssignedMember,
    assign_range,
    assign_uniform,
)
from tidelog.broker.coordinator.consumer_groups.group import Assignment

TOPICS = [UUID(int=number) for number in range(1, 5)]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
FEW = settings(max_examples=20, deadline=None, derandomize=True)


def members_of(**topics: list[int]) -> dict[str, AssignedMember]:
    return {
        name: AssignedMember(None, frozenset(UUID(int=each) for each in numbers), {})
        for name, numbers in topics.items()
    }


def flat(assigned: Assignment) -> set[tuple[UUID, int]]:
    return {(topic_id, partition) for topic_id, partitions in assigned.items() for partition in partitions}


@st.composite
def groups(draw: st.DrawFn, *, is_mixed: bool) -> tuple[dict[str, AssignedMember], dict[UUID, int]]:
    """Members with what some earlier group left them as targets."""
    counts = draw(COUNTS)
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
    every = frozenset(counts)
    topics = {
        name: draw(st.frozensets(st.sampled_from(sorted(counts)), min_size=1)) if is_mixed else every
        for name in names
    }
    left = [(topic_id, index) for topic_id in TOPICS for index in range(draw(st.integers(0, 6)))]
    owners = [draw(st.sampled_from([*names, None])) for _ in left]
    members = {}
    for name in names:
        target: dict[UUID, set[int]] = {}
        for (topic_id, index), owner in zip(left, owners, strict=True):
            if owner == name:
                target.setdefault(topic_id, set()).add(index)
        kept = {topic_id: frozenset(indexes) for topic_id, indexes in target.items()}
        members[name] = AssignedMember(draw(st.none() | st.just(f"i-{name}")), topics[name], kept)
    read = frozenset().union(*topics.values())
    return members, {topic_id: count for topic_id, count in counts.items() if topic_id in read}


@pytest.mark.parametrize("name", ASSIGNORS)
@FEW
@given(group=groups(is_mixed=True))
def test_each_partition_goes_to_one_of_its_subscribers(
    name: str, group: tuple[dict[str, AssignedMember], dict[UUID, int]]
) -> None:
    members, counts = group
    assigned = ASSIGNORS[name](members, counts)
    assert assigned.keys() == members.keys()
    given = Counter(each for assignment in assigned.values() for each in flat(assignment))
    assert given == Counter((topic_id, index) for topic_id, count in counts.items() for index in range(count))
    for member_id, assignment in assigned.items():
        assert assignment.keys() <= members[member_id].topic_ids
        assert all(assignment.values())


@FEW
@given(group=groups(is_mixed=False))
def test_uniform_gives_members_of_the_same_topics_as_much_and_moves_no_more_than_it_must(
    group: tuple[dict[str, AssignedMember], dict[UUID, int]],
) -> None:
    members, counts = group
    assigned = assign_uniform(members, counts)
    sizes = sorted(len(flat(each)) for each in assigned.values())
    least, larger = divmod(sum(counts.values()), len(members))
    assert sizes == [least] * (len(members) - larger) + [least + 1] * larger
    # What a member has beyond the largest share must go. What it has within the smallest one must stay; of
    # the larger shares, those that hold most keep as many as there are.
    kept = {name: len(flat(assigned[name]) & flat(each.target)) for name, each in members.items()}
    valid = {
        name: len([part for part in flat(each.target) if part[1] < counts.get(part[0], 0)])
        for name, each in members.items()
    }
    holders = sorted(valid.values(), reverse=True)
    most = sum(min(held, least + (position < larger)) for position, held in enumerate(holders))
    assert sum(kept.values()) == most


@FEW
@given(group=groups(is_mixed=True))
def test_uniform_leaves_no_move_that_would_make_members_of_different_topics_more_equal(
    group: tuple[dict[str, AssignedMember], dict[UUID, int]],
) -> None:
    members, counts = group
    assigned = assign_uniform(members, counts)
    loads = {name: len(flat(each)) for name, each in assigned.items()}
    for name, assignment in assigned.items():
        for topic_id in assignment:
            others = [loads[each] for each in members if topic_id in members[each].topic_ids]
            assert loads[name] - min(others) <= 1


@pytest.mark.parametrize("name", ASSIGNORS)
@FEW
@given(group=groups(is_mixed=True))
def test_a_second_assignment_of_the_same_group_moves_nothing(
    name: str, group: tuple[dict[str, AssignedMember], dict[UUID, int]]
) -> None:
    members, counts = group
    first = ASSIGNORS[name](members, counts)
    settled = {member_id: each._replace(target=first[member_id]) for member_id, each in members.items()}
    assert ASSIGNORS[name](settled, counts) == first


def test_range_gives_contiguous_ranges_alike_for_topics_of_the_same_size() -> None:
    first, second = TOPICS[:2]
    assigned = assign_range(members_of(a=[1, 2], b=[1, 2], c=[1, 2]), {first: 7, second: 7})
    assert [sorted(assigned[name][first]) for name in "abc"] == [[0, 1, 2], [3, 4], [5, 6]]
    assert all(assigned[name][first] == assigned[name][second] for name in "abc")


def test_range_puts_static_members_first_so_that_they_keep_their_ranges_under_new_ids() -> None:
    topic = TOPICS[0]
    dynamic = AssignedMember(None, frozenset((topic,)), {})
    for new_id in ("a", "z"):
        members = {"m": dynamic, new_id: dynamic._replace(instance_id="i")}
        assert assign_range(members, {topic: 2})[new_id] == {topic: frozenset((0,))}


def test_a_group_without_members_gets_no_assignment() -> None:
    assert [assign({}, {}) for assign in ASSIGNORS.values()] == [{}, {}]
