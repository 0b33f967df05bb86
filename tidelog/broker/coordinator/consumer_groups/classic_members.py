"""Members of the classic protocol within a group of the consumer protocol: join, sync, heartbeat and leave.

Owns these rules. The generation of such a member is its epoch. It is answered at once: its target is computed
when it joins, and its assignment is what it has reached by then. When it must take a further step, its next
heartbeat is answered REBALANCE_IN_PROGRESS, and it joins again.

Invariant: a member that was asked to join again, or has joined, and does not continue within its rebalance
timeout, expires.

Pure. Source: Kafka's GroupMetadataManager (classicGroupJoinToConsumerGroup and so on), KIP-848.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tidelog.broker.coordinator.consumer_groups.consumer_protocol import read_subscription, written_assignment
from tidelog.broker.coordinator.consumer_groups.group import (
    ClassicMember,
    ConsumerGroup,
    MemberState,
    Subscription,
)
from tidelog.broker.coordinator.consumer_groups.heartbeats import check_static
from tidelog.broker.coordinator.consumer_groups.update import GroupUpdate, resync_timer
from tidelog.broker.coordinator.groups import messages
from tidelog.broker.coordinator.groups.group import CONSUMER_PROTOCOL_TYPE, NO_MEMBER_ID
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError


def join(update: GroupUpdate, request: messages.JoinRequest, free_bytes: int) -> messages.JoinAnswer:
    """`free_bytes`: how much more all groups together may hold. Raises ApiError."""
    group = update.group
    present_id = request.member_id or group.static_members.get(request.group_instance_id or "", NO_MEMBER_ID)
    present = group.members.get(present_id)
    if present is None and len(group.members) >= update.settings.max_size:
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
    _check_protocols(group, present_id, request)
    if request.member_id == NO_MEMBER_ID:
        if request.requires_known_member_id and request.group_instance_id is None:
            return messages.JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)
        member_id = request.new_member_id
    else:
        member_id = request.member_id
        if request.group_instance_id is not None:
            check_static(group, member_id, request.group_instance_id)
    try:
        said = read_subscription(request.protocols[0].metadata, update.topics)
    except ProtocolError as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None
    if present is not None and present_id != member_id:
        update.replace(present_id, member_id)
    has_changed = update.subscribe(member_id, said.stored(request))
    update.assign()
    if has_changed:
        update.check_memory(free_bytes)
    current = update.reconcile(member_id, said.owned)
    update.has_joined(member_id)
    update.keep_alive(member_id, request.session_timeout_ms)
    update.must_sync_in(member_id, request.rebalance_timeout_ms)
    return messages.JoinAnswer(
        ErrorCode.NONE, member_id, current.epoch, CONSUMER_PROTOCOL_TYPE, request.protocols[0].name
    )


def _check_protocols(group: ConsumerGroup, member_id: str, request: messages.JoinRequest) -> None:
    """Members of the classic protocol must have one of its protocols in common."""
    classic = [
        each.classic
        for other_id, each in group.members.items()
        if each.classic is not None and other_id != member_id
    ]
    known = Counter(name for each in classic for name in {known.name for known in each.protocols})
    names = {each.name for each in request.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not any(
        known[name] == len(classic) for name in names
    ):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[Subscription, ClassicMember]:
    """Raises ApiError unless this is a member of the classic protocol, in this generation."""
    if instance_id is not None:
        check_static(group, member_id, instance_id)
    subscription = group.members.get(member_id)
    if subscription is None or subscription.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation != group.current(member_id).epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    return subscription, subscription.classic


def sync(update: GroupUpdate, request: messages.SyncRequest) -> messages.SyncAnswer:
    """Raises ApiError."""
    group, member_id = update.group, request.member_id
    subscription, classic = _classic_member(group, member_id, request.group_instance_id, request.generation)
    current = group.current(member_id)
    # A member that has yet to revoke has joined already: it joins again once it has.
    if group.epoch > current.epoch and current.state is not MemberState.UNREVOKED_PARTITIONS:
        update.must_join_in(member_id, subscription.rebalance_timeout_ms)
        return messages.SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
    protocol = classic.protocols[0]
    if (request.protocol_type or CONSUMER_PROTOCOL_TYPE) != CONSUMER_PROTOCOL_TYPE or (
        request.protocol or protocol.name
    ) != protocol.name:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    update.end_timer(resync_timer, member_id)
    update.keep_alive(member_id, classic.session_timeout_ms)
    version = read_subscription(protocol.metadata, update.topics).version
    assignment = written_assignment(current.assigned, version, update.topics)
    return messages.SyncAnswer(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, protocol.name, assignment)


def heartbeat(update: GroupUpdate, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Raises ApiError."""
    group = update.group
    subscription, classic = _classic_member(group, member_id, instance_id, generation)
    update.keep_alive(member_id, classic.session_timeout_ms)
    if not _must_join(group, member_id):
        return ErrorCode.NONE
    update.must_join_in(member_id, subscription.rebalance_timeout_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _must_join(group: ConsumerGroup, member_id: str) -> bool:
    """Whether the member can take a further step by joining again."""
    current = group.current(member_id)
    if current.epoch < group.epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if current.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    return not any(
        group.is_owned(topic_id, partition)
        for topic_id, partitions in group.target(member_id).items()
        for partition in partitions - current.assigned.get(topic_id, frozenset())
    )


def leave(update: GroupUpdate, leaving: Sequence[messages.MemberIdentity]) -> list[ErrorCode]:
    """An error code for each leaving member, in their order. The epoch rises once for all of them."""
    codes = []
    gone: list[str] = []
    for identity in leaving:
        member_id, code = _leaving(update.group, identity)
        if code is ErrorCode.NONE and member_id in gone:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code is ErrorCode.NONE:
            gone.append(member_id)
        codes.append(code)
    if gone:
        update.remove(gone)
    return codes


def _leaving(group: ConsumerGroup, identity: messages.MemberIdentity) -> tuple[str, ErrorCode]:
    """Operators name a static member by its instance id alone."""
    member_id: Any = identity.member_id
    if identity.group_instance_id is not None:
        owner = group.static_members.get(identity.group_instance_id, NO_MEMBER_ID)
        if owner and member_id not in (NO_MEMBER_ID, owner):
            return member_id, ErrorCode.FENCED_INSTANCE_ID
        member_id = owner
    subscription = group.members.get(member_id)
    if subscription is None or subscription.classic is None:
        return member_id, ErrorCode.UNKNOWN_MEMBER_ID
    return member_id, ErrorCode.NONE
