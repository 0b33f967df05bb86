"""Batches for the pipeline's tests: rows in, log bytes out, and what the plain decoder says of them."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from tidelog.protocol.compression import Compression
from tidelog.protocol.records import (
    Headers,
    RecordBatchBuilder,
    TimestampType,
    decode_batch,
    increment_sequence,
    iter_batches,
)

Row = tuple[int, bytes | None, bytes | None, Headers]


def make_batch(
    rows: Iterable[Row],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    is_control: bool = False,
) -> bytearray:
    """One batch of (timestamp, key, value, headers) rows; `producer` is (id, epoch, base sequence)."""
    builder = RecordBatchBuilder()
    for timestamp, key, value, headers in rows:
        builder.append(timestamp, key, value, headers)
    return builder.build(compression, *producer, base_offset=base_offset, is_control=is_control)


def expected_rows(data: bytes, topic: str, partition: int) -> list[dict[str, Any]]:
    """What the columns must hold, by `protocol.records.decode_batch`, a record at a time."""
    rows = []
    for position, header in iter_batches(data):
        if header.is_control:
            continue
        for record in decode_batch(data, position):
            delta = record.offset - header.base_offset
            has_sequence = header.base_sequence >= 0
            rows.append(
                {
                    "key": record.key,
                    "value": record.value,
                    "topic": topic,
                    "partition": partition,
                    "offset": record.offset,
                    "timestamp": record.timestamp * 1000,
                    "timestampType": int(record.timestamp_type is TimestampType.LOG_APPEND_TIME),
                    "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
                    "producer_id": header.producer_id,
                    "producer_epoch": header.producer_epoch,
                    "sequence": increment_sequence(header.base_sequence, delta) if has_sequence else -1,
                }
            )
    return rows


def plain_rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Arrow batches as `expected_rows` writes them: timestamps as whole microseconds."""
    rows = []
    for batch in batches:
        if "timestamp" in batch.schema.names:
            place = batch.schema.names.index("timestamp")
            batch = batch.set_column(place, "timestamp", batch.column(place).view(pa.int64()))
        rows += batch.to_pylist()
    return rows
