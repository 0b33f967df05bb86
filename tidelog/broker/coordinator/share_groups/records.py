"""The records of a share group, as values and in Kafka's own encodings.

Owns six kinds of records. Keys are of versions 10 to 15, values of version 0.

Invariants: these records hold all that a group needs to continue after a restart; the removal of a group ends
with the tombstone of its epoch. Pure.

Source: Kafka's GroupCoordinatorRecordHelpers, KIP-932.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tidelog.broker.coordinator.consumer_groups.group import Assignment, Current, MemberState
from tidelog.broker.coordinator.consumer_groups.records import assignment_of, assignment_values, record_kind
from tidelog.broker.coordinator.record_formats import RecordKind
from tidelog.broker.coordinator.share_groups.group import (
    GroupStates,
    ShareGroup,
    ShareMember,
    StatePartitions,
)
from tidelog.protocol.messages import share_records as messages


class ShareGroupEpoch(NamedTuple):
    """`metadata_hash` changes with the topics that the group reads."""

    epoch: int
    metadata_hash: int


class ShareGroupEpochRecord(NamedTuple):
    """Stores the epoch of a group. None: the group is removed."""

    group_id: str
    epoch: ShareGroupEpoch | None

    def apply_to(self, group: ShareGroup) -> None:
        group.epoch, group.metadata_hash = self.epoch or (0, 0)


class ShareMemberRecord(NamedTuple):
    group_id: str
    member_id: str
    member: ShareMember | None

    def apply_to(self, group: ShareGroup) -> None:
        _put(group.members, self.member_id, self.member)


class ShareTargetEpochRecord(NamedTuple):
    """The epoch of the group for which the targets were computed."""

    group_id: str
    epoch: int | None

    def apply_to(self, group: ShareGroup) -> None:
        group.target_epoch = self.epoch or 0


class ShareTargetRecord(NamedTuple):
    group_id: str
    member_id: str
    target: Assignment | None

    def apply_to(self, group: ShareGroup) -> None:
        _put(group.targets, self.member_id, self.target)


class ShareCurrentRecord(NamedTuple):
    group_id: str
    member_id: str
    current: Current | None

    def apply_to(self, group: ShareGroup) -> None:
        _put(group.currents, self.member_id, self.current)


class GroupStatesRecord(NamedTuple):
    """The partitions that have a state."""

    group_id: str
    states: GroupStates | None

    def apply_to(self, group: ShareGroup) -> None:
        group.states = self.states or GroupStates()


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


ShareGroupRecord = (
    ShareGroupEpochRecord
    | ShareMemberRecord
    | ShareTargetEpochRecord
    | ShareTargetRecord
    | ShareCurrentRecord
    | GroupStatesRecord
)


def removal_of_member(group_id: str, member_id: str) -> Iterator[ShareGroupRecord]:
    yield ShareCurrentRecord(group_id, member_id, None)
    yield ShareTargetRecord(group_id, member_id, None)
    yield ShareMemberRecord(group_id, member_id, None)


def removal_of_group(group: ShareGroup) -> Iterator[ShareGroupRecord]:
    for member_id in group.members:
        yield from removal_of_member(group.group_id, member_id)
    yield GroupStatesRecord(group.group_id, None)
    yield ShareTargetEpochRecord(group.group_id, None)
    yield ShareGroupEpochRecord(group.group_id, None)


def _state_values(states: GroupStates) -> Mapping[str, object]:
    return {
        "initializing_topics": [],
        "initialized_topics": [
            {"topic_id": topic_id, "topic_name": each.name, "partitions": sorted(each.partitions)}
            for topic_id, each in states.initialized.items()
        ],
        "deleting_topics": [
            {"topic_id": topic_id, "topic_name": name} for topic_id, name in states.deleting.items()
        ],
    }


def _state_of(values: Any) -> GroupStates:
    return GroupStates(
        {
            each.topic_id: StatePartitions(each.topic_name, frozenset(each.partitions))
            for each in values.initialized_topics
        },
        {each.topic_id: each.topic_name for each in values.deleting_topics},
    )


SHARE_GROUP_RECORDS: tuple[RecordKind, ...] = (
    record_kind(
        ShareMemberRecord,
        10,
        messages.ShareGroupMemberMetadataKey,
        messages.ShareGroupMemberMetadataValue,
        lambda member: {
            "rack_id": member.rack_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": list(member.topic_names),
        },
        lambda values: ShareMember(
            values.rack_id, values.client_id, values.client_host, tuple(values.subscribed_topic_names)
        ),
    ),
    record_kind(
        ShareGroupEpochRecord,
        11,
        messages.ShareGroupMetadataKey,
        messages.ShareGroupMetadataValue,
        lambda epoch: epoch._asdict(),
        lambda values: ShareGroupEpoch(values.epoch, values.metadata_hash),
    ),
    record_kind(
        ShareTargetEpochRecord,
        12,
        messages.ShareGroupTargetAssignmentMetadataKey,
        messages.ShareGroupTargetAssignmentMetadataValue,
        lambda epoch: {"assignment_epoch": epoch},
        lambda values: values.assignment_epoch,
    ),
    record_kind(
        ShareTargetRecord,
        13,
        messages.ShareGroupTargetAssignmentMemberKey,
        messages.ShareGroupTargetAssignmentMemberValue,
        lambda target: {"topic_partitions": assignment_values(target)},
        lambda values: assignment_of(values.topic_partitions),
    ),
    record_kind(
        ShareCurrentRecord,
        14,
        messages.ShareGroupCurrentMemberAssignmentKey,
        messages.ShareGroupCurrentMemberAssignmentValue,
        lambda current: {
            "member_epoch": current.epoch,
            "previous_member_epoch": current.previous_epoch,
            "state": int(MemberState.STABLE),
            "assigned_partitions": assignment_values(current.assigned),
        },
        lambda values: Current(
            values.member_epoch,
            values.previous_member_epoch,
            MemberState.STABLE,
            assignment_of(values.assigned_partitions),
        ),
    ),
    record_kind(
        GroupStatesRecord,
        15,
        messages.ShareGroupStatePartitionMetadataKey,
        messages.ShareGroupStatePartitionMetadataValue,
        _state_values,
        _state_of,
    ),
)
