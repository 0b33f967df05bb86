"""The catalog: names, ids, partitions and the codes with which a bad wish is refused."""

from itertools import permutations
from uuid import UUID, uuid4

import pytest

from tests.unit.broker.cluster.stores import acl
from tidelog.broker.cluster.catalog import (
    MAX_PARTITIONS_PER_REQUEST,
    AclsChanged,
    BrokerRegistered,
    BrokerRegistration,
    Catalog,
    Listener,
    PartitionAssignment,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsReserved,
    TopicConfigsChanged,
    TopicDeleted,
    assign,
    assign_manually,
    check_topic_name,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.steps import ELEMENTS_PER_STEP, finish


def create(catalog: Catalog, name: str, partitions: int = 1) -> UUID:
    delta = catalog.plan_topic(name, uuid4(), assign(partitions, [1]), {})
    catalog.apply(delta)
    return delta.topic.topic_id


def refused(code: ErrorCode) -> "pytest.RaisesExc[ApiError]":
    return pytest.raises(ApiError, check=lambda error: error.code == code)


@pytest.fixture
def catalog() -> Catalog:
    return Catalog("c")


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a/b", "a b", "ä", "a\n"])
def test_an_illegal_name_is_an_invalid_topic(name: str) -> None:
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        check_topic_name(name)


@pytest.mark.parametrize("name", ["a", "a" * 249, "A.b_c-9", "..."])
def test_a_legal_name_passes(name: str) -> None:
    check_topic_name(name)


def test_names_that_differ_in_dot_and_underscore_only_collide(catalog: Catalog) -> None:
    first = create(catalog, "a.b")
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        catalog.plan_topic("a_b", uuid4(), assign(1, [1]), {})
    with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
        catalog.plan_topic("a.b", uuid4(), assign(1, [1]), {})
    catalog.apply(TopicDeleted(first))
    create(catalog, "a_b")


def test_a_name_may_come_back_under_another_id(catalog: Catalog) -> None:
    first = create(catalog, "t")
    catalog.apply(TopicDeleted(first))
    second = create(catalog, "t")
    assert first != second
    assert catalog.topic_by_id(first) is None
    topic = catalog.topic("t")
    assert topic is not None
    assert topic.topic_id == second


def test_partitions_only_grow(catalog: Catalog) -> None:
    create(catalog, "t", 3)
    topic = catalog.topic("t")
    assert topic is not None
    for total in (3, 2, 0, -1):
        with refused(ErrorCode.INVALID_PARTITIONS):
            finish(catalog.plan_partitions(topic, total, None, [1]))
    catalog.apply(finish(catalog.plan_partitions(topic, 5, None, [1])))
    grown = catalog.topic("t")
    assert grown is not None
    assert len(grown.partitions) == 5


def test_manual_assignments_of_new_partitions_must_match_their_number(catalog: Catalog) -> None:
    create(catalog, "t")
    topic = catalog.topic("t")
    assert topic is not None
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        finish(catalog.plan_partitions(topic, 3, [[1]], [1]))
    assert len(finish(catalog.plan_partitions(topic, 3, [[1], [1]], [1])).partitions) == 2


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


def test_a_delta_that_does_not_fit_is_a_broken_invariant(catalog: Catalog) -> None:
    for delta in (TopicDeleted(uuid4()), PartitionsAdded(uuid4(), ()), TopicConfigsChanged(uuid4(), {})):
        with pytest.raises(ValueError, match="no topic"):
            catalog.apply(delta)
    with pytest.raises(ValueError, match="no topic"):
        catalog.apply(PartitionsChanged(uuid4(), {}))
    catalog.apply(AclsChanged((acl("User:a"),)))
    for delta in (AclsChanged((acl("User:a"),)), AclsChanged((), (acl("User:b"),))):
        with pytest.raises(ValueError, match="ACLs"):
            catalog.apply(delta)
    catalog.apply(ProducerIdsReserved(2000))
    with pytest.raises(ValueError, match="go back"):
        catalog.apply(ProducerIdsReserved(1000))


def test_a_manual_assignment_of_many_partitions_is_checked_in_steps() -> None:
    steps = assign_manually({index: [1, 2] for index in range(10 * ELEMENTS_PER_STEP)}, [1, 2])
    assert sum(1 for _ in steps) == 10


def test_a_change_says_what_the_topic_was_and_what_it_is(catalog: Catalog) -> None:
    created = catalog.apply(catalog.plan_topic("t", uuid4(), assign(1, [1]), {}))
    assert (created.before, created.after) == (None, catalog.topic("t"))
    topic = created.after
    assert topic is not None
    grown = catalog.apply(PartitionsAdded(topic.topic_id, assign(2, [1])))
    assert (grown.before, grown.after) == (topic, catalog.topic("t"))
    deleted = catalog.apply(TopicDeleted(topic.topic_id))
    assert (deleted.before, deleted.after) == (grown.after, None)
    assert catalog.apply(ProducerIdsReserved(1000))[1:] == (None, None)


def test_a_broker_that_comes_again_with_other_addresses_is_still_one(catalog: Catalog) -> None:
    for port in (9092, 9093):
        listener = Listener("external", "h", port)
        catalog.apply(BrokerRegistered(BrokerRegistration(1, (listener,))))
    assert catalog.brokers == {1: BrokerRegistration(1, (listener,))}
    assert catalog.revision == 2


def led_by(leader_id: int, leader_epoch: int, *isr: int) -> PartitionAssignment:
    return PartitionAssignment(leader_id, leader_epoch, (1, 2, 3), isr)


def test_a_partition_changes_and_the_others_of_its_topic_do_not(catalog: Catalog) -> None:
    topic_id = uuid4()
    catalog.apply(catalog.plan_topic("t", topic_id, (led_by(1, 0, 1, 2),) * 3, {}))
    for now in (led_by(1, 0, 1), led_by(-1, 1), led_by(2, 2, 2, 3), led_by(2, 5, 2)):
        catalog.apply(PartitionsChanged(topic_id, {1: now}))
        topic = catalog.topic_by_id(topic_id)
        assert topic is not None
        assert topic.partitions == (led_by(1, 0, 1, 2), now, led_by(1, 0, 1, 2))


@pytest.mark.parametrize("wrong", [{0: led_by(2, 4, 2)}, {0: led_by(1, 3, 1)}, {1: led_by(1, 9, 1)}])
def test_a_leader_epoch_never_goes_back_and_rises_with_the_leader(
    wrong: dict[int, PartitionAssignment],
) -> None:
    catalog = Catalog("c")
    topic_id = uuid4()
    catalog.apply(catalog.plan_topic("t", topic_id, (led_by(1, 4, 1),), {}))
    with pytest.raises(ValueError, match=r"epoch [45] or later|no partition 1"):
        catalog.apply(PartitionsChanged(topic_id, wrong))
    assert catalog.revision == 1
