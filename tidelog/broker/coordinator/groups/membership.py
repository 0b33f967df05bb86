"""Operations of a group's members between two joins: sync, heartbeat, commit, leave, and expiry.

Invariants: a request with an old generation, or for an unknown member, is refused and changes nothing; every
request of a member postpones its expiry; an assignment is sent to no member before it is written.

Pure. Source: Kafka's GroupMetadataManager and ClassicGroup.validateOffsetCommit, KIP-345, KIP-559.
"""

from collections.abc import Sequence
from typing import Any

from tidelog.broker.coordinator.decision import Decision, Parked
from tidelog.broker.coordinator.groups import rebalance
from tidelog.broker.coordinator.groups.group import NO_GENERATION, NO_MEMBER_ID, Group, Member
from tidelog.broker.coordinator.groups.joining import check_member
from tidelog.broker.coordinator.groups.messages import MemberIdentity, SyncAnswer, SyncRequest
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.protocol.errors import ErrorCode


def sync(change: rebalance.GroupChange, request: SyncRequest, free_bytes: int) -> Decision[Any, SyncAnswer]:
    """The assignment of a member; the leader sends those of all, and the others wait for it.

    Assignments of more than `free_bytes` are refused.
    """
    group = change.group
    code = _sync_refusal(group, request)
    if code is not None:
        return change.decision(SyncAnswer(code))
    member = group.members[request.member_id]
    change.keep_alive(member.member_id, member.session_timeout_ms)
    change.group = group._replace(pending_syncs=group.pending_syncs - {member.member_id})
    if not change.group.pending_syncs:
        change.end_timer(rebalance.sync_phase_timer(group.group_id))
    if group.state is GroupState.STABLE:
        return change.decision(_assigned(group, member))
    rebalance.release_waiting(change, member, ErrorCode.REBALANCE_IN_PROGRESS)
    if group.leader == member.member_id:
        return change.decision(_assign(change, request, free_bytes))
    change.group = change.group.with_member(member._replace(awaits_sync=True))
    return change.decision(Parked(rebalance.sync_key(group.group_id, member.member_id)))


def _sync_refusal(group: Group, request: SyncRequest) -> ErrorCode | None:
    code = _refusal(group, request.member_id, request.group_instance_id, request.generation)
    if code is not None:
        return code
    if (request.protocol_type or group.protocol_type) != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    if (request.protocol or group.protocol) != group.protocol:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return None


def _refusal(group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode | None:
    """The error if this is not a member of this generation."""
    if not group.group_id:
        return ErrorCode.INVALID_GROUP_ID
    code = check_member(group, member_id, instance_id)
    if code is not None:
        return code
    return None if generation == group.generation else ErrorCode.ILLEGAL_GENERATION


def _assigned(group: Group, member: Member) -> SyncAnswer:
    return SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)


def _assign(change: rebalance.GroupChange, request: SyncRequest, free_bytes: int) -> SyncAnswer:
    """Apply the leader's assignment: a member that is not in it gets an empty one.

    If it is too large, all members get the error and must join again, as where Kafka cannot store it.
    """
    before = change.group
    group = before.moved_to(GroupState.STABLE, change.now_ms).with_members(
        {
            key: member._replace(awaits_sync=False, assignment=request.assignments.get(key, b""))
            for key, member in before.members.items()
        }
    )
    if group.held_bytes - before.held_bytes > free_bytes:
        rebalance.end_syncs(change, ErrorCode.GROUP_MAX_SIZE_REACHED)
        rebalance.rebalance(change)
        return SyncAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED)
    change.group = group
    change.is_recorded = True
    for member in before.members.values():
        if member.awaits_sync and member.member_id != request.member_id:
            answer = _assigned(group, group.members[member.member_id])
            change.release(rebalance.sync_key(group.group_id, member.member_id), answer)
            change.keep_alive(member.member_id, member.session_timeout_ms)
    return _assigned(group, group.members[request.member_id])


def heartbeat(
    change: rebalance.GroupChange, member_id: str, instance_id: str | None, generation: int
) -> Decision[Any, ErrorCode]:
    group = change.group
    code = _refusal(group, member_id, instance_id, generation)
    if code is not None:
        return change.decision(code)
    change.keep_alive(member_id, group.members[member_id].session_timeout_ms)
    is_over = group.state is GroupState.PREPARING_REBALANCE
    return change.decision(ErrorCode.REBALANCE_IN_PROGRESS if is_over else ErrorCode.NONE)


def commit_refusal(
    change: rebalance.GroupChange, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode | None:
    """The error if these offsets may not be committed. An allowed commit of a member keeps it alive."""
    group = change.group
    if generation <= NO_GENERATION and group.state is GroupState.EMPTY:
        return None
    if generation <= NO_GENERATION and member_id == NO_MEMBER_ID and instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = check_member(group, member_id, instance_id)
    if code is None and generation != group.generation:
        code = ErrorCode.ILLEGAL_GENERATION
    if code is None and group.state is GroupState.COMPLETING_REBALANCE:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    if code is None:
        change.keep_alive(member_id, group.members[member_id].session_timeout_ms)
    return code


def leave(change: rebalance.GroupChange, leaving: Sequence[MemberIdentity]) -> Decision[Any, list[ErrorCode]]:
    """Remove all of them, then rebalance once."""
    group = change.group
    if not group.group_id:
        return change.decision([ErrorCode.INVALID_GROUP_ID for _ in leaving])
    codes = []
    gone: set[str] = set()
    for identity in leaving:
        member_id = _leaving_id(group, identity)
        if member_id in change.group.pending_joins and identity.group_instance_id is None:
            code = None
            change.group = change.group.without_pending_join(member_id)
            change.end_timer(rebalance.session_timer(group.group_id, member_id))
        elif member_id in gone:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            code = check_member(group, member_id, identity.group_instance_id)
            if code is None:
                gone.add(member_id)
        codes.append(ErrorCode.NONE if code is None else code)
    if gone:
        rebalance.remove(change, frozenset(gone), ErrorCode.UNKNOWN_MEMBER_ID)
    elif change.group.state is GroupState.PREPARING_REBALANCE:
        rebalance.rebalance(change)
    return change.decision(codes)


def _leaving_id(group: Group, identity: MemberIdentity) -> str:
    """Operators name a static member by its instance id alone."""
    if identity.member_id == NO_MEMBER_ID and identity.group_instance_id is not None:
        return group.static_members.get(identity.group_instance_id, NO_MEMBER_ID)
    return identity.member_id


def expire_session(change: rebalance.GroupChange, member_id: str) -> None:
    """A member sent nothing for its session timeout."""
    group = change.group
    if member_id in group.pending_joins:
        change.group = group.without_pending_join(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            rebalance.rebalance(change)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    if (member.awaits_join or member.awaits_sync) and not member.is_new:
        return  # Its answer will set a new timer.
    rebalance.remove(change, frozenset((member_id,)), ErrorCode.UNKNOWN_MEMBER_ID)


def expire_syncs(change: rebalance.GroupChange) -> None:
    """Some members of this generation did not ask for their assignment in time: continue without them."""
    group = change.group
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) and group.pending_syncs:
        rebalance.remove(change, group.pending_syncs, ErrorCode.UNKNOWN_MEMBER_ID)
