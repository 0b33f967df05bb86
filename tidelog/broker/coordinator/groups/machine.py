"""The groups of one coordinator: a pure machine that takes requests and gives decisions.

Owns the set of groups, and how much memory they hold. Its records are `GroupRecord`s, its changes
`GroupChanged`: the state of a group between two records is lost at a restart, and its members join again.

Invariants: a group that never had a generation is removed with its last member; all groups together hold at
most `GroupLimits.max_bytes` of what members sent and are assigned.

Pure. Source: Kafka's GroupMetadataManager and GroupCoordinatorService, for groups of type classic.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from tidelog.broker.coordinator.decision import Decision, Timer
from tidelog.broker.coordinator.groups import membership, messages, rebalance
from tidelog.broker.coordinator.groups.group import CONSUMER_PROTOCOL_TYPE, Group
from tidelog.broker.coordinator.groups.joining import join, refusal
from tidelog.broker.coordinator.groups.rebalance import GroupChange, GroupChanged
from tidelog.broker.coordinator.groups.records import GroupRecord
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.broker.coordinator.offsets.committed_offsets import Committer
from tidelog.broker.coordinator.uncommitted import Uncommitted
from tidelog.protocol.codecs import Codec
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.messages.declaration import message_of
from tidelog.protocol.messages.group_records import ConsumerSubscription


class Groups:
    """Operations take `now_ms` last and return a Decision."""

    def __init__(self, limits: messages.GroupLimits, held_elsewhere: Callable[[], int] = lambda: 0) -> None:
        """`held_elsewhere`: bytes that groups of other types hold."""
        self.limits = limits
        self._held_elsewhere = held_elsewhere
        self.held_bytes = 0
        self._groups: dict[str, Group] = {}
        self._uncommitted: Uncommitted[str, Group | None] = Uncommitted()
        self._last_subscribed: tuple[Group | None, frozenset[str] | None] = (None, None)

    def apply(self, record: GroupRecord | GroupChanged) -> None:
        """Apply a group as it was written, or as a decision changed it."""
        before = self._groups.pop(record.group_id, None)
        if before is not None:
            self.held_bytes -= before.held_bytes
        if record.group is not None:
            self._groups[record.group_id] = record.group
            self.held_bytes += record.group.held_bytes

    def write(self, record: GroupRecord) -> None:
        """Apply a record that is not committed yet."""
        self._uncommitted.written(record.group_id, self._groups.get(record.group_id))
        self.apply(record)

    def settle(self, record: GroupRecord) -> None:
        """The oldest record of its group that was not committed is."""
        self._uncommitted.committed(record.group_id)

    # Queries

    def committed(self, group_id: str) -> Group | None:
        """A group as it may be shown; None for one that does not exist."""
        return self._uncommitted.shown(group_id, self._groups.get(group_id))

    def uncommitted_ids(self) -> Iterator[str]:
        return (group_id for group_id, _ in self._uncommitted)

    def knows(self, group_id: str) -> bool:
        """Whether the group has a state besides its offsets."""
        return group_id in self._groups

    def ids(self) -> Collection[str]:
        return self._groups.keys()

    def member_count(self, group_id: str) -> int:
        """The members of a group; 0 for one that does not exist."""
        group = self.committed(group_id)
        return 0 if group is None else len(group.members)

    # Members

    def join(self, request: messages.JoinRequest, now_ms: int) -> Decision[Any, messages.JoinAnswer]:
        code = refusal(request, self.limits)
        if code is not None:
            return Decision((), messages.JoinAnswer(code, request.member_id))
        change = self._change(request.group_id, now_ms)
        added_bytes = 0 if self.knows(request.group_id) else change.group.held_bytes
        return join(change, request, self._free_bytes() - added_bytes)

    def sync(self, request: messages.SyncRequest, now_ms: int) -> Decision[Any, messages.SyncAnswer]:
        return membership.sync(self._change(request.group_id, now_ms), request, self._free_bytes())

    def _free_bytes(self) -> int:
        """How much more all groups together may hold."""
        return self.limits.max_bytes - self.held_bytes - self._held_elsewhere()

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> Decision[Any, ErrorCode]:
        change = self._change(group_id, now_ms)
        return membership.heartbeat(change, member_id, instance_id, generation)

    def leave(
        self, group_id: str, leaving: Sequence[messages.MemberIdentity], now_ms: int
    ) -> Decision[Any, list[ErrorCode]]:
        """An error code for each leaving member, in their order."""
        return membership.leave(self._change(group_id, now_ms), leaving)

    def check_commit(self, group_id: str, committer: Committer, now_ms: int) -> Mapping[Any, Timer | None]:
        """Raise ApiError if offsets of a known group may not be committed; returns the timers to set.

        A commit counts as a heartbeat. Without members, any client may commit without a generation (-1).
        """
        change = self._change(group_id, now_ms)
        code = membership.commit_refusal(
            change, committer.member_id, committer.instance_id, committer.generation
        )
        if code is not None:
            raise ApiError(code)
        return change.decision(None).timers

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Any client may read the offsets of a group of the classic protocol."""

    # Other protocols

    def given_up(self, group_id: str, now_ms: int) -> tuple[Group, Decision[Any, None]]:
        """A group that another protocol continues, and the decision that ends it.

        Members that wait are to join again.
        """
        change = self._change(group_id, now_ms)
        group = change.group
        rebalance.give_up(change)
        ended = change.decision(None)
        return group, ended._replace(records=(GroupRecord(group_id, None),), changes=())

    def taken_over(self, group: Group, response: Any, *, rebalances: bool, now_ms: int) -> Decision[Any, Any]:
        """The decision that begins a group which another protocol gives up."""
        change = GroupChange(group, now_ms, self.limits, self)
        change.is_recorded = True
        for member in group.members.values():
            change.keep_alive(member.member_id, member.session_timeout_ms)
        if rebalances:
            rebalance.rebalance(change)
        return change.decision(response)

    # Operators

    def describe(self, group_id: str) -> messages.DescribedGroup:
        """A group that does not exist is described as dead."""
        group = self.committed(group_id)
        if group is None:
            return messages.DescribedGroup(group_id, GroupState.DEAD, "", "", ())
        is_stable = group.state is GroupState.STABLE
        protocol = (group.protocol or "") if is_stable else ""
        members = [
            messages.DescribedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol) if is_stable else b"",
                member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ]
        return messages.DescribedGroup(group_id, group.state, group.protocol_type or "", protocol, members)

    def check_offset_delete(self, group_id: str) -> None:
        """Raise ApiError (NON_EMPTY_GROUP) if the group has members whose topics are not known."""
        group = self._groups[group_id]
        if group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Whether members read the topic, or may."""
        group = self._groups[group_id]
        topics = self._topics_of(group)
        return group.protocol_type == CONSUMER_PROTOCOL_TYPE if topics is None else topic in topics

    def idle_since_ms(self, group_id: str, commit_timestamp_ms: int) -> int | None:
        """When the retention of an offset of that commit begins; None: the offset is still needed."""
        group = self._groups[group_id]
        if group.protocol_type is None:
            return commit_timestamp_ms
        if group.state is GroupState.EMPTY:
            return commit_timestamp_ms if group.state_since_ms < 0 else group.state_since_ms
        is_known = group.state is GroupState.STABLE and self._topics_of(group) is not None
        return commit_timestamp_ms if is_known else None

    def _topics_of(self, group: Group) -> frozenset[str] | None:
        """The topics that its members read, cached for the last group; None if they are not known."""
        if self._last_subscribed[0] is not group:
            self._last_subscribed = (group, subscribed_topics(group))
        return self._last_subscribed[1]

    def deletion(self, group_id: str) -> tuple[GroupRecord, ...]:
        """The records that delete a group without members. Raises ApiError."""
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        return (GroupRecord(group_id, None),)

    def deletion_if_empty(self, group_id: str) -> tuple[GroupRecord, ...]:
        """The records that delete a group; none if it has members or may get some."""
        group = self._groups[group_id]
        is_empty = group.state is GroupState.EMPTY and not group.pending_joins
        return (GroupRecord(group_id, None),) if is_empty else ()

    # Time

    def loaded(self, group_ids: Sequence[str], now_ms: int) -> Decision[Any, None]:
        """Call after all records were applied: from now on members of these groups must send heartbeats."""
        timers: dict[Any, Timer | None] = {}
        changes: list[Any] = []
        for group_id in group_ids:
            change = self._change(group_id, now_ms)
            for member in change.group.members.values():
                change.keep_alive(member.member_id, member.session_timeout_ms)
            if len(change.group.members) > self.limits.max_size:
                rebalance.rebalance(change)
            decision = change.decision(None)
            timers.update(decision.timers)
            changes += decision.changes
        return Decision((), None, timers, changes)

    def session_expired(self, group_id: str, member_id: str, now_ms: int) -> Decision[Any, None]:
        change = self._change(group_id, now_ms)
        membership.expire_session(change, member_id)
        return change.decision(None)

    def join_phase_expired(self, group_id: str, now_ms: int) -> Decision[Any, None]:
        change = self._change(group_id, now_ms)
        if change.group.state is GroupState.PREPARING_REBALANCE:
            rebalance.complete_join_phase(change)
        return change.decision(None)

    def initial_delay_over(
        self, group_id: str, delay_ms: int, left_ms: int, now_ms: int
    ) -> Decision[Any, None]:
        change = self._change(group_id, now_ms)
        if change.group.state is GroupState.PREPARING_REBALANCE:
            rebalance.extend_initial_delay(change, delay_ms, left_ms)
        return change.decision(None)

    def sync_phase_expired(self, group_id: str, generation: int, now_ms: int) -> Decision[Any, None]:
        change = self._change(group_id, now_ms)
        if change.group.generation == generation:
            membership.expire_syncs(change)
        return change.decision(None)

    def _change(self, group_id: str, now_ms: int) -> GroupChange:
        group = self._groups.get(group_id) or Group.new(group_id)
        return GroupChange(group, now_ms, self.limits, self)


_MAX_TOPICS: Final = 100_000
_CODEC: Final = Codec(message_of(ConsumerSubscription), 0, _MAX_TOPICS, whole=False)


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics of all members; None if these are not consumers, or the metadata of one is unreadable. Then
    they are unknown, never empty. Source: ConsumerProtocolSubscription.json."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            # Topics come first in every version.
            topics.update(_CODEC.decode(member.metadata(group.protocol)[2:]).topics)
        except ProtocolError:
            return None
    return frozenset(topics)
