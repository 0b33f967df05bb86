"""Converts batches as the log stores them into the records that an application reads.

Owns: the rows that a consumer returns. The work per record runs in the interpreter's own loops: columns of
the batch are zipped into rows. Invariants: deserializers get bytes or None, once for each returned record.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, TypeAlias

from tidelog.client.types import ConsumerRecord, TimestampType, TopicPartition
from tidelog.protocol.records import BatchHeader, decode_batch_columns
from tidelog.protocol.types import NO_LEADER_EPOCH

__all__ = ["Deserializer", "converted", "opened"]

Deserializer: TypeAlias = Callable[[bytes | None], Any]

_TYPES = [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]


def opened(
    key: TopicPartition, batch: bytes, header: BatchHeader, *, check_crc: bool
) -> list[ConsumerRecord]:
    """The records of `batch`, with keys and values as bytes. Raises ProtocolError."""
    columns = decode_batch_columns(batch, header=header, check_crc=check_crc)
    rows = zip(
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
        repeat(NO_LEADER_EPOCH),
        strict=False,
    )
    return list(map(tuple.__new__, repeat(ConsumerRecord), rows))


def converted(
    records: list[ConsumerRecord], to_key: Deserializer | None, to_value: Deserializer | None
) -> list[ConsumerRecord]:
    """`records` with deserialized keys and values. Raises what the deserializers raise."""
    if to_key is None and to_value is None:
        return records
    return [
        record._replace(
            key=record.key if to_key is None else to_key(record.key),  # type: ignore[arg-type]
            value=record.value if to_value is None else to_value(record.value),  # type: ignore[arg-type]
        )
        for record in records
    ]


def _sizes(contents: Sequence[bytes | None]) -> Iterable[int]:
    """The size of each, -1 for None."""
    missing = contents.count(None)
    if not missing:
        return map(len, contents)  # type: ignore[arg-type]
    if missing == len(contents):
        return repeat(-1)
    return [-1 if each is None else len(each) for each in contents]
