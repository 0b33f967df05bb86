"""The sticky assignment: balanced, and each member keeps as much as the balance allows.

Owns the algorithm of the assignors `sticky` and `cooperative-sticky`. Invariants: every partition of a
subscribed topic goes to exactly one member that subscribed to it; no single move of a partition can make the
loads of two members more equal; if two members claim a partition, the one with the newer generation counts,
and none if both have the same. Pure.
Source: KIP-54, KIP-341, KIP-429.
"""

from collections.abc import Mapping

from tidelog.client.groups.consumer_protocol import Subscription
from tidelog.protocol.types import TopicPartition

Assignment = dict[str, set[TopicPartition]]


def assign_sticky(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, set[TopicPartition]]:
    """The partitions of each member. `partition_counts` has the topics that exist."""
    eligible = {
        topic: [member for member in sorted(members) if topic in members[member].topics]
        for topic in sorted(partition_counts)
    }
    assigned: Assignment = {member: set() for member in members}
    owners: dict[TopicPartition, str] = {}
    for partition, member in _claims(members).items():
        exists = partition.partition < partition_counts.get(partition.topic, 0)
        if exists and partition.topic in members[member].topics:
            assigned[member].add(partition)
            owners[partition] = member
    everything = [
        TopicPartition(topic, index)
        for topic in sorted(eligible, key=lambda topic: (len(eligible[topic]), topic))
        if eligible[topic]
        for index in range(partition_counts[topic])
    ]
    for partition in everything:
        if partition not in owners:
            owner = min(eligible[partition.topic], key=lambda member: len(assigned[member]))
            assigned[owner].add(partition)
            owners[partition] = owner
    _balance(everything, eligible, owners, assigned)
    return assigned


def assign_cooperatively(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, set[TopicPartition]]:
    """As `assign_sticky`, without the partitions that another member still owns: it gives them up first, and
    the next rebalance assigns them."""
    assigned = assign_sticky(partition_counts, members)
    given_up = {partition for member, each in members.items() for partition in each.owned - assigned[member]}
    return {
        member: {each for each in partitions if each in members[member].owned or each not in given_up}
        for member, partitions in assigned.items()
    }


def _claims(members: Mapping[str, Subscription]) -> dict[TopicPartition, str]:
    """The member that owns each partition, as far as one does."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in sorted(members):
        generation = members[member].generation
        for partition in members[member].owned:
            known = claims.get(partition)
            if known is None or generation > known[0]:
                claims[partition] = generation, member
            elif generation == known[0]:
                claims[partition] = generation, None
    return {partition: member for partition, (_, member) in claims.items() if member is not None}


def _balance(
    everything: list[TopicPartition],
    eligible: Mapping[str, list[str]],
    owners: dict[TopicPartition, str],
    assigned: Assignment,
) -> None:
    """Move partitions while a move makes two loads more equal. Each move lowers the sum of their squares."""
    loads = {member: len(partitions) for member, partitions in assigned.items()}
    has_moved = True
    while has_moved:
        has_moved = False
        for partition in everything:
            owner = owners[partition]
            target = min(eligible[partition.topic], key=loads.__getitem__)
            if loads[owner] - loads[target] > 1:
                assigned[owner].remove(partition)
                assigned[target].add(partition)
                loads[owner] -= 1
                loads[target] += 1
                owners[partition] = target
                has_moved = True
