"""Decoding of record batches into records, quickly for ordinary records and exactly for all others.

Owns: the reading of a batch's records. A loop written for speed decodes what it is sure of; whatever else
it meets it hands, record by record, to `_decode_record`, its plain twin, which decides what is wrong.
Invariants: every malformed batch raises ProtocolError that names the batch's offset and the byte at fault,
and nothing else is ever raised; memory stays within `max_decompressed_bytes` and a small multiple of it for
the records themselves.
Callers: the client's fetcher, look-ups by timestamp in the broker, tools. The produce path decodes no
records.
"""

from typing import NamedTuple, NoReturn

from protocol.compression import Compression, decompress
from protocol.errors import ProtocolError
from protocol.records.header import (
    BATCH_HEADER_SIZE,
    CURRENT_MAGIC,
    BatchHeader,
    TimestampType,
    batch_crc_is_valid,
    read_batch_header,
)
from protocol.records.varints import MAX_VARLONG_BYTES, decode_varint
from protocol.types import Buffer

Headers = tuple[tuple[str, bytes | None], ...]

DEFAULT_MAX_DECOMPRESSED_BYTES = 104_857_600
# Length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each.
_SMALLEST_RECORD_BYTES = 7
_SMALLEST_HEADER_BYTES = 2


class Record(NamedTuple):
    """One record as a consumer sees it. `timestamp` is in milliseconds, whose clock `timestamp_type`
    tells."""

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
    """The records of the batch at `position`, in order; bytes behind the batch are not looked at.

    Raises ProtocolError for anything malformed: a batch cut short, a wrong CRC, an unknown codec, records
    that decompress to more than `max_decompressed_bytes`, or records that contradict their lengths or counts.
    """
    header = read_batch_header(buffer, position)
    data = _record_bytes(buffer, position, header, max_decompressed_bytes, check_crc)
    count = header.record_count
    if not 0 <= count <= len(data) // _SMALLEST_RECORD_BYTES:
        raise ProtocolError(
            f"batch at offset {header.base_offset}: {count} records cannot lie in {len(data)} bytes"
        )
    try:
        records, end = _decode_records(data, count, header)
    except ProtocolError as error:
        raise ProtocolError(f"batch at offset {header.base_offset}: {error}") from None
    if end != len(data):
        raise ProtocolError(
            f"batch at offset {header.base_offset}: {len(data) - end} bytes follow its {count} records"
        )
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return [
            Record(offset, header.max_timestamp, timestamp_type, key, value, headers)
            for offset, _, timestamp_type, key, value, headers in records
        ]
    return records


def max_timestamp_record(
    buffer: Buffer,
    position: int = 0,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> tuple[int, int] | None:
    """Offset and timestamp of the batch's first record with the largest timestamp; None for an empty batch.

    Raises as `decode_batch` does.
    """
    records = decode_batch(buffer, position, max_decompressed_bytes=max_decompressed_bytes)
    if not records:
        return None
    latest = max(records, key=_timestamp_of)
    return latest.offset, latest.timestamp


def first_record_at_or_after(
    buffer: Buffer,
    timestamp_ms: int,
    position: int = 0,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> tuple[int, int] | None:
    """Offset and timestamp of the batch's first record that is not older than `timestamp_ms`, or None.

    Raises as `decode_batch` does.
    """
    for record in decode_batch(buffer, position, max_decompressed_bytes=max_decompressed_bytes):
        if record.timestamp >= timestamp_ms:
            return record.offset, record.timestamp
    return None


def _timestamp_of(record: Record) -> int:
    return record.timestamp


def _record_bytes(
    buffer: Buffer, position: int, header: BatchHeader, max_decompressed_bytes: int, check_crc: bool
) -> bytes:
    """The batch's records, decompressed, as bytes: slices of bytes are bytes, which keys and values must
    be."""
    if header.magic != CURRENT_MAGIC:
        raise ProtocolError(
            f"batch at offset {header.base_offset}: magic {header.magic}, expected {CURRENT_MAGIC}"
        )
    end = position + header.size_bytes
    if end > len(buffer):
        raise ProtocolError(
            f"batch at offset {header.base_offset}: cut short, {header.size_bytes} bytes were announced and"
            f" {len(buffer) - position} are there"
        )
    if check_crc and not batch_crc_is_valid(buffer, header, position):
        raise ProtocolError(
            f"batch at offset {header.base_offset}: its bytes do not give the CRC {header.crc:#010x}"
        )
    codec = header.compression
    packed = memoryview(buffer)[position + BATCH_HEADER_SIZE : end]
    if codec is Compression.NONE:
        return bytes(packed)
    try:
        return decompress(codec, packed, max_decompressed_bytes)
    except ProtocolError as error:
        raise ProtocolError(f"batch at offset {header.base_offset}: {error}") from None


def _decode_records(data: bytes, count: int, header: BatchHeader) -> tuple[list[Record], int]:
    """`count` records from the start of `data`, and the position behind them.

    Varints of one and two bytes are decoded in place (a first byte above 127 stands 128 too high, whence the
    corrections). Whether they were longer, negative or ran over the end is asked once a record, at its end:
    all reads before that are harmless, for slices clip and positions only grow.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    timestamp_type = header.timestamp_type
    last_offset = 2 * header.last_offset_delta
    records: list[Record] = []
    add, new = records.append, tuple.__new__
    position = 0
    for _ in range(count):
        start = position
        unsure = 0
        try:
            if (length := data[position]) > 127:
                position += 1
                length += ((unsure := data[position]) << 7) - 128
            end = position + 1 + (length >> 1)
            position += 2
            if (delta := data[position]) > 127:
                shift, more = 0, delta
                while more > 127 and shift < 56:
                    position += 1
                    shift += 7
                    delta += ((more := data[position]) << shift) - (1 << shift)
                unsure |= more
            position += 1
            if (offset := data[position]) > 127:
                position += 1
                offset += ((more := data[position]) << 7) - 128
                unsure |= more
            position += 1
            if (size := data[position]) > 127:
                position += 1
                size += ((more := data[position]) << 7) - 128
                unsure |= more
            position += 1
            after = position + (size >> 1)
            key = None if size == 1 else data[position:after]
            odd = length | offset | (size != 1 and size)
            if (size := data[after]) > 127:
                after += 1
                size += ((more := data[after]) << 7) - 128
                unsure |= more
            position = after + 1
            after = position + (size >> 1)
            value = None if size == 1 else data[position:after]
            if unsure < 128 and offset <= last_offset and not (odd | (size != 1 and size)) & 1:
                position = after + 1
                headers: Headers = ()
                if data[after]:
                    headers, position = _decode_headers(data, after, end, start)
                if position == end:
                    stamp = base_timestamp + (-(delta >> 1) - 1 if delta & 1 else delta >> 1)
                    offset = base_offset + (offset >> 1)
                    add(new(Record, (offset, stamp, timestamp_type, key, value, headers)))
                    continue
        except (IndexError, ProtocolError):
            pass  # A field seemed to break its bounds; the twin finds out whether it did.
        record, position = _decode_record(data, start, header)
        add(record)
    return records, position


def _decode_record(data: bytes, start: int, header: BatchHeader) -> tuple[Record, int]:
    """The record at `start` and the position behind it, whatever it holds."""
    length, position = decode_varint(data, start)
    end = position + length
    if length < _SMALLEST_RECORD_BYTES - 1 or end > len(data):
        raise ProtocolError(f"record at byte {start}: length {length}, {len(data) - position} bytes are left")
    timestamp_delta, position = decode_varint(data, position + 1, MAX_VARLONG_BYTES)
    offset_delta, position = decode_varint(data, position)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise ProtocolError(
            f"record at byte {start}: offset delta {offset_delta} in a batch that ends at"
            f" {header.last_offset_delta}"
        )
    key, position = _decode_sized(data, position, end, start, "key")
    value, position = _decode_sized(data, position, end, start, "value")
    headers, position = _decode_headers(data, position, end, start)
    if position != end:
        raise ProtocolError(f"record at byte {start}: its fields end at byte {position}, its length at {end}")
    record = Record(
        header.base_offset + offset_delta,
        header.base_timestamp + timestamp_delta,
        header.timestamp_type,
        key,
        value,
        headers,
    )
    return record, end


def _decode_sized(data: bytes, position: int, end: int, start: int, what: str) -> tuple[bytes | None, int]:
    """A field with its length before it, None for length -1, that must lie before `end`."""
    if position < end and (size := data[position]) < 128 and not size & 1:
        size >>= 1
        position += 1
    else:
        size, position = decode_varint(data, position)
        if size == -1:
            return None, position
    after = position + size
    if size < 0 or after > end:
        _refuse(start, f"{what} of {size} bytes, {end - position} are left in the record")
    return data[position:after], after


def _decode_headers(data: bytes, position: int, end: int, start: int) -> tuple[Headers, int]:
    count, position = decode_varint(data, position)
    if end > len(data) or not 0 <= count <= max(end - position, 0) // _SMALLEST_HEADER_BYTES:
        _refuse(start, f"{count} headers, {end - position} are left in the record")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _decode_sized(data, position, end, start, "header name")
        if name is None:
            _refuse(start, "a header without a name")
        try:
            text = name.decode()
        except UnicodeDecodeError as error:
            _refuse(start, f"a header name is not UTF-8 ({error.reason})")
        content, position = _decode_sized(data, position, end, start, "header value")
        headers.append((text, content))
    return tuple(headers), position


def _refuse(start: int, reason: str) -> NoReturn:
    raise ProtocolError(f"record at byte {start}: {reason}")
