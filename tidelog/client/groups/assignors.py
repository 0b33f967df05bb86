"""The assignors: how the leader of a classic group divides the partitions among the members.

Owns: their names on the wire, and which of them are cooperative. Invariant: every partition of a subscribed
topic goes to exactly one member that subscribed to it; a cooperative assignor leaves out those that their
owner must give up first. Pure.
Source: Kafka's RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor.
"""

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Final, NamedTuple

from tidelog.client.groups.consumer_protocol import (
    Subscription,
    cooperative_user_data,
    encode_subscription,
    sticky_user_data,
)
from tidelog.client.groups.sticky import assign_cooperatively, assign_sticky
from tidelog.protocol.types import TopicPartition

Members = Mapping[str, Subscription]
Assignments = dict[str, set[TopicPartition]]


class Assignor(NamedTuple):
    """`assign(partition_counts, members)` returns the partitions of each member.

    `user_data(owned, generation)` is what a member adds to its subscription.
    """

    name: str
    assign: Callable[[Mapping[str, int], Members], Assignments]
    user_data: Callable[[frozenset[TopicPartition], int], bytes | None]
    is_cooperative: bool = False

    def metadata(
        self,
        topics: frozenset[str],
        owned: frozenset[TopicPartition],
        previous: frozenset[TopicPartition],
        generation: int,
    ) -> bytes:
        """A member's metadata. `previous` is what it owned before it gave up everything to join."""
        return encode_subscription(topics, owned, generation, self.user_data(previous, generation))


def _assign_ranges(partition_counts: Mapping[str, int], members: Members) -> Assignments:
    """For each topic, a range of neighbouring partitions to each of its members."""
    assigned: Assignments = {member: set() for member in members}
    for topic, count in partition_counts.items():
        subscribed = [member for member in _in_order(members) if topic in members[member].topics]
        if not subscribed:
            continue
        share, larger = divmod(count, len(subscribed))
        first = 0
        for place, member in enumerate(subscribed):
            end = first + share + (place < larger)
            assigned[member].update(TopicPartition(topic, index) for index in range(first, end))
            first = end
    return assigned


def _assign_in_turn(partition_counts: Mapping[str, int], members: Members) -> Assignments:
    """One partition to each member in turn, over all topics."""
    assigned: Assignments = {member: set() for member in members}
    turns = cycle(_in_order(members))
    for topic in sorted(partition_counts):
        if not any(topic in each.topics for each in members.values()):
            continue
        for index in range(partition_counts[topic]):
            member = next(member for member in turns if topic in members[member].topics)
            assigned[member].add(TopicPartition(topic, index))
    return assigned


def _in_order(members: Members) -> list[str]:
    """Static members first, by their instance ids: these outlive a restart, so their shares stay the same."""

    def rank(member: str) -> tuple[bool, str]:
        instance_id = members[member].group_instance_id
        return instance_id is None, instance_id or member

    return sorted(members, key=rank)


def _no_user_data(owned: frozenset[TopicPartition], generation: int) -> None:
    return None


ASSIGNORS: Final = {
    each.name: each
    for each in (
        Assignor("range", _assign_ranges, _no_user_data),
        Assignor("roundrobin", _assign_in_turn, _no_user_data),
        Assignor("sticky", assign_sticky, sticky_user_data),
        Assignor(
            "cooperative-sticky",
            assign_cooperatively,
            lambda owned, generation: cooperative_user_data(generation),
            is_cooperative=True,
        ),
    )
}
"""Each assignor by its name on the wire."""
