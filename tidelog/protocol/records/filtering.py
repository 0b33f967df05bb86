"""What a log cleaner leaves of a batch: some of its records, or none, and the offsets as they were.

Invariants: base offset, last offset, producer id, epoch and sequence stay, so the producer state that a
replay gives stays too; records that are kept are copied as they are encoded, and encoded again only if their
timestamps count from a delete horizon; MaxTimestamp is that of the kept records. A batch without records
keeps its MaxTimestamp and has neither a codec nor a base timestamp. One that only holds the place of its
offsets belongs to no producer.

The delete horizon (KIP-534) takes the place of the base timestamp.

Source: Kafka's MemoryRecords.filterTo and DefaultRecordBatch.writeEmptyHeader.
"""

from collections.abc import Sequence

from tidelog.protocol.compression import Compression, compress
from tidelog.protocol.records.header import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
    write_header,
)
from tidelog.protocol.records.varints import MAX_VARLONG_BYTES, decode_varint, encode_varint
from tidelog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP


def emptied(header: BatchHeader) -> bytes:
    """The batch without any record."""
    left = header._replace(
        attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT),
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.largest_timestamp,
        record_count=0,
    )
    return _with_records(left, b"")


def placeholder(header: BatchHeader) -> bytes:
    """The batch without any record and without its producer, so that it belongs to no transaction."""
    return emptied(
        header._replace(
            attributes=header.attributes & ~TRANSACTIONAL_BIT,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
        )
    )


def with_records(
    header: BatchHeader,
    data: bytes,
    start: int,
    kept: Sequence[int],
    timestamps: Sequence[int],
    delete_horizon_ms: int | None,
) -> bytes:
    """The batch with some of its records, of which there is at least one.

    `data` holds its decompressed records from `start` on, which were decoded before. `kept` has a number per
    record, 0 to leave it out; `timestamps` are those of all records. A horizon is set where one is given and
    the batch has none.
    """
    records = _records(data, start, kept)
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is not None and not attributes & DELETE_HORIZON_BIT:
        records = [_moved(record, base_timestamp - delete_horizon_ms) for record in records]
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    latest = header.max_timestamp
    if not attributes & LOG_APPEND_TIME_BIT:
        latest = max(timestamp for timestamp, flag in zip(timestamps, kept, strict=True) if flag)
    left = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=latest, record_count=len(records)
    )
    return _with_records(left, compress(Compression(attributes & COMPRESSION_MASK), b"".join(records)))


def _with_records(header: BatchHeader, packed: bytes) -> bytes:
    batch = bytearray(BATCH_HEADER_SIZE) + packed
    write_header(batch, header._replace(batch_length=len(batch) - LOG_OVERHEAD))
    return bytes(batch)


def _records(data: bytes, position: int, kept: Sequence[int]) -> list[bytes]:
    """The encoded records that are kept. Lengths of one and two bytes are read in place."""
    records: list[bytes] = []
    for flag in kept:
        start = position
        length = data[position]
        if length < 128:
            position += 1 + (length >> 1)
        elif (more := data[position + 1]) < 128:
            position += 2 + (length - 128 + (more << 7) >> 1)
        else:
            size, position = decode_varint(data, position)
            position += size
        if flag:
            records.append(data[start:position])
    return records


def _moved(record: bytes, by_ms: int) -> bytes:
    """The record with a timestamp delta that is larger by `by_ms`."""
    _, at = decode_varint(record, 0)
    delta, rest_at = decode_varint(record, at + 1, MAX_VARLONG_BYTES)
    body = record[at : at + 1] + encode_varint(delta + by_ms) + record[rest_at:]
    return encode_varint(len(body)) + body
