"""The record of a group: Kafka's own bytes, in every version that it ever wrote."""

import pytest

from tests.unit.broker.coordinator.groups.site import Site
from tidelog.broker.coordinator.groups.group import Group, Protocol
from tidelog.broker.coordinator.groups.records import GROUP_RECORDS, GroupRecord
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.protocol.coordinator_records import RecordSchema
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.group_records import GroupMetadataValue

KEY = bytes.fromhex("0002 0001 67")
VALUES = {
    "protocol_type": "consumer",
    "generation": 7,
    "protocol": "range",
    "leader": "m1",
    "current_state_timestamp": 1_000,
    "members": [
        {
            "member_id": "m1",
            "group_instance_id": "i1",
            "client_id": "c",
            "client_host": "/h",
            "rebalance_timeout": 30_000,
            "session_timeout": 10_000,
            "subscription": b"topics",
            "assignment": b"partitions",
        }
    ],
}


def test_a_group_is_written_in_the_bytes_that_kafka_writes() -> None:
    group = GROUP_RECORDS.decode(KEY, RecordSchema(GroupMetadataValue, 3, 3).encode(3, VALUES)).group
    assert group is not None
    key, value = GROUP_RECORDS.encode(GroupRecord("g", group))
    assert key == KEY
    assert value == (
        bytes.fromhex("0003")  # version
        + bytes.fromhex("0008") + b"consumer" + bytes.fromhex("00000007")
        + bytes.fromhex("0005") + b"range" + bytes.fromhex("0002") + b"m1"
        + bytes.fromhex("00000000000003e8")  # current state timestamp
        + bytes.fromhex("00000001")  # members
        + bytes.fromhex("0002") + b"m1" + bytes.fromhex("0002") + b"i1"
        + bytes.fromhex("0001") + b"c" + bytes.fromhex("0002") + b"/h"
        + bytes.fromhex("00007530 00002710")  # rebalance timeout, session timeout
        + bytes.fromhex("00000006") + b"topics" + bytes.fromhex("0000000a") + b"partitions"
    )  # fmt: skip


def test_an_empty_group_and_a_deleted_one_are_distinguished() -> None:
    key, value = GROUP_RECORDS.encode(GroupRecord("g", Group("g", generation=3, protocol_type="consumer")))
    assert value is not None
    group = GROUP_RECORDS.decode(key, value).group
    assert group == Group.new("g")._replace(generation=3, protocol_type="consumer")
    assert GROUP_RECORDS.encode(GroupRecord("g", None)) == (KEY, None)
    assert GROUP_RECORDS.decode(KEY, None) == GroupRecord("g", None)


@pytest.mark.parametrize("version", range(5))
def test_every_version_is_read_and_what_it_lacks_has_its_default(version: int) -> None:
    group = GROUP_RECORDS.decode(KEY, RecordSchema(GroupMetadataValue, 0, 4).encode(version, VALUES)).group
    assert group is not None
    (member,) = group.members.values()
    assert (group.state, group.generation, group.leader) == (GroupState.STABLE, 7, "m1")
    assert (member.protocols, member.assignment) == ((Protocol("range", b"topics"),), b"partitions")
    assert member.session_timeout_ms == 10_000
    assert member.rebalance_timeout_ms == (30_000 if version >= 1 else 10_000)
    assert group.state_since_ms == (1_000 if version >= 2 else -1)
    assert member.group_instance_id == ("i1" if version >= 3 else None)
    assert group.static_members == ({"i1": "m1"} if version >= 3 else {})


def test_a_record_of_a_version_that_is_not_known_is_refused() -> None:
    with pytest.raises(ProtocolError, match="version 5: expected 0 to 4"):
        GROUP_RECORDS.decode(KEY, bytes.fromhex("0005") + bytes(20))


def test_what_a_stable_group_wrote_is_what_comes_back() -> None:
    site = Site()
    site.stable(a="a", b="b")
    written = site.records[-1]
    assert GROUP_RECORDS.decode(*GROUP_RECORDS.encode(written)) == written
