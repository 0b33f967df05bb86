"""The assignor of share groups: which member is to fetch which partitions.

Owns the rule. Invariants: each partition of a subscribed topic has a member; each member has a partition of
the topics that it reads, if there is one; members have the same number of partitions, or one more. The result
follows from the arguments alone.

Pure. Source: Kafka's SimpleAssignor, KIP-932.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from tidelog.broker.coordinator.consumer_groups.group import Assignment

_Partition = tuple[UUID, int]


def assign(topic_ids: Mapping[str, frozenset[UUID]], partitions: Assignment) -> Mapping[str, Assignment]:
    """`topic_ids`: member -> the topics that it reads; `partitions`: what there is to fetch."""
    held: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in topic_ids}
    members = sorted(topic_ids)
    by_topics: dict[frozenset[UUID], list[str]] = {}
    for member_id in members:
        by_topics.setdefault(topic_ids[member_id], []).append(member_id)
    if len(by_topics) == 1:
        _share(members, _in_order(partitions, next(iter(by_topics))), held)
    else:
        for topic_id in sorted(partitions):
            readers = [member_id for member_id in members if topic_id in topic_ids[member_id]]
            _share(readers, _in_order(partitions, (topic_id,)), held)
    return {
        member_id: {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}
        for member_id, topics in held.items()
    }


def _in_order(partitions: Assignment, topic_ids: Sequence[UUID] | frozenset[UUID]) -> list[_Partition]:
    return [
        (topic_id, index) for topic_id in sorted(topic_ids) for index in sorted(partitions.get(topic_id, ()))
    ]


def _share(
    members: Sequence[str], partitions: Sequence[_Partition], held: dict[str, dict[UUID, set[int]]]
) -> None:
    if not members or not partitions:
        return
    for number in range(max(len(members), len(partitions))):
        topic_id, index = partitions[number % len(partitions)]
        held[members[number % len(members)]].setdefault(topic_id, set()).add(index)
