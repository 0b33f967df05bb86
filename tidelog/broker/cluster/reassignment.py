"""How an operator changes the replicas of a partition, and cancels that.

Owns what a reassignment begins with and what its cancellation leaves; `controller` completes it. Meanwhile a
partition has the wanted replicas, in their order, and then those to be removed. Each of them may be in sync
and lead: none is removed before all added ones are in sync.

Invariants: the replicas that are not `adding` are those before the first of several reassignments, so a
cancellation restores these, as a set; a cancellation after which the partition would lose its leader is
refused, because only the removed replicas may have everything that was acknowledged.

Pure. Source: KIP-455, and Kafka's PartitionReassignmentReplicas, PartitionReassignmentRevert and
ReplicationControlManager.alterPartitionReassignments.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from uuid import UUID

from tidelog.broker.cluster.catalog import NO_LEADER, Catalog, PartitionAssignment, PartitionsChanged, Topic
from tidelog.broker.cluster.controller import (
    LeastInSync,
    able_to_lead,
    elected_without,
    live_brokers,
    offline_replicas,
)
from tidelog.protocol.errors import ApiError, ErrorCode, again

Wanted = Sequence[int] | None
"""The replicas that a partition is to have, the preferred leader first; None cancels a reassignment."""


def is_under_way(assigned: PartitionAssignment) -> bool:
    return bool(assigned.adding or assigned.removing)


def reassigned(
    catalog: Catalog,
    topic_id: UUID,
    wanted: Mapping[int, Wanted],
    least_in_sync: LeastInSync,
    refused: dict[int, ApiError],
    *,
    may_change_factor: bool = True,
) -> PartitionsChanged:
    """The delta that begins or cancels reassignments of partitions, by their numbers; `refused` gets those
    that are not possible, and is emptied before. Raises ApiError where the topic is gone.

    A delta without partitions is committed too: the commit shows that the catalog is the newest."""
    refused.clear()
    topic = catalog.topic_by_id(topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic of this name.")
    live, offline, least = live_brokers(catalog), offline_replicas(catalog), least_in_sync(topic)
    changed: dict[int, PartitionAssignment] = {}
    for index, replicas in wanted.items():
        try:
            assigned = _partition(topic, index)
            if replicas is None:
                now = cancelled(assigned, able_to_lead(live, offline, topic_id, index), least)
            else:
                _check(assigned, replicas, catalog.brokers.keys(), may_change_factor)
                now = begun(assigned, replicas)
        except ApiError as error:
            refused[index] = again(error)
        else:
            if now is not assigned:
                changed[index] = now
    return PartitionsChanged(topic_id, changed)


def _partition(topic: Topic, index: int) -> PartitionAssignment:
    if not topic.has_partition(index):
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic.name}:{index}."
        )
    return topic.partitions[index]


def begun(assigned: PartitionAssignment, replicas: Sequence[int]) -> PartitionAssignment:
    """A partition that will have these replicas; the same object where it is so, or on the way there.

    One that an earlier reassignment adds and this one does not want is both added and removed.
    """
    before = {*assigned.replicas} - {*assigned.adding}
    removing = tuple(each for each in assigned.replicas if each not in replicas)
    now = assigned._replace(
        replicas=(*replicas, *removing),
        adding=tuple(each for each in (*replicas, *removing) if each not in before),
        removing=removing,
    )
    return assigned if now == assigned else now._replace(partition_epoch=assigned.partition_epoch + 1)


def cancelled(assigned: PartitionAssignment, able: Set[int], least: int) -> PartitionAssignment:
    """A partition with the replicas from before its reassignment; `able` are those that could lead.

    Raises ApiError: NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT.
    """
    if not is_under_way(assigned):
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    now = elected_without(assigned, assigned.adding, able, least)
    if now.leader_id == NO_LEADER != assigned.leader_id:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"of the replicas of before, {list(now.replicas)}, none that lives has all acknowledged records:"
            " start their brokers, then try again",
        )
    return now


def _check(
    assigned: PartitionAssignment, replicas: Sequence[int], brokers: Set[int], may_change_factor: bool
) -> None:
    """Raise ApiError for replicas that a partition cannot be asked to have."""
    problem = ""
    if not replicas:
        problem = "an empty replica list"
    elif len({*replicas}) != len(replicas):
        twice = min(each for each, count in Counter(replicas).items() if count > 1)
        problem = f"broker {twice} more than once"
    elif unknown := sorted({*replicas} - brokers):
        problem = f"broker {unknown[0]}, but no such broker is registered"
    if problem:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {problem}."
        )
    factor = len(assigned.wanted_replicas)
    if not may_change_factor and len(replicas) != factor:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {len(replicas)}",
        )
