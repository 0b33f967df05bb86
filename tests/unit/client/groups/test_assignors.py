"""Each assignor gives every partition to one subscriber; those that Kafka's clients share give the same."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client import TopicPartition
from tidelog.client.consumer import config
from tidelog.client.groups.assignors import ASSIGNORS
from tidelog.client.groups.consumer_protocol import Subscription

COUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(1, 7))
MEMBERS = st.dictionaries(
    st.sampled_from(["m1", "m2", "m3", "m4", "m5"]), st.sets(st.sampled_from("abc"), min_size=1), min_size=1
)


def subscribed(members: Mapping[str, set[str]]) -> dict[str, Subscription]:
    return {name: Subscription(frozenset(topics)) for name, topics in members.items()}


def everything(counts: Mapping[str, int], members: Mapping[str, Subscription]) -> set[TopicPartition]:
    read = {topic for each in members.values() for topic in each.topics}
    return {TopicPartition(topic, index) for topic in read for index in range(counts.get(topic, 0))}


def held(
    assigned: Mapping[str, set[TopicPartition]], members: Any, generation: int
) -> dict[str, Subscription]:
    """The members as they join again with what they were assigned."""
    return {
        name: each._replace(owned=frozenset(assigned.get(name, ())), generation=generation)
        for name, each in members.items()
    }


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=25)
@given(counts=COUNTS, members=MEMBERS)
def test_each_partition_goes_to_one_member_that_reads_its_topic(
    name: str, counts: dict[str, int], members: dict[str, set[str]]
) -> None:
    joined = subscribed(members)
    assigned = ASSIGNORS[name].assign(counts, joined)
    assert assigned.keys() == joined.keys()
    given_out = [partition for share in assigned.values() for partition in share]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == everything(counts, joined)
    assert all(each.topic in members[member] for member, share in assigned.items() for each in share)


@pytest.mark.parametrize(
    ("name", "theirs"), [("range", RangePartitionAssignor), ("roundrobin", RoundRobinPartitionAssignor)]
)
@settings(max_examples=25)
@given(counts=COUNTS, members=MEMBERS)
def test_the_simple_assignors_give_what_aiokafka_s_give(
    name: str, theirs: Any, counts: dict[str, int], members: dict[str, set[str]]
) -> None:
    cluster = SimpleNamespace(
        partitions_for_topic=lambda topic: set(range(counts[topic])) if topic in counts else None
    )
    metadata = {each: ConsumerProtocolMemberMetadata(0, sorted(members[each]), b"") for each in members}
    expected = theirs.assign(cluster, metadata)
    assigned = ASSIGNORS[name].assign(counts, subscribed(members))
    assert assigned == {member: set(expected[member].partitions()) for member in members}


def loads(assigned: Mapping[str, set[TopicPartition]]) -> list[int]:
    return sorted(map(len, assigned.values()))


@settings(max_examples=25)
@given(counts=COUNTS, before=MEMBERS, after=MEMBERS)
def test_no_move_of_one_partition_makes_a_sticky_assignment_more_equal(
    counts: dict[str, int], before: dict[str, set[str]], after: dict[str, set[str]]
) -> None:
    sticky = ASSIGNORS["sticky"].assign
    first = sticky(counts, subscribed(before))
    assigned = sticky(counts, held(first, subscribed(after), 1))
    for owner, share in assigned.items():
        for partition in share:
            for other in after:
                if partition.topic in after[other]:
                    assert len(share) - len(assigned[other]) <= 1, (owner, other, partition)


@settings(max_examples=25)
@given(count=st.integers(1, 20), before=st.integers(1, 6), after=st.integers(1, 6))
def test_a_sticky_assignment_moves_no_more_than_it_must(count: int, before: int, after: int) -> None:
    def group(size: int) -> dict[str, Subscription]:
        return subscribed({f"m{number}": {"t"} for number in range(size)})

    sticky = ASSIGNORS["sticky"].assign
    first = sticky({"t": count}, group(before))
    second = sticky({"t": count}, held(first, group(after), 1))
    kept = sum(len(first[name] & second.get(name, set())) for name in first)
    larger = max(before, after)
    # The members that stay keep what the new balance allows them.
    most = sorted(map(len, (first if before == larger else second).values()), reverse=True)
    floor = count // larger
    assert kept >= min(before, after) * floor
    assert kept <= sum(most[: min(before, after)])


@settings(max_examples=25)
@given(counts=COUNTS, before=MEMBERS, after=MEMBERS)
def test_cooperative_members_give_a_partition_up_before_another_gets_it(
    counts: dict[str, int], before: dict[str, set[str]], after: dict[str, set[str]]
) -> None:
    cooperative = ASSIGNORS["cooperative-sticky"].assign
    joined = held(cooperative(counts, subscribed(before)), subscribed(after), 1)
    assigned = cooperative(counts, joined)
    for member, share in assigned.items():
        others = {each for name, other in joined.items() if name != member for each in other.owned}
        assert share.isdisjoint(others)
    # Once they gave up what they lost, the next rebalances assign the rest.
    for generation in range(2, 6):
        assigned = cooperative(counts, held(assigned, joined, generation))
    assert {each for share in assigned.values() for each in share} == everything(counts, joined)


def test_of_two_claims_the_newer_counts_and_of_equal_ones_none() -> None:
    p0, p1 = TopicPartition("t", 0), TopicPartition("t", 1)
    topics = frozenset("t")
    newer = {
        "a": Subscription(topics, frozenset({p0, p1}), 1),
        "b": Subscription(topics, frozenset({p1}), 2),
    }
    assert ASSIGNORS["sticky"].assign({"t": 2}, newer) == {"a": {p0}, "b": {p1}}
    equal = {name: Subscription(topics, frozenset({p0, p1}), 1) for name in "ab"}
    assert loads(ASSIGNORS["sticky"].assign({"t": 2}, equal)) == [1, 1]


def test_static_members_keep_their_ranges_when_their_ids_change() -> None:
    def share(first_id: str, second_id: str) -> Any:
        members = {
            first_id: Subscription(frozenset("t"), group_instance_id="one"),
            second_id: Subscription(frozenset("t"), group_instance_id="two"),
        }
        assigned = ASSIGNORS["range"].assign({"t": 3}, members)
        return assigned[first_id], assigned[second_id]

    assert share("x", "y") == share("y", "x")


def test_the_setting_of_a_consumer_has_every_assignor() -> None:
    assert tuple(ASSIGNORS) == config.ASSIGNORS
