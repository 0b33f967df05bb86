"""A committed offset in the log: which versions are written, and that all that Kafka wrote are read."""

from uuid import UUID

import pytest

from tidelog.broker.coordinator.offsets.offset_records import OFFSET_RECORDS, CommittedOffset, OffsetRecord
from tidelog.protocol.coordinator_records import RecordSchema, record_version
from tidelog.protocol.messages.group_records import OffsetCommitValue

COMMITTED = CommittedOffset(8372, 10, "testdata", 1637, topic_id=UUID(int=7))
KEY = b"\x00\x01\x00\x09testgroup\x00\x09testtopic\x00\x00\x00\x0b"
VALUES = RecordSchema(OffsetCommitValue, 0, 4)


def record(committed: CommittedOffset | None) -> OffsetRecord:
    return OffsetRecord("testgroup", "testtopic", 11, committed)


@pytest.mark.parametrize(
    ("committed", "version"),
    [
        (COMMITTED, 4),
        (COMMITTED._replace(leader_epoch=-1, metadata=""), 4),
        (CommittedOffset(8372, -1, "testdata", 1637, 9_999), 1),
        (None, None),
    ],
)
def test_what_is_written_is_read(committed: CommittedOffset | None, version: int | None) -> None:
    key, value = OFFSET_RECORDS.encode(record(committed))
    assert key == KEY
    assert (None if value is None else record_version(value)) == version
    assert OFFSET_RECORDS.decode(key, value) == record(committed)


@pytest.mark.parametrize("version", range(5))
def test_values_of_every_version_are_read(version: int) -> None:
    values = {"offset": 8372, "metadata": "testdata", "commit_timestamp": 1637}
    for key in (KEY, b"\x00\x00" + KEY[2:]):
        found = OFFSET_RECORDS.decode(key, VALUES.encode(version, values))
        assert found == record(CommittedOffset(8372, -1, "testdata", 1637))
