"""A broker leads again what others lead for it, once that is more than a share."""

from uuid import UUID

from tidelog.broker.cluster.catalog import Catalog, PartitionAssignment, Topic, TopicCreated
from tidelog.broker.cluster.controller import led_by_others

ID = UUID(int=1)
KEPT = PartitionAssignment(1, 0, (1, 2), (1, 2))
MOVED = PartitionAssignment(2, 1, (1, 2), (1, 2))
LAGGING = PartitionAssignment(2, 1, (1, 2), (2,))


def of(*partitions: PartitionAssignment) -> Catalog:
    catalog = Catalog("c")
    catalog.apply(TopicCreated(Topic("t", ID, partitions)))
    return catalog


def test_nothing_moves_up_to_the_share() -> None:
    assert led_by_others(of(*[KEPT] * 9, MOVED), 10) == {}
    assert led_by_others(of(*[KEPT] * 8, MOVED), 10) == {ID: [8]}


def test_only_what_is_in_sync_moves_and_each_broker_counts_for_itself() -> None:
    other = PartitionAssignment(2, 0, (2, 1), (1, 2))
    assert led_by_others(of(MOVED, LAGGING, *[other] * 100), 10) == {ID: [0]}
    assert led_by_others(of(LAGGING), 0) == {}
