"""One share group: its members, epochs, assignments, and the partitions that have a state.

Owns `ShareGroup`, which changes only by `apply` of its records. Invariants:
- a member exists if it has a subscription. Its other parts may be applied before it, because a replay gives
  the last record of each key in the order of the log;
- a partition is assigned only after its state was initialized, so whoever fetches it finds a state.

Pure. Source: KIP-932, Kafka's ShareGroup and ShareGroupMember.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from tidelog.broker.coordinator.consumer_groups.group import Assignment, Current

_OBJECT_BYTES = 1_000
_NAME_BYTES = 100
_PARTITION_BYTES = 100


class ShareGroupState(Enum):
    """The value is the name that clients see."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareMember(NamedTuple):
    """The metadata of a member. `topic_names` are sorted."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()

    @property
    def held_bytes(self) -> int:
        texts = sum(map(len, self.topic_names)) + len(self.client_id) + len(self.rack_id or "")
        return _OBJECT_BYTES + texts + _NAME_BYTES * len(self.topic_names)


class StatePartitions(NamedTuple):
    """The partitions of a topic that have a state."""

    name: str
    partitions: frozenset[int]


class GroupStates(NamedTuple):
    """The partitions with a state, by their topics' ids; and the topics, by id and name, whose states are
    being deleted."""

    initialized: Mapping[UUID, StatePartitions] = {}
    deleting: Mapping[UUID, str] = {}


class ShareGroup:
    """Read it freely; only its records change it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, ShareMember] = {}
        self.currents: dict[str, Current] = {}
        self.targets: dict[str, Assignment] = {}
        self.states = GroupStates()

    def copy(self) -> ShareGroup:
        """A group that can be changed without changing this one."""
        made = ShareGroup(self.group_id)
        made.epoch, made.metadata_hash, made.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        made.members, made.currents = dict(self.members), dict(self.currents)
        made.targets, made.states = dict(self.targets), self.states
        return made

    @property
    def initialized(self) -> Mapping[UUID, StatePartitions]:
        return self.states.initialized

    @property
    def held_bytes(self) -> int:
        partitions = sum(len(each.partitions) for each in self.initialized.values())
        for assignment in (*self.targets.values(), *(each.assigned for each in self.currents.values())):
            partitions += sum(map(len, assignment.values()))
        members = sum(each.held_bytes for each in self.members.values())
        return _OBJECT_BYTES + members + _PARTITION_BYTES * partitions

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def subscribed_names(self) -> frozenset[str]:
        return frozenset(name for each in self.members.values() for name in each.topic_names)

    def current(self, member_id: str) -> Current:
        return self.currents.get(member_id) or Current()

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id) or {}
