"""ConsumerGroupHeartbeat on one group: members join, report, receive their assignments, and leave.

Owns these rules. Invariants:
- a request that is refused changes nothing;
- a member that sends another epoch than its own is fenced, but it may repeat its last request if it did not
  get the answer, and join again at any time (KAFKA-19233): it owns no partition then, so those that it was to
  revoke are free;
- an instance id belongs to one member. Another member gets it only after its owner left for a while (-2).

Pure. Source: Kafka's GroupMetadataManager.consumerGroupHeartbeat, KIP-848.
"""

from collections.abc import Sequence
from typing import Any

from tidelog.broker.coordinator.consumer_groups.group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEFT_FOR_A_WHILE_EPOCH,
    ConsumerGroup,
    Current,
    Subscription,
)
from tidelog.broker.coordinator.consumer_groups.messages import HeartbeatAnswer, MemberHeartbeat
from tidelog.broker.coordinator.consumer_groups.records import CurrentRecord
from tidelog.broker.coordinator.consumer_groups.update import GroupUpdate, is_subset, resync_timer
from tidelog.protocol.errors import ApiError, ErrorCode

MAX_TOPIC_NAMES = 5_000
"""Bound for one member, and so for the work of a request."""
_NO_TIMEOUT = -1


def check_request(request: MemberHeartbeat, assignors: Sequence[str]) -> None:
    """Raise ApiError for a request that is wrong in every state of its group."""
    for name, text in (
        ("group id", request.group_id),
        ("member id", request.member_id),
        ("instance id", request.instance_id),
        ("rack id", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise ApiError(ErrorCode.INVALID_REQUEST, f"expected a {name}, got an empty one")
    if request.member_epoch < LEFT_FOR_A_WHILE_EPOCH:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"expected an epoch from -2, got {request.member_epoch}")
    if request.member_epoch == LEFT_FOR_A_WHILE_EPOCH and request.instance_id is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "epoch -2 is for static members: expected an instance id")
    if request.member_epoch == JOINING_EPOCH:
        _check_join(request)
    if request.topic_names is not None and len(request.topic_names) > MAX_TOPIC_NAMES:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"expected at most {MAX_TOPIC_NAMES} topic names, got {len(request.topic_names)}: use a "
            "regular expression",
        )
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"expected one of the assignors {', '.join(assignors)}, got {request.server_assignor}",
        )


def _check_join(request: MemberHeartbeat) -> None:
    if request.rebalance_timeout_ms == _NO_TIMEOUT:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a member that joins must send its rebalance timeout")
    if request.owned is None or request.owned:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a member that joins must own no partitions")
    if request.topic_names is None and request.topic_regex is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "a member that joins must send topics or a regular expression"
        )


def heartbeat(update: GroupUpdate, request: MemberHeartbeat, free_bytes: int) -> HeartbeatAnswer:
    """`free_bytes`: how much more all groups together may hold. Raises ApiError."""
    member_id = request.member_id
    before = _joined(update, request)
    wanted = _subscription(update.group.members.get(member_id) or Subscription(), request)
    has_changed = update.subscribe(member_id, wanted, request.regex)
    update.assign()
    if has_changed:
        update.check_memory(free_bytes)
    current = update.reconcile(member_id, request.owned)
    settings = update.settings
    update.keep_alive(member_id, settings.session_timeout_ms)
    is_full = request.member_epoch == JOINING_EPOCH or (
        request.rebalance_timeout_ms != _NO_TIMEOUT
        and request.topic_names is not None
        and request.owned is not None
    )
    is_told = is_full or current.assigned != before.assigned
    return HeartbeatAnswer(
        member_id, current.epoch, settings.heartbeat_interval_ms, current.assigned if is_told else None
    )


def _joined(update: GroupUpdate, request: MemberHeartbeat) -> Current:
    """Where the member is. It may join if its epoch allows it. Raises ApiError."""
    group = update.group
    is_joining = request.member_epoch == JOINING_EPOCH
    owner = None if request.instance_id is None else group.static_members.get(request.instance_id)
    if request.instance_id is not None and not is_joining:
        check_static(group, request.member_id, request.instance_id)
    if is_joining and owner is not None and owner != request.member_id:
        return _take_over(update, owner, request)
    if request.member_id not in group.members:
        if not is_joining:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {request.member_id}")
        if len(group.members) >= update.settings.max_size:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the group has {len(group.members)} members, as many as group.consumer.max.size allows",
            )
        return Current()
    current = group.current(request.member_id)
    if not is_joining:
        _check_epoch(request, current)
    elif group.members[request.member_id].classic is not None:
        update.has_joined(request.member_id)
        update.end_timer(resync_timer, request.member_id)
    return current


def check_static(group: ConsumerGroup, member_id: str, instance_id: str) -> None:
    """Raise ApiError unless the instance id belongs to this member."""
    owner = group.static_members.get(instance_id)
    if owner is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member of instance id {instance_id}")
    if owner != member_id:
        raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"instance id {instance_id} belongs to member {owner}")


def _take_over(update: GroupUpdate, owner: str, request: MemberHeartbeat) -> Current:
    """Take the place of the static member that had this instance id."""
    is_consumer = update.group.members[owner].classic is None
    if is_consumer and update.group.current(owner).epoch != LEFT_FOR_A_WHILE_EPOCH:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"instance id {request.instance_id} belongs to member {owner}, which has not left: stop it, or "
            "wait until its session expires",
        )
    update.replace(owner, request.member_id)
    return Current()


def _check_epoch(request: MemberHeartbeat, current: Current) -> None:
    """A member that did not get the last answer may repeat its request."""
    if request.member_epoch == current.epoch:
        return
    is_repeated = request.member_epoch == current.previous_epoch
    if is_repeated and is_subset(request.owned, current.assigned):
        return
    raise fenced(current, request.member_epoch)


def fenced(current: Current, member_epoch: int) -> ApiError:
    return ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"expected member epoch {current.epoch}, got {member_epoch}: the member must give up all its "
        "partitions and join again",
    )


def _subscription(present: Subscription, request: MemberHeartbeat) -> Subscription:
    """The member as it reports itself now. What it leaves out stays; it uses the consumer protocol now."""

    def latest(new: Any, old: Any) -> Any:
        return old if new is None else new

    timeout_ms = request.rebalance_timeout_ms
    names = request.topic_names
    return Subscription(
        latest(request.instance_id, present.instance_id),
        latest(request.rack_id, present.rack_id),
        request.client_id,
        request.client_host,
        present.topic_names if names is None else tuple(sorted(set(names))),
        latest(request.topic_regex, present.topic_regex) or None,
        present.rebalance_timeout_ms if timeout_ms == _NO_TIMEOUT else timeout_ms,
        latest(request.server_assignor, present.server_assignor),
    )


def leave(update: GroupUpdate, request: MemberHeartbeat) -> HeartbeatAnswer:
    """A static member may leave for a while (-2): it keeps its place until its session expires."""
    group, member_id = update.group, request.member_id
    check_leave(group, request)
    if request.member_epoch == LEAVING_EPOCH:
        update.remove((member_id,))
    else:
        left = group.current(member_id)._replace(epoch=LEFT_FOR_A_WHILE_EPOCH, revoking={})
        update.write(CurrentRecord(group.group_id, member_id, left))
    return HeartbeatAnswer(member_id, request.member_epoch, 0)


def check_leave(group: ConsumerGroup, request: MemberHeartbeat) -> None:
    """Raise ApiError unless this is a member."""
    if request.instance_id is not None:
        check_static(group, request.member_id, request.instance_id)
    elif request.member_id not in group.members:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {request.member_id}")
