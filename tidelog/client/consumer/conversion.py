"""Converts batches as the log stores them into the records that an application reads.

Owns: the rows and columns that a consumer returns. Invariants: deserializers get bytes or None, once for each
returned record.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, TypeAlias, TypeVar

from tidelog.client.errors import DeserializerNotReadyError, RecordDeserializationError
from tidelog.client.types import ConsumerRecord, RecordColumns, TimestampType
from tidelog.protocol.records import BatchHeader, Columns, decode_batch_columns, decode_plain_batches
from tidelog.protocol.types import TopicPartition

_T = TypeVar("_T")
Deserializer: TypeAlias = Callable[[bytes | None], _T]

# Bytes that are opened together. More would not fit into the processor's cache.
_OPENED_BYTES: Final = 65_536
_TYPES = [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]


def opened(
    batches: Sequence[tuple[bytes, BatchHeader]], position: int, *, check_crc: bool
) -> tuple[Columns, int]:
    """The records of the first batch from offset `position` on, and how many batches they are of: with those
    of a small batch come the records of batches like it. Raises ProtocolError."""
    columns, taken = decode_plain_batches(batches, _OPENED_BYTES, check_crc=check_crc)
    batch, header = batches[0]
    if columns is None:
        columns, taken = decode_batch_columns(batch, header=header, check_crc=check_crc), 1
    if header.base_offset >= position:
        return columns, taken
    return part(columns, bisect_left(columns.offsets, position), None), taken


def part(columns: Columns, first: int, end: int | None) -> Columns:
    """The records from number `first` on, and before number `end` if that is given."""
    return columns._replace(
        offsets=columns.offsets[first:end],
        timestamps=columns.timestamps[first:end],
        keys=columns.keys[first:end],
        values=columns.values[first:end],
        headers=columns.headers[first:end],
    )


def rows(key: TopicPartition, columns: Columns, leader_epoch: int) -> list[ConsumerRecord]:
    """The records of partition `key`, with keys and values as bytes."""
    return list(map(tuple.__new__, repeat(ConsumerRecord), fields(key, columns, leader_epoch)))


def fields(
    key: TopicPartition, columns: Columns, leader_epoch: int, *more: object
) -> Iterator[tuple[Any, ...]]:
    """The fields of each record, and `more`, which is the same for all."""
    return zip(
        repeat(key.topic),
        repeat(key.partition),
        columns.offsets,
        columns.timestamps,
        repeat(_TYPES[columns.timestamp_type]),
        columns.keys,
        columns.values,
        columns.headers,
        _sizes(columns.keys) if columns.key_size is None else repeat(columns.key_size),
        _sizes(columns.values) if columns.value_size is None else repeat(columns.value_size),
        repeat(leader_epoch),
        *map(repeat, more),
        strict=False,
    )


def record_columns(columns: Columns) -> RecordColumns:
    """The columns of a batch as applications get them."""
    kind = _TYPES[columns.timestamp_type]
    offsets, timestamps = columns.offsets, columns.timestamps
    return RecordColumns(offsets, timestamps, kind, columns.keys, columns.values, columns.headers)


def columns_of(records: Sequence[ConsumerRecord]) -> RecordColumns:
    """The columns of records that were opened already. There is at least one."""
    _, _, offsets, timestamps, types, keys, values, headers, *_ = zip(*records, strict=True)
    return RecordColumns(offsets, timestamps, types[0], keys, values, headers)


def converted(
    records: list[ConsumerRecord], to_key: Deserializer[Any] | None, to_value: Deserializer[Any] | None
) -> list[ConsumerRecord[Any, Any]]:
    """`records` with deserialized keys and values, up to the first for which a deserializer raises. Raises
    RecordDeserializationError if that is the first of all."""
    if to_key is None and to_value is None:
        return records
    done: list[ConsumerRecord[Any, Any]] = []
    for record in records:
        try:
            key = record.key if to_key is None else to_key(record.key)
            value = record.value if to_value is None else to_value(record.value)
        except Exception as error:
            if done:
                break
            raise RecordDeserializationError(error, record.topic, record.partition, record.offset) from error
        done.append(record._replace(key=key, value=value))
    return done


async def prepared(error: RecordDeserializationError) -> None:
    """Return once the deserializer can be called again for the record. Raises `error` if that would not help,
    RecordDeserializationError for what prevents it."""
    cause = error.__cause__
    if not isinstance(cause, DeserializerNotReadyError):
        raise error
    try:
        await cause.prepare()
    except Exception as failure:
        raise RecordDeserializationError(failure, error.topic, error.partition, error.offset) from failure


def _sizes(contents: Sequence[bytes | None]) -> Iterable[int]:
    """The size of each, -1 for None."""
    missing = contents.count(None)
    if not missing:
        return map(len, contents)  # type: ignore[arg-type]
    if missing == len(contents):
        return repeat(-1)
    return [-1 if each is None else len(each) for each in contents]
