"""Requests to a group and its answers, independent of the wire format.

Owns the values that the handlers and the machine exchange, and the limits that a broker sets for groups.
Invariant: all of them are copies, so none refers to a received frame.

Pure.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.broker.coordinator.groups.group import NO_GENERATION, NO_MEMBER_ID, Protocol
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.protocol.errors import ErrorCode


class GroupLimits(NamedTuple):
    """The settings `group.*` of a broker."""

    initial_rebalance_delay_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    max_size: int
    max_bytes: int
    """Bound for all groups together: what members sent and were assigned."""


class JoinRequest(NamedTuple):
    """`new_member_id` becomes the id of the member if it has none yet."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    new_member_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    client_id: str
    client_host: str
    requires_known_member_id: bool
    """A dynamic member first gets its id, and then joins with it (KIP-394)."""
    can_skip_assignment: bool
    """It supports being the leader without having to assign (KIP-814)."""


class JoinedMember(NamedTuple):
    """A member in the answer to the leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """`members` are for the leader only."""

    error_code: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncRequest(NamedTuple):
    """`assignments` is what a leader sends. A protocol that is None is not checked."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


class SyncAnswer(NamedTuple):
    """The answer to SyncGroup: the assignment of one member, or an error."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class MemberIdentity(NamedTuple):
    """A member by its id, or a static one by its instance id alone."""

    member_id: str
    group_instance_id: str | None


class DescribedMember(NamedTuple):
    """A member of a group, as DescribeGroups shows it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A group as operators see it. Protocol, metadata and assignments are set while it is stable."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: Sequence[DescribedMember]


class ListedGroup(NamedTuple):
    """One entry of a list of groups, of any type; `state` and `type` as clients see them."""

    group_id: str
    state: str
    protocol_type: str
    type: str
