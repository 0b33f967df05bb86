"""Keys and values of offset commits: Kafka's bytes in every version, and ProtocolError for other bytes."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.message_texts import values_in
from tests.property.messages import present, values_of
from tidelog.protocol.coordinator_records import RecordSchema, record_version
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages import group_records, share_records
from tidelog.protocol.messages.group_records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from tidelog.protocol.messages.share_records import (
    ShareGroupMemberMetadataKey,
    ShareSnapshotValue,
    ShareUpdateKey,
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

_ROW = re.compile(r"(\w+) (\d+)-(\d+): (.*)\n +(.*)\n")
_TEXT = re.compile(r"'(\w+)'")


def _written_by_kafka() -> Iterator[tuple[RecordSchema, bytes, dict[str, Any]]]:
    """The rows of `coordinator_records.txt`."""
    _, rows = Path(__file__).with_name("coordinator_records.txt").read_text().split("\n\n")
    assert not _ROW.sub("", rows), "expected a name, versions and bytes, and below them the fields"
    for name, first, last, octets, values in _ROW.findall(rows):
        declared = getattr(share_records, name, None) or getattr(group_records, name)
        schema = RecordSchema(declared, int(first), int(last))
        octets = _TEXT.sub(lambda found: found[1].encode().hex(), octets.replace("<id>", TOPIC_ID.hex))
        yield schema, bytes.fromhex(octets), values_in(values, schema.message.fields, {"id": TOPIC_ID})


@pytest.mark.parametrize(("schema", "data", "values"), list(_written_by_kafka()))
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
