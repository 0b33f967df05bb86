"""The values that the client hands to applications, with aiokafka's names where it has them.

Owns: the shapes of what goes out of `Producer`, `Consumer` and `Admin`. Immutable, no behaviour. Invariants:
offsets, timestamps and epochs are plain ints with the protocol's own "none" (-1).
"""

from enum import IntEnum
from typing import NamedTuple

from tidelog.protocol.types import NO_OFFSET, NO_TIMESTAMP

__all__ = [
    "ConsumerRecord",
    "OffsetAndTimestamp",
    "RecordHeaders",
    "RecordMetadata",
    "TimestampType",
    "TopicPartition",
]

RecordHeaders = tuple[tuple[str, bytes | None], ...]


class TimestampType(IntEnum):
    """Whose clock a timestamp came from."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """Where a record was stored, and under which idempotent identity.

    `offset` is -1 when the broker confirmed that it holds the record but no longer knows where
    (DUPLICATE_SEQUENCE_NUMBER), and with acks=0. `timestamp` is in milliseconds: the broker's where the topic
    says LogAppendTime, else the record's own. The last three are -1 without idempotence.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    producer_id: int
    producer_epoch: int
    sequence: int


class ConsumerRecord(NamedTuple):
    """A record as a consumer reads it. `timestamp` is in milliseconds; sizes are -1 for None."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: object
    value: object
    headers: RecordHeaders
    serialized_key_size: int
    serialized_value_size: int
    leader_epoch: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a timestamp: its offset, and its own timestamp in milliseconds."""

    offset: int = NO_OFFSET
    timestamp: int = NO_TIMESTAMP
