"""What a membership wants done next: the steps of both protocols.

Owns: the steps, and what a membership of either protocol keeps of its member. Pure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition
from tidelog.wire.errors import ClientError

NO_GENERATION: Final = -1
MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""The answers of a broker that is not the coordinator any more."""


class Identity(NamedTuple):
    """The sender of a request. The generation is the member's epoch in the consumer protocol; -1: none."""

    member_id: str
    generation: int


class FindCoordinator(NamedTuple):
    """Ask for the group's coordinator, then call `coordinator_found`."""


class Join(NamedTuple):
    """Send JoinGroup with these values, then call `joined`."""

    values: DictOf[types.JoinGroupRequest]


class AssignAll(NamedTuple):
    """As the leader: look up how many partitions these topics have, then call `assigned`."""

    topics: frozenset[str]


class Sync(NamedTuple):
    """Send SyncGroup with these values, then call `synced`."""

    values: DictOf[types.SyncGroupRequest]


class ResolveTopics(NamedTuple):
    """Call `resolved` with the ids of the topics; with newer metadata if that is not enough."""


class Revoke(NamedTuple):
    """Stop reading these partitions, commit unless they are lost, run the callback, then call `revoked`."""

    partitions: frozenset[TopicPartition]
    is_lost: bool


class Adopt(NamedTuple):
    """Read these partitions too, run the callback, then call `adopted`."""

    partitions: frozenset[TopicPartition]


class Leave(NamedTuple):
    """Send this request, then call `left`."""

    api_key: ApiKey
    values: Mapping[str, object]


class Rest(NamedTuple):
    """Nothing to do until something changes."""


Step: TypeAlias = FindCoordinator | Join | AssignAll | Sync | ResolveTopics | Revoke | Adopt | Leave | Rest


class GroupMembership(ABC):
    """A member as it begins: without a generation, without partitions. Times are in milliseconds."""

    def __init__(
        self, group_id: str, member_id: str, group_instance_id: str | None, heartbeat_interval_ms: int
    ) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.identity = Identity(member_id, NO_GENERATION)
        self.coordinator: int | None = None
        self.owned: frozenset[TopicPartition] = frozenset()
        self.error: ClientError | None = None
        self.failures = 0
        """Failures in a row: wait before the next request if there were any."""
        self.rebalances = 0
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.must_report = False
        """Whether the next heartbeat must not wait for its time. Never, in the classic protocol."""
        self.awaits_join = False
        """Whether commits and heartbeats have to wait. Never, in the consumer protocol."""
        self._target: frozenset[TopicPartition] = frozenset()
        self._is_lost = False
        self._is_away = False

    def request_failed(self, error: ClientError) -> None:
        """A request had no answer, or an error that says nothing about the group. It ends the membership
        unless it is retriable."""
        self.awaits_join = False
        self.coordinator = None
        if error.retriable:
            self.failures += 1
        else:
            self._fail(error)

    @abstractmethod
    def _fail(self, error: ClientError) -> None:
        """The membership ends with this error."""
