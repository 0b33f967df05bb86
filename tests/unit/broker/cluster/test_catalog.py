"""The catalog: names, ids, partitions and the codes with which a bad wish is refused."""

from uuid import UUID, uuid4

import pytest

from tests.unit.broker.cluster.stores import acl
from tidelog.broker.cluster.catalog import (
    AclsChanged,
    Catalog,
    PartitionAssignment,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsReserved,
    TopicConfigsChanged,
    TopicDeleted,
    check_topic_name,
)
from tidelog.broker.cluster.placement import assign
from tidelog.protocol.errors import ApiError, ErrorCode


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
