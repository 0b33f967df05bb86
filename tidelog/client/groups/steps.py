"""What a membership wants done next: the steps of both protocols.

Owns: the steps, and the identity of a member. Plain values. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.protocol import message_types as types
    from tidelog.protocol.messages.declaration import DictOf

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
