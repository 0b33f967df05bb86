"""One committed offset, and its encoding in the log of `__consumer_offsets`.

Owns the choice of versions. A key is written in version 1. A value is written in version 4, the only one with
the topic's id, or in version 1, the only one with a time of expiry, if the client set that.

Pure. Source: Kafka's GroupCoordinatorRecordHelpers, KIP-211 (retention), KIP-320 (leader epoch), KIP-848.
"""

from typing import NamedTuple
from uuid import UUID

from tidelog.broker.coordinator.record_formats import RecordKind
from tidelog.protocol import message_types as types
from tidelog.protocol.coordinator_records import RecordSchema
from tidelog.protocol.hot.offset_commits import (
    decode_offset_commit,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from tidelog.protocol.types import NO_LEADER_EPOCH, NO_TIMESTAMP

NO_TOPIC_ID = UUID(int=0)
_KEY = RecordSchema(OffsetCommitKey, 0, 1)
_VALUE = RecordSchema(OffsetCommitValue, 0, 4)
_KEY_VERSION = 1
_VALUE_VERSION = 4
_VALUE_VERSION_WITH_EXPIRY = 1


class CommittedOffset(NamedTuple):
    """The committed offset of one partition. `topic_id`: the topic at the time of the commit, if known."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    """The time when it expires; -1: the broker's retention applies."""
    topic_id: UUID = NO_TOPIC_ID


class OffsetRecord(NamedTuple):
    """The group committed this for the partition; None: it no longer has a committed offset there."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


def _encoded(record: OffsetRecord) -> tuple[bytes, bytes | None]:
    key = encode_offset_commit_key(record.group_id, record.topic, record.partition)
    if key is None:
        names = {"group": record.group_id, "topic": record.topic, "partition": record.partition}
        key = _KEY.encode(_KEY_VERSION, names)
    return key, None if record.committed is None else _encoded_value(record.committed)


def _encoded_value(committed: CommittedOffset) -> bytes:
    expires = committed.expire_timestamp_ms != NO_TIMESTAMP
    if not expires:
        value = encode_offset_commit_value(
            committed.offset,
            committed.leader_epoch,
            committed.metadata,
            committed.commit_timestamp_ms,
            committed.topic_id,
        )
        if value is not None:
            return value
    values: DictOf[types.OffsetCommitValue] = {
        "offset": committed.offset,
        "leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "commit_timestamp": committed.commit_timestamp_ms,
        "expire_timestamp": committed.expire_timestamp_ms,
        "topic_id": committed.topic_id,
    }
    return _VALUE.encode(_VALUE_VERSION_WITH_EXPIRY if expires else _VALUE_VERSION, values)


def _decoded(key: bytes, value: bytes | None) -> OffsetRecord:
    if value is not None and (hot := decode_offset_commit(key, value)) is not None:
        group_id, topic, partition, offset, leader_epoch, metadata, timestamp_ms, topic_id = hot
        return OffsetRecord(
            group_id,
            topic,
            partition,
            CommittedOffset(offset, leader_epoch, metadata, timestamp_ms, topic_id=topic_id),
        )
    where: types.OffsetCommitKey = _KEY.decode(key)
    committed = None
    if value is not None:
        found: types.OffsetCommitValue = _VALUE.decode(value)
        committed = CommittedOffset(
            found.offset,
            found.leader_epoch,
            found.metadata,
            found.commit_timestamp,
            found.expire_timestamp,
            found.topic_id,
        )
    return OffsetRecord(where.group, where.topic, where.partition, committed)


OFFSET_RECORDS = RecordKind(OffsetRecord, (0, 1), _encoded, _decoded)
