"""The assignors of the broker: which member is to read which partitions.

Owns `range` and `uniform`, and `ASSIGNORS`, the table of them. Invariants: each partition of a subscribed
topic goes to exactly one of its subscribers; the result follows from the arguments alone.

`range` gives each member a contiguous range of each topic, so topics with the same number of partitions and
the same subscribers are assigned alike. `uniform` gives each member the same number of partitions, or one
more, and moves as few as it can.

Pure. Source: Kafka's RangeAssignor and UniformAssignor, KIP-848.
"""

from collections.abc import Callable, Mapping
from heapq import heapify, heapreplace
from typing import NamedTuple, TypeAlias
from uuid import UUID

from tidelog.broker.coordinator.consumer_groups.group import Assignment

MAX_BALANCE_ROUNDS = 16
"""How often all topics are balanced one after the other: to balance one may unbalance another."""


class AssignedMember(NamedTuple):
    """A member, the ids of the topics that it reads, and its present target."""

    instance_id: str | None
    topic_ids: frozenset[UUID]
    target: Assignment


Members: TypeAlias = Mapping[str, AssignedMember]
PartitionCounts: TypeAlias = Mapping[UUID, int]
"""Topic id -> its number of partitions, for each topic that a member reads."""
Assignor: TypeAlias = Callable[[Members, PartitionCounts], Mapping[str, Assignment]]
_Held: TypeAlias = dict[UUID, set[int]]


def assign_range(members: Members, partition_counts: PartitionCounts) -> Mapping[str, Assignment]:
    """Static members come first, by their instance ids, so that they keep their ranges."""
    order = sorted(
        members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or each)
    )
    assigned: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in order}
    for topic_id, count in partition_counts.items():
        subscribers = [member_id for member_id in order if topic_id in members[member_id].topic_ids]
        first = 0
        for position, member_id in enumerate(subscribers):
            size = count // len(subscribers) + (position < count % len(subscribers))
            if size:
                assigned[member_id][topic_id] = frozenset(range(first, first + size))
            first += size
    return assigned


def assign_uniform(members: Members, partition_counts: PartitionCounts) -> Mapping[str, Assignment]:
    held: dict[str, _Held] = {}
    free: dict[UUID, set[int]] = {topic_id: set(range(count)) for topic_id, count in partition_counts.items()}
    for member_id in sorted(members):
        held[member_id] = _kept(members[member_id], free)
    if len({member.topic_ids for member in members.values()}) <= 1:
        _share_equally(held, free)
    else:
        _share_among_subscribers(members, held, free)
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in topics.items() if partitions}
        for member_id, topics in held.items()
    }


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""By the names under which members ask for them."""


def _kept(member: AssignedMember, free: Mapping[UUID, set[int]]) -> _Held:
    """What the member may keep of its target. It is removed from `free`."""
    kept: _Held = {}
    for topic_id, partitions in member.target.items():
        if topic_id in member.topic_ids and topic_id in free:
            kept[topic_id] = set(partitions) & free[topic_id]
            free[topic_id] -= kept[topic_id]
    return kept


def _share_equally(held: Mapping[str, _Held], free: Mapping[UUID, set[int]]) -> None:
    """All members read the same topics: each gets its share of all partitions."""
    if not held:
        return
    loads = {member_id: sum(map(len, topics.values())) for member_id, topics in held.items()}
    least, larger_count = divmod(sum(loads.values()) + sum(map(len, free.values())), len(held))
    # Members with the most partitions keep the larger shares, so no partition moves without need.
    order = sorted(held, key=lambda each: (-loads[each], each))
    quotas = {member_id: least + (position < larger_count) for position, member_id in enumerate(order)}
    spare = [(topic_id, partition) for topic_id in free for partition in sorted(free[topic_id])]
    for member_id in order:
        surplus = loads[member_id] - quotas[member_id]
        for topic_id in reversed(held[member_id]):
            if surplus <= 0:
                break
            taken = sorted(held[member_id][topic_id])[-surplus:]
            held[member_id][topic_id].difference_update(taken)
            spare += ((topic_id, partition) for partition in taken)
            surplus -= len(taken)
    spare.reverse()
    for member_id in order:
        for _ in range(quotas[member_id] - loads[member_id]):
            topic_id, partition = spare.pop()
            held[member_id].setdefault(topic_id, set()).add(partition)


def _share_among_subscribers(
    members: Members, held: Mapping[str, _Held], free: Mapping[UUID, set[int]]
) -> None:
    """Members read different topics: each partition goes to the subscriber that has fewest."""
    subscribers = {
        topic_id: [member_id for member_id in held if topic_id in members[member_id].topic_ids]
        for topic_id in free
    }
    # Topics with few subscribers for their partitions first: the others can be balanced around them.
    order = sorted(
        (topic_id for topic_id in free if subscribers[topic_id]),
        key=lambda each: (
            -_size(each, held, free) / len(subscribers[each]),
            len(subscribers[each]),
            each.bytes,
        ),
    )
    loads = {member_id: sum(map(len, topics.values())) for member_id, topics in held.items()}
    for topic_id in order:
        heap = [(loads[member_id], member_id) for member_id in subscribers[topic_id]]
        heapify(heap)
        for partition in sorted(free[topic_id]):
            load, member_id = heap[0]
            held[member_id].setdefault(topic_id, set()).add(partition)
            loads[member_id] = load + 1
            heapreplace(heap, (load + 1, member_id))
    for _ in range(MAX_BALANCE_ROUNDS):
        moved = sum(_balance(topic_id, subscribers[topic_id], held, loads) for topic_id in order)
        if not moved:
            return


def _size(topic_id: UUID, held: Mapping[str, _Held], free: Mapping[UUID, set[int]]) -> int:
    return len(free[topic_id]) + sum(len(topics.get(topic_id, ())) for topics in held.values())


def _balance(topic_id: UUID, subscribers: list[str], held: Mapping[str, _Held], loads: dict[str, int]) -> int:
    """Move partitions of this topic between its subscribers; returns how many were moved."""
    moved = 0
    while True:
        givers = [each for each in subscribers if held[each].get(topic_id)]
        if not givers:
            return moved
        most = max(givers, key=lambda each: (loads[each], each))
        least = min(subscribers, key=lambda each: (loads[each], each))
        if loads[most] - loads[least] <= 1:
            return moved
        partition = max(held[most][topic_id])
        held[most][topic_id].discard(partition)
        held[least].setdefault(topic_id, set()).add(partition)
        loads[most] -= 1
        loads[least] += 1
        moved += 1
