"""The record of a group in `__consumer_offsets`, as a value and in Kafka's own encoding.

Owns `GroupRecord` and its two encodings. Keys are of version 2; values are written in version 3, as Kafka 4
does, and read in 0 to 4. A record without metadata (a tombstone) means that the group was deleted.

Invariants: a record holds what a group needs to continue after a restart: its generation, its members and
their assignments; any other change makes it rebalance. Pure.

Source: GroupMetadataKey.json and GroupMetadataValue.json.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.broker.coordinator.groups.group import Group, Member, Protocol
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.broker.coordinator.record_formats import RecordKind
from tidelog.protocol import message_types as types
from tidelog.protocol.coordinator_records import RecordSchema
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue

_KEY_VERSION = 2
_KEY = RecordSchema(GroupMetadataKey, _KEY_VERSION, _KEY_VERSION)
_VALUE_VERSION = 3
_VALUE = RecordSchema(GroupMetadataValue, 0, 4)


class GroupRecord(NamedTuple):
    """The stored state of a group: `group` is None when it was deleted."""

    group_id: str
    group: Group | None


def _encoded(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    key = _KEY.encode(_KEY_VERSION, {"group": record.group_id})
    return key, None if record.group is None else _VALUE.encode(_VALUE_VERSION, _values_of(record.group))


def _values_of(group: Group) -> DictOf[types.GroupMetadataValue]:
    return {
        "protocol_type": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "current_state_timestamp": group.state_since_ms,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout": member.rebalance_timeout_ms,
                "session_timeout": member.session_timeout_ms,
                "subscription": member.metadata(group.protocol),
                "assignment": member.assignment,
            }
            for member in group.members.values()
        ],
    }


def _decoded(key: bytes, value: bytes | None) -> GroupRecord:
    """A record whose key is of version 2. Raises ProtocolError."""
    group_id: str = _KEY.decode(key).group
    return GroupRecord(group_id, None if value is None else _group_of(group_id, _VALUE.decode(value)))


def _group_of(group_id: str, values: types.GroupMetadataValue) -> Group:
    """The group after a restart: stable with its members, or empty."""
    members = {
        member.member_id: Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout,
            # Before version 1 there was one timeout for both.
            member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
            (Protocol(values.protocol or "", member.subscription),),
            assignment=member.assignment,
        )
        for member in values.members
    }
    group = Group.new(group_id)._replace(
        state=GroupState.STABLE if members else GroupState.EMPTY,
        generation=values.generation,
        protocol_type=values.protocol_type or None,
        protocol=values.protocol,
        leader=values.leader if values.leader in members else next(iter(members), None),
        static_members={
            member.group_instance_id: member.member_id
            for member in members.values()
            if member.group_instance_id is not None
        },
        state_since_ms=values.current_state_timestamp,
    )
    return group.with_members(members)


GROUP_RECORDS = RecordKind(GroupRecord, (_KEY_VERSION,), _encoded, _decoded)
