"""Records and batches as rows of an answer.

Owns what a row has, and how much of a record. Invariant: the size of a row is bounded, whatever a record
holds. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from tidelog.broker.console.records.shown_values import Decode, Format, ShownBytes, shown
from tidelog.broker.console.records.stepwise_reading import Batch, Seen, Unreadable
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import TimestampType
from tidelog.protocol.types import NO_PRODUCER_ID, NO_TIMESTAMP

_MOST_NAME: Final = 128


class HeaderRow(TypedDict):
    """A header of a record."""

    name: str
    value: ShownBytes | None


class RecordRow(TypedDict):
    """A record, or a batch whose records cannot be read (then `problem` says why)."""

    partition: int
    offset: int
    last_offset: int
    """That of the batch where it cannot be read, else the record's."""
    producer_id: int
    """-1: none."""
    timestamp: int
    """Milliseconds since the epoch; -1: none."""
    timestamp_type: str
    key: ShownBytes | None
    value: ShownBytes | None
    headers: list[HeaderRow]
    header_count: int
    """How many there are; `headers` has the first of them."""
    problem: str


class BatchRow(TypedDict):
    """A batch, as its header describes it."""

    base_offset: int
    last_offset: int
    records: int
    size_bytes: int
    compression: str
    timestamp_type: str
    max_timestamp: int
    leader_epoch: int
    producer_id: int
    """-1: none."""
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_aborted: bool
    """Whether consumers of committed records leave it out."""
    control: str
    """The kind of a control batch: commit, abort, or unknown; empty for a batch of records."""
    delete_horizon_ms: int | None
    """From when on tombstones in it may be removed."""


def record_rows(
    partition: int,
    found: Sequence[Seen | Unreadable],
    key_format: Format,
    value_format: Format,
    decode: Decode,
    most_bytes: int,
) -> list[RecordRow]:
    """At most `most_bytes` of each key and value, and in proportion of headers."""
    return [
        _unreadable_row(partition, each)
        if isinstance(each, Unreadable)
        else _record_row(partition, each, key_format, value_format, decode, most_bytes)
        for each in found
    ]


def _record_row(
    partition: int, record: Seen, key_format: Format, value_format: Format, decode: Decode, most_bytes: int
) -> RecordRow:
    return {
        "partition": partition,
        "offset": record.offset,
        "last_offset": record.offset,
        "producer_id": record.producer_id,
        "timestamp": record.timestamp,
        "timestamp_type": TimestampType(record.timestamp_type).name,
        "key": shown(record.key, key_format, decode, most_bytes),
        "value": shown(record.value, value_format, decode, most_bytes),
        "headers": [
            {"name": name[:_MOST_NAME], "value": shown(value, most_bytes=most_bytes // 8)}
            for name, value in record.headers[: most_bytes // 128]
        ],
        "header_count": len(record.headers),
        "problem": "",
    }


def _unreadable_row(partition: int, batch: Unreadable) -> RecordRow:
    return {
        "partition": partition,
        "offset": batch.offset,
        "last_offset": batch.last_offset,
        "producer_id": NO_PRODUCER_ID,
        "timestamp": NO_TIMESTAMP,
        "timestamp_type": TimestampType.CREATE_TIME.name,
        "key": None,
        "value": None,
        "headers": [],
        "header_count": 0,
        "problem": batch.reason,
    }


def batch_row(batch: Batch) -> BatchRow:
    header = batch.header
    try:
        compression = header.compression.name.lower()
    except ProtocolError:
        compression = "unknown"
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size_bytes": header.size_bytes,
        "compression": compression,
        "timestamp_type": header.timestamp_type.name,
        "max_timestamp": header.largest_timestamp,
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "is_transactional": header.is_transactional,
        "is_aborted": batch.is_aborted,
        "control": batch.control,
        "delete_horizon_ms": header.delete_horizon_ms,
    }
