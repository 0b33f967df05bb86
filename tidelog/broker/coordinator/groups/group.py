"""One group and its members as immutable values, and what can be derived from them.

Owns `Group` and `Member`. Invariants: both are immutable, so a decision that is not carried out changes
nothing; a static member can be found by its instance id too; the leader is a member, or there is no leader; a
group changes its state only as `states.TRANSITIONS` allows.

Pure. Source: Kafka's ClassicGroup and ClassicGroupMember, KIP-345 (static members), KIP-394 (pending ones).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.broker.coordinator.groups.states import TRANSITIONS, GroupState, IllegalTransition

NO_MEMBER_ID = ""
NO_GENERATION = -1
CONSUMER_PROTOCOL_TYPE = "consumer"
_OBJECT_BYTES = 1_000
"""Memory of a group or a member without the bytes that its clients sent."""
_PROTOCOL_BYTES = 150
_PENDING_BYTES = 300


class Protocol(NamedTuple):
    """A method of assignment that a member supports, and its metadata for the member that assigns."""

    name: str
    metadata: bytes


class Member(NamedTuple):
    """`protocols` are in its order of preference."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    """It joined for the first time, and its generation has not begun yet."""
    awaits_join: bool = False
    awaits_sync: bool = False

    def metadata(self, protocol: str | None) -> bytes:
        return next((known.metadata for known in self.protocols if known.name == protocol), b"")

    @property
    def held_bytes(self) -> int:
        texts = len(self.member_id) + len(self.client_id) + len(self.group_instance_id or "")
        return (
            _OBJECT_BYTES
            + 2 * texts
            + len(self.assignment)
            + sum(_PROTOCOL_BYTES + len(known.name) + len(known.metadata) for known in self.protocols)
        )


class Group(NamedTuple):
    """`members` are in the order in which they joined."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: Mapping[str, Member] = {}
    static_members: Mapping[str, str] = {}
    """Instance id -> member id."""
    pending_joins: frozenset[str] = frozenset()
    """Member ids that were handed out and have not joined yet."""
    pending_syncs: frozenset[str] = frozenset()
    """Members of this generation that have not asked for their assignment yet."""
    is_initial: bool = False
    """The present rebalance began with an empty group, and waits for more members than the first."""
    has_new_members: bool = False
    """A member joined since the initial delay was last extended."""
    state_since_ms: int = -1
    held_bytes: int = _OBJECT_BYTES

    @classmethod
    def new(cls, group_id: str) -> Group:
        """Without members."""
        return cls(group_id, held_bytes=_OBJECT_BYTES + 2 * len(group_id))

    # Changes

    def moved_to(self, state: GroupState, now_ms: int) -> Group:
        """Raises IllegalTransition."""
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransition(f"group {self.group_id}: {self.state.value} to {state.value}")
        return self._replace(state=state, state_since_ms=now_ms)

    def with_member(self, member: Member) -> Group:
        """Add a new member, or replace the one with its id. The first member leads."""
        replaced = self.members.get(member.member_id)
        static_members = self.static_members
        if member.group_instance_id is not None:
            static_members = {**static_members, member.group_instance_id: member.member_id}
        return self.without_pending_join(member.member_id)._replace(
            members={**self.members, member.member_id: member},
            static_members=static_members,
            leader=self.leader or member.member_id,
            held_bytes=self.held_bytes
            + member.held_bytes
            - (0 if replaced is None else replaced.held_bytes)
            - (_PENDING_BYTES if member.member_id in self.pending_joins else 0),
        )

    def with_members(self, members: Mapping[str, Member]) -> Group:
        """The same members, changed."""
        return self._replace(
            members=members,
            held_bytes=self.held_bytes
            + sum(member.held_bytes for member in members.values())
            - sum(member.held_bytes for member in self.members.values()),
        )

    def without_members(self, member_ids: frozenset[str]) -> Group:
        """Remove these members. If the leader is one of them, the first of the others leads."""
        gone = [self.members[member_id] for member_id in member_ids]
        instances = {member.group_instance_id for member in gone}
        members = {key: member for key, member in self.members.items() if key not in member_ids}
        return self._replace(
            members=members,
            static_members={key: held for key, held in self.static_members.items() if key not in instances},
            leader=next(iter(members), None) if self.leader in member_ids else self.leader,
            pending_syncs=self.pending_syncs - member_ids,
            held_bytes=self.held_bytes - sum(member.held_bytes for member in gone),
        )

    def with_pending_join(self, member_id: str) -> Group:
        return self._replace(
            pending_joins=self.pending_joins | {member_id}, held_bytes=self.held_bytes + _PENDING_BYTES
        )

    def without_pending_join(self, member_id: str) -> Group:
        if member_id not in self.pending_joins:
            return self
        return self._replace(
            pending_joins=self.pending_joins - {member_id}, held_bytes=self.held_bytes - _PENDING_BYTES
        )

    # Derived values

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of a member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        return not self.pending_joins and all(member.awaits_join for member in self.members.values())

    @property
    def is_forgettable(self) -> bool:
        """Nothing of it was ever written, and it has no members."""
        is_empty = self.state is GroupState.EMPTY and not self.pending_joins
        return is_empty and self.generation == 0

    def supports(self, protocol_type: str, names: frozenset[str]) -> bool:
        """Whether a member that supports protocols of these names can join."""
        if not self.members:
            return bool(protocol_type and names)
        return protocol_type == self.protocol_type and bool(self._common_protocols() & names)

    def _common_protocols(self) -> frozenset[str]:
        known = Counter(
            name for member in self.members.values() for name in {each.name for each in member.protocols}
        )
        return frozenset(name for name, count in known.items() if count == len(self.members))

    def chosen_protocol(self) -> str:
        """Each member votes for its first protocol among those that all members support.

        Of protocols with equal votes, the one that got its first vote first.
        """
        common = self._common_protocols()
        votes = Counter(
            next(known.name for known in member.protocols if known.name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]
