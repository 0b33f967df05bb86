"""The values that the client returns to applications, with aiokafka's names if it has them.

Owns: the types that `Producer`, `Consumer` and `Admin` return. Immutable, no behaviour. Invariants: offsets,
timestamps and epochs are plain ints; -1 means "none", as in the protocol.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from operator import index
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from tidelog.protocol.types import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    # PEP 696, which Python has from 3.13 on.
    from typing_extensions import TypeVar

    KT = TypeVar("KT", default=bytes | None)
    VT = TypeVar("VT", default=bytes | None)
    # What a lambda as a serializer takes is not known.
    SentKT = TypeVar("SentKT", contravariant=True, default=Any)
    SentVT = TypeVar("SentVT", contravariant=True, default=Any)
else:
    from typing import TypeVar

    KT = TypeVar("KT")
    VT = TypeVar("VT")
    SentKT = TypeVar("SentKT", contravariant=True)
    SentVT = TypeVar("SentVT", contravariant=True)

RecordHeaders = tuple[tuple[str, bytes | None], ...]


class TimestampType(IntEnum):
    """Which clock a timestamp came from: the producer's or the broker's."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def topic_partition(key: tuple[str, int]) -> TopicPartition:
    """Convert a partition that an application names. Raises TypeError."""
    match key:
        case (str() as topic, partition) if hasattr(partition, "__index__"):
            return TopicPartition(topic, index(partition))
    raise no_partition(key)


def topic_partitions(keys: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    """As `topic_partition`, for each of a list. Raises TypeError, also for a single partition."""
    if isinstance(keys, str | TopicPartition) or not isinstance(keys, Iterable):
        raise TypeError(f"partitions: expected a list of TopicPartition(topic, number), got {keys!r:.200}")
    return [topic_partition(key) for key in keys]


def no_partition(given: object) -> TypeError:
    return TypeError(f"expected TopicPartition(topic, number), got {given!r:.200}")


class RecordMetadata(NamedTuple):
    """Where a record was stored, and under which idempotent identity.

    `offset` is -1 with acks=0, and if the broker confirmed that it holds the record but no longer knows its
    offset (DUPLICATE_SEQUENCE_NUMBER). `timestamp` is in milliseconds: the broker's if the topic has
    LogAppendTime, else the record's own. The last three are -1 without idempotence.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    producer_id: int
    producer_epoch: int
    sequence: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class AppendedRecord(NamedTuple):
    """A record in a batch that is not sent yet: its number from 0, its bytes before compression, and its
    timestamp in milliseconds."""

    offset: int
    size: int
    timestamp: int


class ConsumerRecord(NamedTuple, Generic[KT, VT]):
    """A record as a consumer reads it. `key` and `value` are what the deserializers return; without them they
    are bytes or None. `timestamp` is in milliseconds; sizes are -1 for None."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: KT
    value: VT
    headers: RecordHeaders
    serialized_key_size: int
    serialized_value_size: int
    leader_epoch: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class RecordColumns(NamedTuple):
    """Records of one partition, in offset order, as columns of one length: no object per record.

    Timestamps are in milliseconds. Keys and values are as the log has them.
    """

    offsets: Sequence[int]
    timestamps: Sequence[int]
    timestamp_type: TimestampType
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[RecordHeaders]

    @property
    def record_count(self) -> int:
        return len(self.offsets)


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, a text of the application, and the leader
    epoch of the record before it (KIP-320), -1 if it is not known."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


def offset_and_metadata(offset: int | tuple[int, str] | OffsetAndMetadata) -> OffsetAndMetadata:
    """Convert a position that an application gives. Raises TypeError or ValueError."""
    match offset:
        case OffsetAndMetadata(int(), str(), int()):
            taken = offset
        case int():
            taken = OffsetAndMetadata(offset)
        case (int(), str()):
            taken = OffsetAndMetadata(*offset)
        case _:
            raise TypeError(f"expected an int or (int, str) as offset to commit, got {offset!r:.200}")
    if taken.offset < 0:
        raise ValueError(f"expected an offset to commit of 0 or more, got {taken.offset}")
    return taken


def commits_by_topic(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[str, list[Any]]:
    """Topic -> its partitions, as the requests have them that commit offsets."""
    topics: dict[str, list[Any]] = {}
    for key, (offset, metadata, leader_epoch) in offsets.items():
        topics.setdefault(key.topic, []).append(
            {
                "partition_index": key.partition,
                "committed_offset": offset,
                "committed_leader_epoch": leader_epoch,
                "committed_metadata": metadata,
            }
        )
    return topics


def offsets_to_commit(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Convert positions that an application gives. Raises TypeError or ValueError."""
    if not isinstance(offsets, Mapping):
        raise TypeError(
            f"offsets: expected a dict: {{TopicPartition(topic, number): offset}}, got {offsets!r:.200}"
        )
    return {topic_partition(key): offset_and_metadata(each) for key, each in offsets.items()}


class PreparedTransaction(NamedTuple):
    """What another process needs to commit a transaction that was prepared."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class ConsumerGroupMetadata(NamedTuple):
    """The member of a group that commits offsets. With the defaults it is no member, and its commits are not
    fenced."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def group_metadata(group: str | ConsumerGroupMetadata) -> ConsumerGroupMetadata:
    """Convert a group that an application names. Raises TypeError."""
    if isinstance(group, str):
        return ConsumerGroupMetadata(group)
    if not isinstance(group, ConsumerGroupMetadata):
        raise TypeError(f"group: expected consumer.group_metadata() or the id of a group, got {group!r:.200}")
    return group


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a timestamp: its offset, its own timestamp in milliseconds, and its leader
    epoch, -1 if it is not known."""

    offset: int = NO_OFFSET
    timestamp: int = NO_TIMESTAMP
    leader_epoch: int = NO_LEADER_EPOCH
