"""JoinGroup on one group: which members may join, under which id, and whether the group must rebalance.

Owns the rules of joining. Invariants: a member that joins is parked until its generation begins, or is
answered at once if nothing changes for it; a second join of a member replaces its first, which is answered
REBALANCE_IN_PROGRESS; an instance id belongs to one member, and the newest owner fences the previous one.

Pure. Source: Kafka's GroupMetadataManager.classicGroupJoin*, KIP-345, KIP-394, KIP-814.
"""

from typing import Any

from tidelog.broker.coordinator.decision import Decision, Parked
from tidelog.broker.coordinator.groups import rebalance
from tidelog.broker.coordinator.groups.group import NO_MEMBER_ID, Group, Member
from tidelog.broker.coordinator.groups.messages import GroupLimits, JoinAnswer, JoinRequest, SyncAnswer
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.protocol.errors import ErrorCode

MAX_METADATA_BYTES = 1 << 20
"""Bound for all protocols of one member. A group's record must hold the metadata of every member."""
MAX_PROTOCOLS = 1_000


def refusal(request: JoinRequest, limits: GroupLimits) -> ErrorCode | None:
    """The error of a join that is wrong in every state of its group."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    size_bytes = sum(len(known.name) + len(known.metadata) for known in request.protocols)
    if len(request.protocols) > MAX_PROTOCOLS or size_bytes > MAX_METADATA_BYTES:
        return ErrorCode.INVALID_REQUEST
    return None


def join(change: rebalance.GroupChange, request: JoinRequest, free_bytes: int) -> Decision[Any, JoinAnswer]:
    """`free_bytes`: how much more all groups together may hold."""
    if not _has_place(change.group, request, change.limits, free_bytes):
        if request.member_id in change.group.members:
            rebalance.remove(change, frozenset((request.member_id,)), ErrorCode.GROUP_MAX_SIZE_REACHED)
        return change.decision(JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID))
    code = _state_refusal(change.group, request)
    if code is not None:
        return change.decision(JoinAnswer(code, request.member_id))
    return change.decision(
        _join_new(change, request) if request.member_id == NO_MEMBER_ID else _rejoin(change, request)
    )


def _has_place(group: Group, request: JoinRequest, limits: GroupLimits, free_bytes: int) -> bool:
    """Of members that were asked to join again, only those that have joined again count."""
    static_id = group.static_members.get(request.group_instance_id or "", NO_MEMBER_ID)
    present = group.members.get(request.member_id or static_id)
    if _member(request, request.member_id).held_bytes - (present.held_bytes if present else 0) > free_bytes:
        return False
    if group.state is GroupState.PREPARING_REBALANCE:
        size = sum(member.awaits_join for member in group.members.values())
        return size < limits.max_size or (present is not None and present.awaits_join)
    return len(group.members) < limits.max_size or present is not None


def _state_refusal(group: Group, request: JoinRequest) -> ErrorCode | None:
    if not group.supports(request.protocol_type, frozenset(known.name for known in request.protocols)):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    is_pending = request.member_id in group.pending_joins and request.group_instance_id is None
    if request.member_id == NO_MEMBER_ID or is_pending:
        return None
    return check_member(group, request.member_id, request.group_instance_id)


def check_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode | None:
    """The error if this is not a member of the group."""
    if instance_id is not None:
        owner = group.static_members.get(instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return None if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _join_new(change: rebalance.GroupChange, request: JoinRequest) -> JoinAnswer | SyncAnswer | Parked:
    instance_id = request.group_instance_id
    if instance_id is not None and instance_id in change.group.static_members:
        return _take_over(change, change.group.members[change.group.static_members[instance_id]], request)
    if instance_id is None and request.requires_known_member_id:
        change.group = change.group.with_pending_join(request.new_member_id)
        change.keep_alive(request.new_member_id, request.session_timeout_ms)
        return JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)
    return _add(change, request, request.new_member_id)


def _add(
    change: rebalance.GroupChange, request: JoinRequest, member_id: str
) -> JoinAnswer | SyncAnswer | Parked:
    group = change.group
    member = _member(request, member_id)._replace(is_new=True)
    is_first = not group.members
    change.group = group.with_member(member)._replace(
        protocol_type=request.protocol_type if is_first else group.protocol_type,
        has_new_members=group.has_new_members or group.is_initial,
    )
    # It does not know its id yet, so it cannot send heartbeats; it may also have disconnected meanwhile.
    change.keep_alive(member_id, rebalance.NEW_MEMBER_JOIN_TIMEOUT_MS)
    return _await_generation(change, member_id)


def _await_generation(change: rebalance.GroupChange, member_id: str) -> JoinAnswer | SyncAnswer | Parked:
    change.parks(rebalance.join_key(change.group.group_id, member_id))
    rebalance.rebalance(change)
    return change.answer()


def _member(request: JoinRequest, member_id: str) -> Member:
    return Member(
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.protocols,
        awaits_join=True,
    )


def _take_over(
    change: rebalance.GroupChange, present: Member, request: JoinRequest
) -> JoinAnswer | SyncAnswer | Parked:
    """A static member joined again without its id: it gets a new one, and the old one is fenced."""
    group = change.group
    new_id = request.new_member_id
    rebalance.release_waiting(change, present, ErrorCode.FENCED_INSTANCE_ID)
    change.end_timer(rebalance.session_timer(group.group_id, present.member_id))
    member = _member(request, new_id)._replace(is_new=present.is_new, assignment=present.assignment)
    was_leader = group.leader == present.member_id
    group = group.without_members(frozenset((present.member_id,))).with_member(member)
    group = change.group = group._replace(leader=new_id) if was_leader else group
    change.keep_alive(new_id, request.session_timeout_ms)
    if group.state is GroupState.STABLE and group.chosen_protocol() == group.protocol:
        member = member._replace(awaits_join=False)
        change.group = group.with_member(member)
        change.is_recorded = True
        return _answer_without_rebalance(change.group, member, present.member_id, request)
    return _await_generation(change, new_id)


def _answer_without_rebalance(group: Group, member: Member, old_id: str, request: JoinRequest) -> JoinAnswer:
    """The group does not change, so no member has to assign.

    A leader that does not support that is answered that its old id leads.
    """
    answer = rebalance.joined_answer(group, member)
    if group.leader != member.member_id:
        return answer
    if request.can_skip_assignment:
        return answer._replace(skip_assignment=True, members=rebalance.joined_members(group))
    return answer._replace(leader=old_id, members=())


def _rejoin(change: rebalance.GroupChange, request: JoinRequest) -> JoinAnswer | SyncAnswer | Parked:
    group = change.group
    if request.member_id in group.pending_joins:
        return _add(change, request, request.member_id)
    member = group.members[request.member_id]
    is_same = member.protocols == request.protocols
    is_leader = group.leader == member.member_id
    if is_same and (
        group.state is GroupState.COMPLETING_REBALANCE or (group.state is GroupState.STABLE and not is_leader)
    ):
        # It may have missed the answer to its last join.
        change.keep_alive(member.member_id, member.session_timeout_ms)
        return rebalance.joined_answer(group, member)
    rebalance.release_waiting(change, member, ErrorCode.REBALANCE_IN_PROGRESS)
    change.group = group.with_member(
        member._replace(
            protocols=request.protocols,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            awaits_join=True,
            awaits_sync=False,
        )
    )
    return _await_generation(change, member.member_id)
