"""The catalog: names, ids, partitions and the codes with which a bad wish is refused."""

from uuid import UUID, uuid4

import pytest

from tidelog.broker.cluster.catalog import (
    MAX_PARTITIONS_PER_REQUEST,
    Catalog,
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigsChanged,
    TopicDeleted,
    assign,
    assign_manually,
    check_topic_name,
)
from tidelog.protocol.errors import ApiError, ErrorCode


def create(catalog: Catalog, name: str, partitions: int = 1) -> UUID:
    delta = catalog.plan_topic(name, uuid4(), assign(partitions, [1]), {})
    catalog.apply(delta)
    return delta.topic.topic_id


def refused(code: ErrorCode) -> "pytest.RaisesExc[ApiError]":
    return pytest.raises(ApiError, check=lambda error: error.code == code)


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a/b", "a b", "ä", "a\n"])
def test_an_illegal_name_is_an_invalid_topic(name: str) -> None:
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        check_topic_name(name)


@pytest.mark.parametrize("name", ["a", "a" * 249, "A.b_c-9", "..."])
def test_a_legal_name_passes(name: str) -> None:
    check_topic_name(name)


def test_names_that_differ_in_dot_and_underscore_only_collide() -> None:
    catalog = Catalog("c")
    first = create(catalog, "a.b")
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        catalog.plan_topic("a_b", uuid4(), assign(1, [1]), {})
    with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
        catalog.plan_topic("a.b", uuid4(), assign(1, [1]), {})
    catalog.apply(TopicDeleted(first))
    create(catalog, "a_b")


def test_a_name_may_come_back_under_another_id() -> None:
    catalog = Catalog("c")
    first = create(catalog, "t")
    catalog.apply(TopicDeleted(first))
    second = create(catalog, "t")
    assert first != second
    assert catalog.topic_by_id(first) is None
    topic = catalog.topic("t")
    assert topic is not None
    assert topic.topic_id == second


def test_partitions_only_grow() -> None:
    catalog = Catalog("c")
    create(catalog, "t", 3)
    topic = catalog.topic("t")
    assert topic is not None
    for total in (3, 2, 0, -1):
        with refused(ErrorCode.INVALID_PARTITIONS):
            catalog.plan_partitions(topic, total, None, [1])
    catalog.apply(catalog.plan_partitions(topic, 5, None, [1]))
    grown = catalog.topic("t")
    assert grown is not None
    assert len(grown.partitions) == 5


def test_manual_assignments_of_new_partitions_must_match_their_number() -> None:
    catalog = Catalog("c")
    create(catalog, "t")
    topic = catalog.topic("t")
    assert topic is not None
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        catalog.plan_partitions(topic, 3, [[1]], [1])
    assert len(catalog.plan_partitions(topic, 3, [[1], [1]], [1]).partitions) == 2


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
        assign_manually(assignments, [1])


def test_leaders_are_spread_over_the_brokers() -> None:
    assert [assigned.leader_id for assigned in assign(4, [1, 2, 3], 2)] == [1, 2, 3, 1]
    assert assign(4, [1, 2, 3], 2)[2].replicas == (3, 1)


def test_a_delta_that_does_not_fit_is_a_broken_invariant() -> None:
    catalog = Catalog("c")
    for delta in (TopicDeleted(uuid4()), PartitionsAdded(uuid4(), ()), TopicConfigsChanged(uuid4(), {})):
        with pytest.raises(ValueError, match="no topic"):
            catalog.apply(delta)
    catalog.apply(ProducerIdsReserved(2000))
    with pytest.raises(ValueError, match="go back"):
        catalog.apply(ProducerIdsReserved(1000))
