"""One group of the consumer protocol: its members, epochs and assignments, and what follows from them.

Owns `ConsumerGroup`, which changes only by `apply` of its records, and the values it consists of. Invariants:
- a member exists if it has a subscription. Its other parts may be applied before it, because a replay gives
  the last record of each key in the order of the log;
- a partition has at most one owner. A member owns what it is assigned and what it has yet to revoke;
- an assignment has no topic without partitions.

Pure. Source: KIP-848, Kafka's ConsumerGroup and ConsumerGroupMember.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from tidelog.broker.coordinator.groups.group import Protocol

LEFT_FOR_A_WHILE_EPOCH = -2
"""The epoch of a static member that left and has not come back yet."""
LEAVING_EPOCH = -1
JOINING_EPOCH = 0
_OBJECT_BYTES = 1_000
"""Memory of a group or a member without the bytes that its clients sent."""
_NAME_BYTES = 100
_PROTOCOL_BYTES = 150
_PARTITION_BYTES = 100
"""Memory of one partition in a target, or of one that a member owns."""

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
"""Topic id -> partitions."""


class ConsumerGroupState(Enum):
    """The value is the name that clients see. The state follows from epochs and members."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The members or their topics changed, and no target was computed since."""
    RECONCILING = "Reconciling"
    """Some members have not reached their targets yet."""
    STABLE = "Stable"


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment. The value is the one in its record."""

    STABLE = 0
    """It has all that its epoch gives it."""
    UNREVOKED_PARTITIONS = 1
    """It must stop to own some partitions before its epoch may rise."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have yet to revoke."""
    UNKNOWN = 127
    """A state of a later version."""


class ClassicMember(NamedTuple):
    """What a member of the classic protocol sent when it joined."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


class Subscription(NamedTuple):
    """The metadata of a member. `topic_names` are sorted. `classic`: None for the consumer protocol."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None

    @property
    def held_bytes(self) -> int:
        texts = sum(map(len, self.topic_names)) + sum(
            len(text or "") for text in (self.instance_id, self.rack_id, self.client_id, self.topic_regex)
        )
        protocols = () if self.classic is None else self.classic.protocols
        return (
            _OBJECT_BYTES
            + texts
            + _NAME_BYTES * len(self.topic_names)
            + sum(_PROTOCOL_BYTES + len(each.name) + len(each.metadata) for each in protocols)
        )


class Current(NamedTuple):
    """If a member is on its way to its target: `revoking` are partitions that it must stop to own."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Mapping[UUID, frozenset[int]] = {}
    revoking: Mapping[UUID, frozenset[int]] = {}

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch


class SubscribedTopic(NamedTuple):
    """A topic that members read, as the group last knew it."""

    topic_id: UUID
    partition_count: int


class ResolvedRegex(NamedTuple):
    """The names that a regular expression matched among the topics of one revision of the catalog."""

    topics: frozenset[str]
    revision: int
    timestamp_ms: int


class ConsumerGroup:
    """Read it freely; only `set_*` change it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.topics: Mapping[str, SubscribedTopic] = {}
        """Name -> topic, for all subscribed topics that exist."""
        self.members: dict[str, Subscription] = {}
        self.currents: dict[str, Current] = {}
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.asked_to_join: set[str] = set()
        """Classic members that were asked to join again. Not written."""
        self.held_bytes = _OBJECT_BYTES
        self._owners: dict[UUID, dict[int, str]] = {}
        self._names: frozenset[str] | None = None

    def copy(self) -> ConsumerGroup:
        """A group that can be changed without changing this one."""
        made = ConsumerGroup(self.group_id)
        made.epoch, made.target_epoch, made.topics = self.epoch, self.target_epoch, self.topics
        made.members = dict(self.members)
        made.currents = dict(self.currents)
        made.targets = dict(self.targets)
        made.regexes = dict(self.regexes)
        made.static_members = dict(self.static_members)
        made.asked_to_join = set(self.asked_to_join)
        made.held_bytes = self.held_bytes
        made._names = self._names
        made._owners = {topic_id: dict(owners) for topic_id, owners in self._owners.items()}
        return made

    # Changes

    def set_member(self, member_id: str, subscription: Subscription | None) -> None:
        before = self.members.pop(member_id, None)
        self._names = None
        if before is not None:
            self.held_bytes -= before.held_bytes
            if before.instance_id is not None and self.static_members.get(before.instance_id) == member_id:
                del self.static_members[before.instance_id]
        if subscription is None:
            self.asked_to_join.discard(member_id)
            return
        self.members[member_id] = subscription
        self.held_bytes += subscription.held_bytes
        if subscription.instance_id is not None:
            self.static_members[subscription.instance_id] = member_id

    def set_current(self, member_id: str, current: Current | None) -> None:
        before = self.currents.pop(member_id, None)
        if before is not None:
            self.held_bytes -= _PARTITION_BYTES * len(_partitions(before))
            for topic_id, partition in _partitions(before):
                owners = self._owners[topic_id]
                if owners.get(partition) == member_id:
                    del owners[partition]
                    if not owners:
                        del self._owners[topic_id]
        if current is not None:
            self.currents[member_id] = current
            self.held_bytes += _PARTITION_BYTES * len(_partitions(current))
            for topic_id, partition in _partitions(current):
                self._owners.setdefault(topic_id, {})[partition] = member_id

    def set_target(self, member_id: str, target: Assignment | None) -> None:
        self.held_bytes -= _PARTITION_BYTES * _size(self.targets.pop(member_id, {}))
        if target is not None:
            self.targets[member_id] = target
            self.held_bytes += _PARTITION_BYTES * _size(target)

    def set_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        before = self.regexes.pop(regex, None)
        self._names = None
        if before is not None:
            self.held_bytes -= _NAME_BYTES * len(before.topics)
        if resolved is not None:
            self.regexes[regex] = resolved
            self.held_bytes += _NAME_BYTES * len(resolved.topics)

    # Derived values

    def current(self, member_id: str) -> Current:
        return self.currents.get(member_id) or Current()

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id) or {}

    def is_owned(self, topic_id: UUID, partition: int) -> bool:
        return partition in self._owners.get(topic_id, ())

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self.current(member_id).is_reconciled_to(self.target_epoch) for member_id in self.members):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def names_of(self, subscription: Subscription) -> frozenset[str]:
        """The names of the topics that a member reads. Some of them may not exist."""
        names = frozenset(subscription.topic_names)
        resolved = self.regexes.get(subscription.topic_regex or "")
        return names if resolved is None else names | resolved.topics

    @property
    def subscribed_names(self) -> frozenset[str]:
        """The names of all topics that members read. Some of them may not exist."""
        if self._names is None:
            self._names = frozenset().union(*(self.names_of(each) for each in self.members.values()))
        return self._names

    def topic_ids_of(self, subscription: Subscription) -> frozenset[UUID]:
        """The ids of the topics that a member reads, of those that exist."""
        return frozenset(
            self.topics[name].topic_id for name in self.names_of(subscription) if name in self.topics
        )

    def assignor(self, default: str) -> str:
        """The assignor that most members ask for; the default if none asks for one."""
        votes = Counter(each.server_assignor for each in self.members.values() if each.server_assignor)
        return votes.most_common(1)[0][0] if votes else default

    @property
    def classic_member_count(self) -> int:
        return sum(each.classic is not None for each in self.members.values())


def _size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def _partitions(current: Current) -> list[tuple[UUID, int]]:
    return [
        (topic_id, partition)
        for assignment in (current.assigned, current.revoking)
        for topic_id, partitions in assignment.items()
        for partition in partitions
    ]
