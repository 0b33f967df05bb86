"""Records and batches as rows of an answer.

Owns what a row has, and how much of a record. Invariant: the size of a row is bounded, whatever a record
holds. Pure.
"""

from collections.abc import Sequence
from typing import Annotated, Final, TypedDict

from tidelog.broker.console.records.shown_values import Decode, Format, ShownBytes, shown
from tidelog.broker.console.records.stepwise_reading import Batch, Seen, Unreadable
from tidelog.broker.console.shapes import From, row_of
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
    records: Annotated[int, From("record_count")]
    size_bytes: int
    compression: str
    timestamp_type: str
    max_timestamp: Annotated[int, From("largest_timestamp")]
    leader_epoch: Annotated[int, From("partition_leader_epoch")]
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

    def row(record: Seen | Unreadable) -> RecordRow:
        if isinstance(record, Unreadable):
            unknown = {"producer_id": NO_PRODUCER_ID, "timestamp": NO_TIMESTAMP, "key": None, "value": None}
            more = {"timestamp_type": TimestampType.CREATE_TIME, "headers": [], "header_count": 0}
            return row_of(RecordRow, unknown, more, record, partition=partition, problem=record.reason)
        headers = [
            {"name": name[:_MOST_NAME], "value": shown(value, most_bytes=most_bytes // 8)}
            for name, value in record.headers[: most_bytes // 128]
        ]
        return row_of(
            *(RecordRow, {"partition": partition, "headers": headers, "problem": ""}, record),
            last_offset=record.offset,
            timestamp_type=TimestampType(record.timestamp_type),
            key=shown(record.key, key_format, decode, most_bytes),
            value=shown(record.value, value_format, decode, most_bytes),
            header_count=len(record.headers),
        )

    return [row(each) for each in found]


def batch_row(batch: Batch) -> BatchRow:
    try:
        compression = batch.header.compression.name.lower()
    except ProtocolError:
        compression = "unknown"
    return row_of(BatchRow, batch, batch.header, compression=compression)
