"""Which replicas are in sync, and which may lead without being so.

Owns both rules. A leader adds a follower only as the broker that fetched: its registration is still the one
under which it fetched, and it is live. A replica that leaves while fewer than min.insync.replicas stay is
eligible to lead, because nothing is committed without it; with enough in sync no other replica is.

Invariants: a leader changes only what it leads, in its own epoch, and never removes itself; each change
raises the partition epoch.

Pure. Source: KIP-903 (who may be added), KIP-966 (eligible leaders), Kafka's PartitionChangeBuilder.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from tidelog.broker.cluster.catalog import (
    Catalog,
    NothingToChange,
    PartitionAssignment,
    PartitionsChanged,
    Topic,
)
from tidelog.broker.cluster.registration import replica_epoch_of


class InSyncWanted(NamedTuple):
    """What a leader wants to change of one partition's in-sync set."""

    leader_epoch: int
    joining: Mapping[int, int]
    """Broker id -> the replica epoch under which it fetched."""
    leaving: Collection[int] = ()


def needed(assigned: PartitionAssignment, least: int) -> int:
    """How many replicas have to be in sync, `least` being min.insync.replicas: all if there are fewer. Those
    that a reassignment adds do not count before it is completed, so that a partition that gets more replicas
    accepts records meanwhile."""
    return min(least, len(assigned.replicas) - len(assigned.adding))


def with_in_sync(assigned: PartitionAssignment, in_sync: Collection[int], least: int) -> PartitionAssignment:
    """A partition with this in-sync set, in the order of its replicas, and the eligible leaders that follow
    from it; the same object where it has them.

    `least` is min.insync.replicas.
    """
    isr = tuple(each for each in assigned.replicas if each in in_sync)
    elr: tuple[int, ...] = ()
    if len(isr) < needed(assigned, least):
        known = {*assigned.isr, *assigned.elr}
        elr = tuple(each for each in assigned.replicas if each in known and each not in isr)
    if (set(isr), set(elr)) == (set(assigned.isr), set(assigned.elr)):
        return assigned
    return assigned._replace(isr=isr, elr=elr, partition_epoch=assigned.partition_epoch + 1)


def is_registered(catalog: Catalog, node_id: int, replica_epoch: int) -> bool:
    """Whether a follower that fetches under this epoch is the start that the catalog has of its broker."""
    broker = catalog.brokers.get(node_id)
    return broker is not None and replica_epoch_of(broker.incarnation) == replica_epoch


def may_join(catalog: Catalog, node_id: int, replica_epoch: int) -> bool:
    """Whether a follower that fetched under this epoch may be added to an in-sync set."""
    return is_registered(catalog, node_id, replica_epoch) and not catalog.brokers[node_id].is_fenced


def in_sync_change(
    catalog: Catalog, leader_id: int, topic_id: UUID, wanted: Mapping[int, InSyncWanted], least: int
) -> PartitionsChanged:
    """The delta that changes the in-sync sets of partitions of a topic, by their numbers, as their leader
    wants; what does not hold any more is left out. Raises NothingToChange."""
    topic = topic_to_change(catalog, topic_id)
    changed: dict[int, PartitionAssignment] = {}
    for index, (leader_epoch, joining, leaving) in wanted.items():
        if not topic.has_partition(index):
            continue
        assigned = topic.partitions[index]
        if (assigned.leader_id, assigned.leader_epoch) != (leader_id, leader_epoch):
            continue
        joined = {
            each
            for each, epoch in joining.items()
            if may_join(catalog, each, epoch) and (topic_id, index) not in catalog.brokers[each].offline
        }
        now = with_in_sync(assigned, ({*assigned.isr, *joined} - {*leaving}) | {leader_id}, least)
        if now is not assigned:
            changed[index] = now
    return partitions_changed(topic_id, changed)


def topic_to_change(catalog: Catalog, topic_id: UUID) -> Topic:
    """Raises NothingToChange if it is deleted."""
    topic = catalog.topic_by_id(topic_id)
    if topic is None:
        raise NothingToChange
    return topic


def partitions_changed(topic_id: UUID, changed: Mapping[int, PartitionAssignment]) -> PartitionsChanged:
    """The delta that changes these. Raises NothingToChange if there are none."""
    if not changed:
        raise NothingToChange
    return PartitionsChanged(topic_id, changed)
