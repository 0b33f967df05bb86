"""The brokers of new partitions, and the codes with which a bad wish for them is refused."""

from itertools import permutations
from uuid import uuid4

import pytest

from tidelog.broker.cluster.catalog import Topic
from tidelog.broker.cluster.placement import (
    MAX_PARTITIONS_PER_REQUEST,
    assign,
    assign_manually,
    led_by_live,
    plan_partitions,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.steps import ELEMENTS_PER_STEP, finish


def refused(code: ErrorCode) -> "pytest.RaisesExc[ApiError]":
    return pytest.raises(ApiError, check=lambda error: error.code == code)


def topic_of(partitions: int) -> Topic:
    return Topic("t", uuid4(), assign(partitions, [1]))


def test_partitions_only_grow() -> None:
    topic = topic_of(3)
    for total in (3, 2, 0, -1):
        with refused(ErrorCode.INVALID_PARTITIONS):
            finish(plan_partitions(topic, total, None, [1], {}))
    assert len(finish(plan_partitions(topic, 5, None, [1], {})).partitions) == 2


def test_manual_assignments_of_new_partitions_must_match_their_number() -> None:
    topic = topic_of(1)
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        finish(plan_partitions(topic, 3, [[1]], [1], {}))
    assert len(finish(plan_partitions(topic, 3, [[1], [1]], [1], {})).partitions) == 2


@pytest.mark.parametrize("count", [0, -1, MAX_PARTITIONS_PER_REQUEST + 1])
def test_a_number_of_partitions_out_of_bounds_is_refused(count: int) -> None:
    with refused(ErrorCode.INVALID_PARTITIONS):
        assign(count, [1])


@pytest.mark.parametrize("factor", [0, -2, 2])
def test_a_replication_factor_that_cannot_be_is_refused(factor: int) -> None:
    with refused(ErrorCode.INVALID_REPLICATION_FACTOR):
        assign(1, [1], factor)


@pytest.mark.parametrize(
    "assignments", [{1: [1]}, {0: []}, {0: [1, 1]}, {0: [2]}, {0: [1], 2: [1]}, {0: [1], 1: []}]
)
def test_a_manual_assignment_names_known_brokers_once_from_partition_0(
    assignments: dict[int, list[int]],
) -> None:
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        finish(assign_manually(assignments, [1]))


def test_leaders_are_spread_over_the_brokers() -> None:
    assert [assigned.leader_id for assigned in assign(4, [1, 2, 3], 2)] == [1, 2, 3, 1]
    assert assign(4, [1, 2, 3], 2)[2].replicas == (3, 1)


def test_those_who_follow_a_leader_are_others_in_the_next_round() -> None:
    assert {each.replicas for each in assign(6, [1, 2, 3], 2)} == set(permutations((1, 2, 3), 2))


def test_the_replicas_of_a_partition_are_in_as_many_racks_as_there_are() -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "c"}
    for assigned in assign(100, [1, 2, 3, 4, 5], 3, racks=racks):
        assert {racks[each] for each in assigned.replicas} == {"a", "b", "c"}
    for assigned in assign(100, [1, 2, 3, 4, 5, 6], 5, racks=racks):
        assert len(set(assigned.replicas)) == 5


def test_a_manual_assignment_of_many_partitions_is_checked_in_steps() -> None:
    steps = assign_manually({index: [1, 2] for index in range(10 * ELEMENTS_PER_STEP)}, [1, 2])
    assert sum(1 for _ in steps) == 10


def test_new_partitions_are_led_by_those_that_are_live_when_they_are_stored() -> None:
    placed = assign(2, [1, 2, 3], 2)
    assert led_by_live(placed, frozenset({1, 2, 3})) is placed
    assert [(each.leader_id, each.replicas, each.isr) for each in led_by_live(placed, frozenset({2, 3}))] == [
        (2, (1, 2), (2,)),
        (2, (2, 3), (2, 3)),
    ]


def test_a_new_partition_without_a_live_replica_is_refused() -> None:
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        led_by_live(assign(2, [1, 2, 3], 2), frozenset({3}))
