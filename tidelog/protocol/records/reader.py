"""Decodes record batches into records, with a fast path for those of one size.

Owns: the bounds, CRC and decompression of a batch. `uniform` decodes records if all have one size, else
`columns`. Invariants: every malformed batch raises ProtocolError that names the batch's offset and the wrong
byte, and nothing else is raised. Memory stays within `max_decompressed_bytes` and a small multiple of it for
the records. The broker's produce path decodes no records: see `inspection`.
"""

from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

from crc32c import crc32c

from tidelog.protocol.compression import Compression, decompress
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records.columns import SMALLEST_RECORD_BYTES, Columns, Headers, decode_columns
from tidelog.protocol.records.header import (
    ATTRIBUTES_AT,
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    CURRENT_MAGIC,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    BatchHeader,
    TimestampType,
    batch_crc_is_valid,
    read_batch_header,
)
from tidelog.protocol.records.uniform import append_uniform, decode_uniform, uniform_columns
from tidelog.protocol.types import Buffer

DEFAULT_MAX_DECOMPRESSED_BYTES = 104_857_600
_NOT_PLAIN = COMPRESSION_MASK | LOG_APPEND_TIME_BIT


class Record(NamedTuple):
    """One record as a consumer gets it. `timestamp` is in milliseconds of the clock in `timestamp_type`."""

    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers


def decode_batch(
    buffer: Buffer,
    position: int = 0,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    check_crc: bool = True,
) -> list[Record]:
    """The records of the batch at `position`, in order. Bytes after the batch are ignored.

    Raises ProtocolError for a truncated batch, a wrong CRC, an unknown codec, records that decompress to more
    than `max_decompressed_bytes`, or records that contradict their lengths or counts.
    """
    columns = decode_batch_columns(
        buffer, position, max_decompressed_bytes=max_decompressed_bytes, check_crc=check_crc
    )
    rows = zip(
        columns.offsets,
        columns.timestamps,
        repeat(columns.timestamp_type),
        columns.keys,
        columns.values,
        columns.headers,
        strict=False,
    )
    return list(map(tuple.__new__, repeat(Record), rows))


def decode_batch_columns(
    buffer: Buffer,
    position: int = 0,
    *,
    header: BatchHeader | None = None,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    check_crc: bool = True,
) -> Columns:
    """As `decode_batch`, but as columns: for callers that make their own rows or need only some fields.

    `header` is the batch's header if it was read already.
    """
    if header is None:
        header = read_batch_header(buffer, position)
    data, start = record_bytes(buffer, position, header, max_decompressed_bytes, check_crc)
    return columns_of(data, start, header)


def columns_of(data: bytes, start: int, header: BatchHeader) -> Columns:
    """The records of a batch from `start` to the end of `data`, where `record_bytes` has put them.

    Raises ProtocolError.
    """
    count = header.record_count
    if not 0 <= count <= (len(data) - start) // SMALLEST_RECORD_BYTES:
        raise ProtocolError(
            f"batch at offset {header.base_offset}: {count} records cannot lie in {len(data) - start} bytes"
        )
    columns = decode_uniform(data, start, header) or _decoded(data, start, header)
    if columns.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return columns._replace(timestamps=[header.max_timestamp] * count)
    return columns


def decode_plain_batches(
    batches: Iterable[tuple[bytes, BatchHeader]], max_bytes: int, *, check_crc: bool
) -> tuple[Columns | None, int]:
    """The records of the first of `batches`, and of those after it, together, and how many batches these are.

    Stops before a batch that is invalid, compressed, or not `uniform`, or has other sizes, another leader
    epoch or a gap before its offsets, and after a batch with which there are `max_bytes`. None if it stops
    before the first. Each element is the bytes of a batch and its header. What is done once for all batches
    takes longer than to decode a batch of few records.
    """
    timestamps: list[int] = []
    contents: list[bytes] = []
    first: BatchHeader | None = None
    sizes: tuple[int, int] | None = None
    taken = size_bytes = next_offset = 0
    for batch, header in batches:
        if (
            header.attributes & _NOT_PLAIN
            or header.magic != CURRENT_MAGIC
            or LOG_OVERHEAD + header.batch_length != len(batch)
            or (
                first is not None
                and (
                    header.base_offset != next_offset
                    or header.partition_leader_epoch != first.partition_leader_epoch
                )
            )
        ):
            break
        before = len(timestamps), len(contents)
        found = append_uniform(batch, BATCH_HEADER_SIZE, header, timestamps, contents, sizes)
        if found is None:
            break
        # Only now, because the decoder of other batches checks it too.
        if check_crc and crc32c(memoryview(batch)[ATTRIBUTES_AT:]) != header.crc:
            del timestamps[before[0] :], contents[before[1] :]
            break
        if first is None:
            first, sizes = header, found
        taken += 1
        size_bytes += len(batch)
        next_offset = header.base_offset + header.record_count
        if size_bytes >= max_bytes:
            break
    if first is None or sizes is None:
        return None, 0
    return uniform_columns(first, sizes, timestamps, contents), taken


def _decoded(data: bytes, start: int, header: BatchHeader) -> Columns:
    records = data[start:]
    try:
        columns, end = decode_columns(records, header.record_count, header)
    except ProtocolError as error:
        raise ProtocolError(f"batch at offset {header.base_offset}: {error}") from None
    if end != len(records):
        raise ProtocolError(
            f"batch at offset {header.base_offset}: {len(records) - end} bytes follow its"
            f" {header.record_count} records"
        )
    return columns


def record_bytes(
    buffer: Buffer, position: int, header: BatchHeader, max_decompressed_bytes: int, check_crc: bool
) -> tuple[bytes, int]:
    """Bytes that end with the batch's decompressed records, and the position where the records start.

    A bytes object, because its slices are bytes, as keys and values must be. Raises ProtocolError.
    """
    if header.magic != CURRENT_MAGIC:
        raise ProtocolError(
            f"batch at offset {header.base_offset}: expected magic {CURRENT_MAGIC}, got {header.magic}"
        )
    end = position + LOG_OVERHEAD + header.batch_length
    if end > len(buffer):
        raise ProtocolError(
            f"batch at offset {header.base_offset}: truncated, expected {header.size_bytes} bytes,"
            f" got {len(buffer) - position}"
        )
    if check_crc and not batch_crc_is_valid(buffer, header, position):
        raise ProtocolError(
            f"batch at offset {header.base_offset}: its bytes do not match the CRC {header.crc:#010x}"
        )
    if not header.attributes & COMPRESSION_MASK and type(buffer) is bytes and end == len(buffer):
        return buffer, position + BATCH_HEADER_SIZE
    codec = header.compression
    packed = memoryview(buffer)[position + BATCH_HEADER_SIZE : end]
    if codec is Compression.NONE:
        return bytes(packed), 0
    try:
        return decompress(codec, packed, max_decompressed_bytes), 0
    except ProtocolError as error:
        raise ProtocolError(f"batch at offset {header.base_offset}: {error}") from None
