"""The next step of one member from what it owns to its target assignment.

Owns the rule: first a member revokes what is not in its target, then its epoch becomes that of the target,
then it gets the partitions that no other member owns any more. So no partition has two owners at a time.

Pure. Source: KIP-848 (reconciliation process), Kafka's CurrentAssignmentBuilder.
"""

from collections.abc import Callable
from uuid import UUID

from tidelog.broker.coordinator.consumer_groups.group import Assignment, Current, MemberState
from tidelog.protocol.errors import ApiError, ErrorCode

IsOwned = Callable[[UUID, int], bool]
"""Whether a member of the group owns this partition of the topic."""


def reconciled(
    current: Current, target_epoch: int, target: Assignment, owned: Assignment | None, is_owned: IsOwned
) -> Current:
    """`owned`: the partitions that the member reports; None if it reported none.

    Raises ApiError(FENCED_MEMBER_EPOCH) for a member in an unknown state that owns partitions.
    """
    if current.is_reconciled_to(target_epoch):
        return current
    match current.state:
        case MemberState.UNREVOKED_PARTITIONS if _owns_any(owned, current.revoking):
            return current
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise ApiError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "the member is in a state that this broker does not know: it must give up all its "
                    "partitions and join again",
                )
            epoch = target_epoch
        case _:
            epoch = current.epoch
    return _next(current, epoch, target_epoch, target, owned, is_owned)


def _next(
    current: Current,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_owned: IsOwned,
) -> Current:
    kept = _each_topic(current.assigned, lambda topic_id, held: held & target.get(topic_id, frozenset()))
    revoking = _each_topic(current.assigned, lambda topic_id, held: held - target.get(topic_id, frozenset()))
    if revoking and _owns_any(owned, revoking):
        return Current(epoch, current.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    missing = _each_topic(target, lambda topic_id, wanted: wanted - kept.get(topic_id, frozenset()))
    free = _each_topic(
        missing, lambda topic_id, wanted: frozenset(each for each in wanted if not is_owned(topic_id, each))
    )
    state = MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS
    assigned = {
        topic_id: kept.get(topic_id, frozenset()) | free.get(topic_id, frozenset())
        for topic_id in (*kept, *(each for each in free if each not in kept))
    }
    return Current(target_epoch, current.epoch, state, assigned, {})


def _each_topic(
    assignment: Assignment, change: Callable[[UUID, frozenset[int]], frozenset[int]]
) -> Assignment:
    changed = ((topic_id, change(topic_id, partitions)) for topic_id, partitions in assignment.items())
    return {topic_id: partitions for topic_id, partitions in changed if partitions}


def _owns_any(owned: Assignment | None, partitions: Assignment) -> bool:
    """Whether the member still owns one of these partitions, as far as it says."""
    if owned is None:
        return True
    return any(held & partitions.get(topic_id, frozenset()) for topic_id, held in owned.items())
