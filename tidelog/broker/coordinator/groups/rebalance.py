"""The rebalance of one group: from the first member that must join again to a generation with assignments.

Owns `GroupChange`, one operation on one group while it is decided, and the steps of a rebalance: preparing
it, ending its join phase, ending its sync phase. Invariants:
- a parked response is released exactly when its member stops waiting;
- a member that waits does not expire for lack of heartbeats;
- a rebalance ends, whichever members send nothing more: join phase and sync phase by the rebalance timeout.

Pure. Source: Kafka's GroupMetadataManager, KIP-62 (rebalance timeout), KIP-134 (initial delay).
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple, Protocol

from tidelog.broker.coordinator.decision import Decision, Parked, Timer
from tidelog.broker.coordinator.groups import messages
from tidelog.broker.coordinator.groups.group import NO_MEMBER_ID, Group, Member
from tidelog.broker.coordinator.groups.records import GroupRecord
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.protocol.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a member may wait in its first join: it cannot send heartbeats, and may have disconnected."""


class GroupChanged(NamedTuple):
    """The change of a Decision: the new state of the group, or None if it is removed."""

    group_id: str
    group: Group | None


class Expiries(Protocol):
    """The operations that run when a timer of a group expires."""

    def session_expired(self, group_id: str, member_id: str, now_ms: int) -> Decision[Any, None]: ...

    def join_phase_expired(self, group_id: str, now_ms: int) -> Decision[Any, None]: ...

    def initial_delay_over(
        self, group_id: str, delay_ms: int, left_ms: int, now_ms: int
    ) -> Decision[Any, None]: ...

    def sync_phase_expired(self, group_id: str, generation: int, now_ms: int) -> Decision[Any, None]: ...


def join_key(group_id: str, member_id: str) -> Hashable:
    """The key under which the answer to a JoinGroup is parked."""
    return ("join", group_id, member_id)


def sync_key(group_id: str, member_id: str) -> Hashable:
    """The key under which the answer to a SyncGroup is parked."""
    return ("sync", group_id, member_id)


def session_timer(group_id: str, member_id: str) -> Hashable:
    return ("session", group_id, member_id)


def join_phase_timer(group_id: str) -> Hashable:
    return ("join phase", group_id)


def sync_phase_timer(group_id: str) -> Hashable:
    return ("sync phase", group_id)


class GroupChange:
    """The effect of one operation on a group. The steps below replace `group` and add to the rest."""

    def __init__(self, group: Group, now_ms: int, limits: messages.GroupLimits, expiries: Expiries) -> None:
        self.group = group
        self.now_ms = now_ms
        self.limits = limits
        self.is_recorded = False
        self._before = group
        self._expiries = expiries
        self._asked: Hashable = None
        self._answer: messages.JoinAnswer | messages.SyncAnswer | None = None
        self._released: dict[Hashable, Any] = {}
        self._timers: dict[Hashable, Timer | None] = {}

    def decision(self, response: Any) -> Decision[Any, Any]:
        """The Decision with this response, or with the key under which it is parked."""
        group = None if self.group.is_forgettable else self.group
        return Decision(
            (GroupRecord(self.group.group_id, self.group),) if self.is_recorded else (),
            response,
            self._timers,
            (GroupChanged(self.group.group_id, group),) if group is not self._before else (),
            self._released,
        )

    def parks(self, key: Hashable) -> None:
        """From now on, a release under this key answers this operation itself."""
        self._asked = key

    def answer(self) -> messages.JoinAnswer | messages.SyncAnswer | Parked:
        """The answer of an operation that parks: the response if its key was released, else Parked."""
        return Parked(self._asked) if self._answer is None else self._answer

    def release(self, key: Hashable, answer: messages.JoinAnswer | messages.SyncAnswer) -> None:
        if key == self._asked:
            self._answer = answer
        else:
            self._released[key] = answer

    def end_timer(self, key: Hashable) -> None:
        self._timers[key] = None

    def keep_alive(self, member_id: str, timeout_ms: int) -> None:
        """The member expires when it sends nothing for `timeout_ms`."""
        self._set_timer(
            session_timer(self.group.group_id, member_id),
            timeout_ms,
            partial(self._expiries.session_expired, self.group.group_id, member_id),
        )

    def end_join_phase_in(self, timeout_ms: int) -> None:
        self._set_timer(
            join_phase_timer(self.group.group_id),
            timeout_ms,
            partial(self._expiries.join_phase_expired, self.group.group_id),
        )

    def look_for_more_members_in(self, delay_ms: int, left_ms: int) -> None:
        """`left_ms`: how much longer the group may wait after that delay."""
        self._set_timer(
            join_phase_timer(self.group.group_id),
            delay_ms,
            partial(self._expiries.initial_delay_over, self.group.group_id, delay_ms, left_ms),
        )

    def end_sync_phase_in(self, timeout_ms: int) -> None:
        self._set_timer(
            sync_phase_timer(self.group.group_id),
            timeout_ms,
            partial(self._expiries.sync_phase_expired, self.group.group_id, self.group.generation),
        )

    def _set_timer(
        self, key: Hashable, timeout_ms: int, operation: Callable[[int], Decision[Any, None]]
    ) -> None:
        self._timers[key] = Timer(self.now_ms + timeout_ms, operation)


def rebalance(change: GroupChange) -> None:
    """Members or their protocols have changed: begin a rebalance, or continue the present one."""
    if change.group.state is not GroupState.PREPARING_REBALANCE:
        _prepare(change)
    elif not change.group.is_initial and change.group.has_all_joined:
        complete_join_phase(change)


def _prepare(change: GroupChange) -> None:
    group = change.group
    if group.state is GroupState.COMPLETING_REBALANCE:
        end_syncs(change, ErrorCode.REBALANCE_IN_PROGRESS)
    change.end_timer(sync_phase_timer(group.group_id))
    is_initial = group.state is GroupState.EMPTY
    change.group = change.group.moved_to(GroupState.PREPARING_REBALANCE, change.now_ms)._replace(
        is_initial=is_initial, has_new_members=False, pending_syncs=frozenset()
    )
    if is_initial:
        delay_ms = change.limits.initial_rebalance_delay_ms
        change.look_for_more_members_in(delay_ms, max(change.group.rebalance_timeout_ms - delay_ms, 0))
    elif change.group.has_all_joined:
        complete_join_phase(change)
    else:
        change.end_join_phase_in(change.group.rebalance_timeout_ms)


def extend_initial_delay(change: GroupChange, delay_ms: int, left_ms: int) -> None:
    """The initial delay is over: begin another one if a member joined meanwhile, else the generation."""
    if change.group.has_new_members and left_ms:
        change.group = change.group._replace(has_new_members=False)
        next_delay_ms = min(change.limits.initial_rebalance_delay_ms, left_ms)
        change.look_for_more_members_in(next_delay_ms, max(left_ms - delay_ms, 0))
    else:
        complete_join_phase(change)


def complete_join_phase(change: GroupChange) -> None:
    """Begin the next generation with the members that joined, and with all static members."""
    group = change.group
    late = frozenset(
        member.member_id
        for member in group.members.values()
        if not member.awaits_join and member.group_instance_id is None
    )
    for member_id in late:
        change.end_timer(session_timer(group.group_id, member_id))
    group = change.group = group.without_members(late) if late else group
    if not group.members:
        change.end_timer(join_phase_timer(group.group_id))
        _become_empty(change)
        return
    joined = next((member for member in group.members.values() if member.awaits_join), None)
    if joined is None:
        # Only static members are left, and none joined again: wait until they do or their sessions expire.
        change.end_join_phase_in(group.rebalance_timeout_ms)
        return
    change.end_timer(join_phase_timer(group.group_id))
    leader = group.members.get(group.leader or NO_MEMBER_ID)
    if leader is None or not leader.awaits_join:
        change.group = group._replace(leader=joined.member_id)
    _begin_generation(change)


def _become_empty(change: GroupChange) -> None:
    group = change.group.moved_to(GroupState.EMPTY, change.now_ms)
    change.group = group._replace(
        generation=_next_generation(group),
        protocol=None,
        leader=None,
        is_initial=False,
        has_new_members=False,
    )
    change.is_recorded = True


def _begin_generation(change: GroupChange) -> None:
    group = change.group.moved_to(GroupState.COMPLETING_REBALANCE, change.now_ms)
    waiting = [member for member in group.members.values() if member.awaits_join]
    group = group._replace(
        generation=_next_generation(group),
        protocol=group.chosen_protocol(),
        pending_syncs=frozenset(group.members),
        is_initial=False,
        has_new_members=False,
    )
    change.group = group.with_members(
        {
            key: member._replace(is_new=False, awaits_join=False, assignment=b"")
            for key, member in group.members.items()
        }
    )
    for member in waiting:
        change.release(join_key(group.group_id, member.member_id), joined_answer(change.group, member))
    for member in group.members.values():
        change.keep_alive(member.member_id, member.session_timeout_ms)
    change.end_sync_phase_in(group.rebalance_timeout_ms)


def _next_generation(group: Group) -> int:
    """After 2147483647 it begins again at the first one: a group has only one generation at a time."""
    return group.generation % (2**31 - 1) + 1


def joined_answer(group: Group, member: Member) -> messages.JoinAnswer:
    """The answer to a member of this generation; the leader gets all members."""
    is_leader = member.member_id == group.leader
    return messages.JoinAnswer(
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or NO_MEMBER_ID,
        members=joined_members(group) if is_leader else (),
    )


def joined_members(group: Group) -> list[messages.JoinedMember]:
    return [
        messages.JoinedMember(member.member_id, member.group_instance_id, member.metadata(group.protocol))
        for member in group.members.values()
    ]


def end_syncs(change: GroupChange, code: ErrorCode) -> None:
    """No member gets an assignment of this generation from now on."""
    group = change.group
    for member in group.members.values():
        if member.awaits_sync:
            change.release(sync_key(group.group_id, member.member_id), messages.SyncAnswer(code))
            change.keep_alive(member.member_id, member.session_timeout_ms)
    change.group = group.with_members(
        {key: member._replace(awaits_sync=False, assignment=b"") for key, member in group.members.items()}
    )


def remove(change: GroupChange, member_ids: frozenset[str], code: ErrorCode) -> None:
    """Remove these members. Requests that they wait for are answered with `code`."""
    group = change.group
    for member_id in member_ids:
        release_waiting(change, group.members[member_id], code)
        change.end_timer(session_timer(group.group_id, member_id))
    change.group = group.without_members(member_ids)
    rebalance(change)


def release_waiting(change: GroupChange, member: Member, code: ErrorCode) -> None:
    """Answer the requests that the member waits for."""
    group_id = change.group.group_id
    if member.awaits_join:
        change.release(join_key(group_id, member.member_id), messages.JoinAnswer(code, NO_MEMBER_ID))
    if member.awaits_sync:
        change.release(sync_key(group_id, member.member_id), messages.SyncAnswer(code))


def give_up(change: GroupChange) -> None:
    """Another protocol continues the group: end its timers, and let waiting members join again."""
    group = change.group
    for member_id, member in group.members.items():
        release_waiting(change, member, ErrorCode.REBALANCE_IN_PROGRESS)
        change.end_timer(session_timer(group.group_id, member_id))
    for member_id in group.pending_joins:
        change.end_timer(session_timer(group.group_id, member_id))
    change.end_timer(join_phase_timer(group.group_id))
    change.end_timer(sync_phase_timer(group.group_id))
