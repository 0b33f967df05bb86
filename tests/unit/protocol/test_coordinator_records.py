"""Keys and values of offset commits: Kafka's bytes in every version, and ProtocolError for other bytes."""

from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.messages import present, values_of
from tidelog.protocol.coordinator_records import RecordSchema, record_version
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.group_records import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.protocol.messages.share_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)

KEY = RecordSchema(OffsetCommitKey, 0, 1)
VALUE = RecordSchema(OffsetCommitValue, 0, 4)
GROUP = RecordSchema(GroupMetadataKey, 2, 2)
SHARE_MEMBER = RecordSchema(ShareGroupMemberMetadataKey, 10, 10)
SHARE_UPDATE = RecordSchema(ShareUpdateKey, 1, 1)
SHARE_SNAPSHOT = RecordSchema(ShareSnapshotValue, 0, 0)
TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
SCHEMAS = [
    (schema, version)
    for schema in (KEY, VALUE, GROUP, SHARE_MEMBER, SHARE_UPDATE, SHARE_SNAPSHOT)
    for version in range(schema.first, schema.last + 1)
]
every_version = pytest.mark.parametrize(
    ("schema", "version"), SCHEMAS, ids=[f"{schema.message.name}-{version}" for schema, version in SCHEMAS]
)

# Key and value of version 0 are those by which Burrow tests that it reads what Kafka writes. The others
# follow from the definitions: version 1 ends in the time of expiry, 3 has the leader epoch behind the offset,
# 4 is flexible (compact string, tagged fields). Those of share groups were written by
# the classes of Kafka 4.4.
WRITTEN_BY_KAFKA: list[tuple[RecordSchema, bytes, dict[str, Any]]] = [
    (
        KEY,
        b"\x00\x00\x00\x09testgroup\x00\x09testtopic\x00\x00\x00\x0b",
        {"group": "testgroup", "topic": "testtopic", "partition": 11},
    ),
    (
        KEY,
        b"\x00\x01\x00\x09testgroup\x00\x09testtopic\x00\x00\x00\x0b",
        {"group": "testgroup", "topic": "testtopic", "partition": 11},
    ),
    (GROUP, b"\x00\x02\x00\x09testgroup", {"group": "testgroup"}),
    (
        VALUE,
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x20\xb4\x00\x08testdata\x00\x00\x00\x00\x00\x00\x06\x65",
        {"offset": 8372, "metadata": "testdata", "commit_timestamp": 1637},
    ),
    (
        VALUE,
        b"\x00\x01"
        b"\x00\x00\x00\x00\x00\x00\x20\xb4"
        b"\x00\x08testdata"
        b"\x00\x00\x00\x00\x00\x00\x06\x65"
        b"\x00\x00\x00\x00\x00\x00\x07\x00",
        {"offset": 8372, "metadata": "testdata", "commit_timestamp": 1637, "expire_timestamp": 1792},
    ),
    (
        VALUE,
        b"\x00\x02\x00\x00\x00\x00\x00\x00\x20\xb4\x00\x00\x00\x00\x00\x00\x00\x00\x06\x65",
        {"offset": 8372, "metadata": "", "commit_timestamp": 1637},
    ),
    (
        VALUE,
        b"\x00\x03"
        b"\x00\x00\x00\x00\x00\x00\x20\xb4"
        b"\x00\x00\x00\x0a"
        b"\x00\x08testdata"
        b"\x00\x00\x00\x00\x00\x00\x06\x65",
        {"offset": 8372, "leader_epoch": 10, "metadata": "testdata", "commit_timestamp": 1637},
    ),
    (
        VALUE,
        b"\x00\x04"
        b"\x00\x00\x00\x00\x00\x00\x20\xb4"
        b"\xff\xff\xff\xff"
        b"\x09testdata"
        b"\x00\x00\x00\x00\x00\x00\x06\x65"
        b"\x00",
        {"offset": 8372, "metadata": "testdata", "commit_timestamp": 1637},
    ),
    (
        VALUE,
        b"\x00\x04"
        b"\x00\x00\x00\x00\x00\x00\x20\xb4"
        b"\x00\x00\x00\x0a"
        b"\x01"
        b"\x00\x00\x00\x00\x00\x00\x06\x65"
        b"\x01\x00\x10" + TOPIC_ID.bytes,
        {"offset": 8372, "leader_epoch": 10, "metadata": "", "commit_timestamp": 1637, "topic_id": TOPIC_ID},
    ),
    (SHARE_MEMBER, b"\x00\x0a\x00\x01g\x00\x01m", {"group_id": "g", "member_id": "m"}),
    (
        RecordSchema(ShareGroupMemberMetadataValue, 0, 0),
        b"\x00\x00\x00\x02c\x02h\x02\x02t\x00",
        {"rack_id": None, "client_id": "c", "client_host": "h", "subscribed_topic_names": ["t"]},
    ),
    (RecordSchema(ShareGroupMetadataKey, 11, 11), b"\x00\x0b\x00\x01g", {"group_id": "g"}),
    (
        RecordSchema(ShareGroupMetadataValue, 0, 0),
        bytes.fromhex("0000 00000007 0000000000000009 00"),
        {"epoch": 7, "metadata_hash": 9},
    ),
    (
        RecordSchema(ShareGroupTargetAssignmentMetadataValue, 0, 0),
        bytes.fromhex("0000 00000007 01 0008 0000000000000665"),
        {"assignment_epoch": 7, "assignment_timestamp": 1637},
    ),
    (
        RecordSchema(ShareGroupTargetAssignmentMemberValue, 0, 0),
        b"\x00\x00\x02" + TOPIC_ID.bytes + bytes.fromhex("02 00000001 00 00"),
        {"topic_partitions": [{"topic_id": TOPIC_ID, "partitions": [1]}]},
    ),
    (
        RecordSchema(ShareGroupCurrentMemberAssignmentValue, 0, 0),
        bytes.fromhex("0000 00000007 00000006 01 02") + TOPIC_ID.bytes + bytes.fromhex("02 00000001 00 00"),
        {
            "member_epoch": 7,
            "previous_member_epoch": 6,
            "state": 1,
            "assigned_partitions": [{"topic_id": TOPIC_ID, "partitions": [1]}],
        },
    ),
    (RecordSchema(ShareGroupStatePartitionMetadataKey, 15, 15), b"\x00\x0f\x00\x01g", {"group_id": "g"}),
    (
        RecordSchema(ShareGroupStatePartitionMetadataValue, 0, 0),
        b"\x00\x00\x01\x02"
        + TOPIC_ID.bytes
        + b"\x02t\x02\x00\x00\x00\x01\x00\x02"
        + TOPIC_ID.bytes
        + b"\x02d\x00\x00",
        {
            "initializing_topics": [],
            "initialized_topics": [{"topic_id": TOPIC_ID, "topic_name": "t", "partitions": [1]}],
            "deleting_topics": [{"topic_id": TOPIC_ID, "topic_name": "d"}],
        },
    ),
    (
        RecordSchema(ShareSnapshotKey, 0, 0),
        b"\x00\x00\x00\x01g" + TOPIC_ID.bytes + b"\x00\x00\x00\x03",
        {"group_id": "g", "topic_id": TOPIC_ID, "partition": 3},
    ),
    (
        SHARE_SNAPSHOT,
        bytes.fromhex(
            "0000 00000001 00000002 00000003 0000000000000004 0000000000000006 0000000000000007"
            "02 0000000000000008 0000000000000009 02 0001 00"
            "01 00 04 00000005"
        ),
        {
            "snapshot_epoch": 1,
            "state_epoch": 2,
            "leader_epoch": 3,
            "start_offset": 4,
            "delivery_complete_count": 5,
            "create_timestamp": 6,
            "write_timestamp": 7,
            "state_batches": [
                {"first_offset": 8, "last_offset": 9, "delivery_state": 2, "delivery_count": 1}
            ],
        },
    ),
    (
        SHARE_UPDATE,
        b"\x00\x01\x00\x01g" + TOPIC_ID.bytes + b"\x00\x00\x00\x03",
        {"group_id": "g", "topic_id": TOPIC_ID, "partition": 3},
    ),
    (
        RecordSchema(ShareUpdateValue, 0, 0),
        bytes.fromhex("0000 00000001 00000003 ffffffffffffffff 01 00"),
        {"snapshot_epoch": 1, "leader_epoch": 3, "start_offset": -1, "state_batches": []},
    ),
]


@pytest.mark.parametrize(("schema", "data", "values"), WRITTEN_BY_KAFKA)
def test_what_kafka_writes_is_read_and_written_as_the_same_bytes(
    schema: RecordSchema, data: bytes, values: dict[str, Any]
) -> None:
    decoded = schema.decode(data)
    assert {name: decoded[name] for name in values} == values
    assert schema.encode(record_version(data), values) == data


@every_version
@given(data=st.data())
def test_what_is_encoded_is_decoded_and_cut_anywhere_it_is_a_protocol_error(
    schema: RecordSchema, version: int, data: st.DataObject
) -> None:
    fields = schema.message.fields
    values = data.draw(values_of(fields, version, {}))
    encoded = schema.encode(version, values)
    assert present(fields, version, schema.decode(encoded)) == values
    for size in range(len(encoded)):
        with pytest.raises(ProtocolError):
            schema.decode(encoded[:size])
    with pytest.raises(ProtocolError):
        schema.decode(encoded + b"\x00")


@pytest.mark.parametrize("schema", [KEY, VALUE, GROUP])
@given(data=st.binary(max_size=60))
def test_any_bytes_decode_or_are_a_protocol_error(schema: RecordSchema, data: bytes) -> None:
    with suppress(ProtocolError):
        schema.decode(data)


def test_a_version_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(ProtocolError, match="OffsetCommitValue version 5: expected 0 to 4"):
        VALUE.decode(b"\x00\x05")
    with pytest.raises(ProtocolError, match="GroupMetadataKey version 1: expected 2 to 2"):
        GROUP.encode(1, {"group": "g"})
