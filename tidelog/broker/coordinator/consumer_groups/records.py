"""The records of a group of the consumer protocol, as values and in Kafka's own encodings.

Owns seven kinds of records. Keys are of versions 3 to 8 and 16, values of version 0.

Invariants: these records hold all that a group needs to continue after a restart; the removal of a group ends
with the tombstone of its epoch. Pure.

Source: Kafka's GroupCoordinatorRecordHelpers, KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tidelog.broker.coordinator.consumer_groups.group import (
    Assignment,
    ClassicMember,
    ConsumerGroup,
    Current,
    MemberState,
    ResolvedRegex,
    SubscribedTopic,
    Subscription,
)
from tidelog.broker.coordinator.groups.group import Protocol
from tidelog.broker.coordinator.record_formats import RecordKind
from tidelog.protocol import message_types as types
from tidelog.protocol.coordinator_records import RecordSchema
from tidelog.protocol.messages import group_records as messages
from tidelog.protocol.messages.declaration import DictOf, Struct

_VALUE_VERSION = 0
_KNOWN_STATES = frozenset(map(int, MemberState))


class GroupEpochRecord(NamedTuple):
    """Stores the epoch of a group. None: the group is removed."""

    group_id: str
    epoch: int | None

    def apply_to(self, group: ConsumerGroup) -> None:
        group.epoch = self.epoch or 0


class TopicsRecord(NamedTuple):
    """The topics that the group is subscribed to, as it knows them."""

    group_id: str
    topics: Mapping[str, SubscribedTopic] | None

    def apply_to(self, group: ConsumerGroup) -> None:
        group.topics = self.topics or {}


class MemberRecord(NamedTuple):
    group_id: str
    member_id: str
    subscription: Subscription | None

    def apply_to(self, group: ConsumerGroup) -> None:
        group.set_member(self.member_id, self.subscription)


class TargetEpochRecord(NamedTuple):
    """The epoch of the group for which the targets were computed."""

    group_id: str
    epoch: int | None

    def apply_to(self, group: ConsumerGroup) -> None:
        group.target_epoch = self.epoch or 0


class TargetRecord(NamedTuple):
    group_id: str
    member_id: str
    target: Assignment | None

    def apply_to(self, group: ConsumerGroup) -> None:
        group.set_target(self.member_id, self.target)


class CurrentRecord(NamedTuple):
    group_id: str
    member_id: str
    current: Current | None

    def apply_to(self, group: ConsumerGroup) -> None:
        group.set_current(self.member_id, self.current)


class RegexRecord(NamedTuple):
    group_id: str
    regex: str
    resolved: ResolvedRegex | None

    def apply_to(self, group: ConsumerGroup) -> None:
        group.set_regex(self.regex, self.resolved)


ConsumerGroupRecord = (
    GroupEpochRecord
    | TopicsRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentRecord
    | RegexRecord
)


def removal_of_member(group_id: str, member_id: str) -> Iterator[ConsumerGroupRecord]:
    yield CurrentRecord(group_id, member_id, None)
    yield TargetRecord(group_id, member_id, None)
    yield MemberRecord(group_id, member_id, None)


def removal_of_group(group: ConsumerGroup) -> Iterator[ConsumerGroupRecord]:
    for member_id in group.members:
        yield from removal_of_member(group.group_id, member_id)
    for regex in group.regexes:
        yield RegexRecord(group.group_id, regex, None)
    yield TargetEpochRecord(group.group_id, None)
    yield TopicsRecord(group.group_id, None)
    yield GroupEpochRecord(group.group_id, None)


def assignment_values(assignment: Assignment) -> list[DictOf[types.TopicPartitions]]:
    """The partitions by topic id, as records and answers have them."""
    return [
        {"topic_id": topic_id, "partitions": sorted(partitions)}
        for topic_id, partitions in assignment.items()
    ]


def assignment_of(values: Iterable[types.TopicPartitions]) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in values if each.partitions}


def _topics_values(
    topics: Mapping[str, SubscribedTopic],
) -> DictOf[types.ConsumerGroupPartitionMetadataValue]:
    return {
        "topics": [
            {"topic_id": topic.topic_id, "topic_name": name, "num_partitions": topic.partition_count}
            for name, topic in topics.items()
        ]
    }


def _topics_of(values: types.ConsumerGroupPartitionMetadataValue) -> Mapping[str, SubscribedTopic]:
    return {each.topic_name: SubscribedTopic(each.topic_id, each.num_partitions) for each in values.topics}


def _member_values(member: Subscription) -> DictOf[types.ConsumerGroupMemberMetadataValue]:
    classic = member.classic
    return {
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": list(member.topic_names),
        "subscribed_topic_regex": member.topic_regex,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "server_assignor": member.server_assignor,
        "classic_member_metadata": None
        if classic is None
        else {
            "session_timeout_ms": classic.session_timeout_ms,
            "supported_protocols": [
                {"name": each.name, "metadata": each.metadata} for each in classic.protocols
            ],
        },
    }


def _member_of(values: types.ConsumerGroupMemberMetadataValue) -> Subscription:
    classic = values.classic_member_metadata
    return Subscription(
        values.instance_id,
        values.rack_id,
        values.client_id,
        values.client_host,
        tuple(values.subscribed_topic_names),
        values.subscribed_topic_regex or None,
        values.rebalance_timeout_ms,
        values.server_assignor,
        None
        if classic is None
        else ClassicMember(
            classic.session_timeout_ms,
            tuple(Protocol(each.name, each.metadata) for each in classic.supported_protocols),
        ),
    )


def _current_values(current: Current) -> DictOf[types.ConsumerGroupCurrentMemberAssignmentValue]:
    return {
        "member_epoch": current.epoch,
        "previous_member_epoch": current.previous_epoch,
        "state": int(current.state),
        "assigned_partitions": assignment_values(current.assigned),
        "partitions_pending_revocation": assignment_values(current.revoking),
    }


def _current_of(values: types.ConsumerGroupCurrentMemberAssignmentValue) -> Current:
    return Current(
        values.member_epoch,
        values.previous_member_epoch,
        MemberState(values.state) if values.state in _KNOWN_STATES else MemberState.UNKNOWN,
        assignment_of(values.assigned_partitions),
        assignment_of(values.partitions_pending_revocation),
    )


def _regex_values(resolved: ResolvedRegex) -> DictOf[types.ConsumerGroupRegularExpressionValue]:
    return {
        "topics": sorted(resolved.topics),
        "version": resolved.revision,
        "timestamp": resolved.timestamp_ms,
    }


def record_kind(
    record_type: Any,
    key_version: int,
    key_message: type[Struct],
    value_message: type[Struct],
    values_of: Callable[[Any], Mapping[str, object]],
    value_of: Callable[[Any], Any],
) -> RecordKind:
    """The last field of a record is its value. The others are its key, in the order of the message."""
    key_schema = RecordSchema(key_message, key_version, key_version)
    value_schema = RecordSchema(value_message, _VALUE_VERSION, _VALUE_VERSION)
    names = [field.name for field in key_schema.message.fields]

    def encoded(record: Any) -> tuple[bytes, bytes | None]:
        key = key_schema.encode(key_version, dict(zip(names, record, strict=False)))
        value = record[-1]
        return key, None if value is None else value_schema.encode(_VALUE_VERSION, values_of(value))

    def decoded(key: bytes, value: bytes | None) -> Any:
        found = key_schema.decode(key)
        return record_type(
            *(getattr(found, name) for name in names),
            None if value is None else value_of(value_schema.decode(value)),
        )

    return RecordKind(record_type, (key_version,), encoded, decoded)


CONSUMER_GROUP_RECORDS: tuple[RecordKind, ...] = (
    record_kind(
        GroupEpochRecord,
        3,
        messages.ConsumerGroupMetadataKey,
        messages.ConsumerGroupMetadataValue,
        lambda epoch: {"epoch": epoch},
        lambda values: values.epoch,
    ),
    record_kind(
        TopicsRecord,
        4,
        messages.ConsumerGroupPartitionMetadataKey,
        messages.ConsumerGroupPartitionMetadataValue,
        _topics_values,
        _topics_of,
    ),
    record_kind(
        MemberRecord,
        5,
        messages.ConsumerGroupMemberMetadataKey,
        messages.ConsumerGroupMemberMetadataValue,
        _member_values,
        _member_of,
    ),
    record_kind(
        TargetEpochRecord,
        6,
        messages.ConsumerGroupTargetAssignmentMetadataKey,
        messages.ConsumerGroupTargetAssignmentMetadataValue,
        lambda epoch: {"assignment_epoch": epoch},
        lambda values: values.assignment_epoch,
    ),
    record_kind(
        TargetRecord,
        7,
        messages.ConsumerGroupTargetAssignmentMemberKey,
        messages.ConsumerGroupTargetAssignmentMemberValue,
        lambda target: {"topic_partitions": assignment_values(target)},
        lambda values: assignment_of(values.topic_partitions),
    ),
    record_kind(
        CurrentRecord,
        8,
        messages.ConsumerGroupCurrentMemberAssignmentKey,
        messages.ConsumerGroupCurrentMemberAssignmentValue,
        _current_values,
        _current_of,
    ),
    record_kind(
        RegexRecord,
        16,
        messages.ConsumerGroupRegularExpressionKey,
        messages.ConsumerGroupRegularExpressionValue,
        _regex_values,
        lambda values: ResolvedRegex(frozenset(values.topics), values.version, values.timestamp),
    ),
)
