"""The role of a broker for a partition, and the partitions whose roles a change of the catalog may change.

Owns both rules. A broker holds a partition where it is one of the replicas, and leads it where it is the
leader.

Pure.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.broker.cluster import catalog


class Role(NamedTuple):
    """The role of a broker that holds a replica of a partition, and what the catalog says of all replicas."""

    is_leader: bool
    assigned: catalog.PartitionAssignment

    @property
    def leader_epoch(self) -> int:
        return self.assigned.leader_epoch


def is_unclean(before: Role, now: Role) -> bool:
    """Whether the leader of now may lack what was committed, because an operator chose it."""
    then = before.assigned
    return now.assigned.leader_id not in (catalog.NO_LEADER, then.leader_id, *then.isr, *then.elr)


def role_of(assigned: catalog.PartitionAssignment, node_id: int) -> Role | None:
    """The role of a broker; None if it holds no replica."""
    if node_id not in assigned.replicas:
        return None
    return Role(assigned.leader_id == node_id, assigned)


def role_in(topic: catalog.Topic | None, index: int, node_id: int) -> Role | None:
    """The role of a broker for a partition, which need not exist."""
    if topic is None or index >= len(topic.partitions):
        return None
    return role_of(topic.partitions[index], node_id)


def partitions_held(topic: catalog.Topic, node_id: int, first: int = 0) -> list[int]:
    """The partitions from `first` on of which a broker holds a replica."""
    return [
        index for index in range(first, len(topic.partitions)) if node_id in topic.partitions[index].replicas
    ]


def partitions_touched(change: catalog.Change) -> Iterable[int]:
    """The partitions whose replicas a change may start, stop, or give another role."""
    match change.delta:
        case catalog.TopicCreated(topic):
            return range(len(topic.partitions))
        case catalog.TopicDeleted() if change.before is not None:
            return range(len(change.before.partitions))
        case catalog.PartitionsAdded(_, added) if change.before is not None:
            return range(len(change.before.partitions), len(change.before.partitions) + len(added))
        case catalog.PartitionsChanged(_, changed):
            return sorted(changed)
    return ()
