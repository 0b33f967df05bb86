"""Decodes the records of a batch into columns: one list per field.

Owns: the decoding of any records. A fast loop decodes ordinary records. It passes each other record to
`decode_record`, the plain decoder, which finds errors. Invariants: malformed records raise ProtocolError that
names the byte, and nothing else is raised; all columns have the same length. Columns, because callers can
make rows of them in the interpreter's own loops.
"""

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records.header import BatchHeader, TimestampType
from tidelog.protocol.records.varints import MAX_VARLONG_BYTES, decode_varint

Headers = tuple[tuple[str, bytes | None], ...]

# Length, attributes, timestamp delta, offset delta, key length, value length, header count: one byte each.
SMALLEST_RECORD_BYTES = 7
_SMALLEST_HEADER_BYTES = 2


class Columns(NamedTuple):
    """The records of one batch. Timestamps are milliseconds of the clock that `timestamp_type` names.

    `key_size` and `value_size` are the common size of all keys or values, -1 if all are None, and None if it
    is not known.
    """

    timestamp_type: TimestampType
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]
    key_size: int | None = None
    value_size: int | None = None


class Lists:
    """Columns that grow."""

    __slots__ = ("base_offset", "base_timestamp", "headers", "keys", "offsets", "timestamps", "values")

    def __init__(self, header: BatchHeader) -> None:
        self.base_offset = header.base_offset
        self.base_timestamp = header.base_timestamp
        self.offsets: list[int] = []
        self.timestamps: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []

    def columns(self, timestamp_type: TimestampType) -> Columns:
        return Columns(timestamp_type, self.offsets, self.timestamps, self.keys, self.values, self.headers)


def decode_columns(data: bytes, count: int, header: BatchHeader) -> tuple[Columns, int]:
    """`count` records from the start of `data`, and the position after them.

    Varints of one and two bytes are decoded in place; a first byte above 127 is corrected by 128. Whether one
    was longer, negative or past the end is checked at the record's end, because slices never fail.
    """
    lists = Lists(header)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    last_offset = 2 * header.last_offset_delta
    add_offset, add_timestamp = lists.offsets.append, lists.timestamps.append
    add_key, add_value, add_headers = lists.keys.append, lists.values.append, lists.headers.append
    position = 0
    for _ in range(count):
        start, unsure = position, 0
        try:
            if (length := data[position]) > 127:
                position += 1
                length += ((unsure := data[position]) << 7) - 128
            end = position + 1 + (length >> 1)
            if (delta := data[position + 2]) > 127:
                shift, more = 0, delta
                while more > 127 and shift < 56:
                    position += 1
                    shift += 7
                    delta += ((more := data[position + 2]) << shift) - (1 << shift)
                unsure |= more
            if (offset := data[position + 3]) > 127:
                position += 1
                offset += ((more := data[position + 3]) << 7) - 128
                unsure |= more
            if (size := data[position + 4]) > 127:
                position += 1
                size += ((more := data[position + 4]) << 7) - 128
                unsure |= more
            odd = length | offset
            if size == 1:
                key: bytes | None = None
                after = position + 5
            else:
                odd |= size
                after = position + 5 + (size >> 1)
                key = data[position + 5 : after]
            if (size := data[after]) > 127:
                after += 1
                size += ((more := data[after]) << 7) - 128
                unsure |= more
            position = after + 1
            if size == 1:
                value: bytes | None = None
                after = position
            else:
                odd |= size
                after = position + (size >> 1)
                value = data[position:after]
            if unsure < 128 and offset <= last_offset and not odd & 1:
                headers: Headers = ()
                position = after + 1
                if data[after]:
                    headers, position = _decode_headers(data, after, end, start)
                if position == end:
                    add_offset(base_offset + (offset >> 1))
                    add_timestamp(base_timestamp + (-(delta >> 1) - 1 if delta & 1 else delta >> 1))
                    add_key(key)
                    add_value(value)
                    add_headers(headers)
                    continue
        except (IndexError, ProtocolError):
            pass  # The plain decoder finds the error, if there is one.
        position = decode_record(data, start, header, lists)
    return lists.columns(header.timestamp_type), position


def decode_record(data: bytes, start: int, header: BatchHeader, lists: Lists) -> int:
    """Decode any record at `start` into `lists` and return the position after it."""
    length, position = decode_varint(data, start)
    end = position + length
    if length < SMALLEST_RECORD_BYTES - 1 or end > len(data):
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
    lists.offsets.append(header.base_offset + offset_delta)
    lists.timestamps.append(header.base_timestamp + timestamp_delta)
    lists.keys.append(key)
    lists.values.append(value)
    lists.headers.append(headers)
    return end


def _decode_sized(data: bytes, position: int, end: int, start: int, what: str) -> tuple[bytes | None, int]:
    """A field after its length, None for length -1. It must end before or at `end`."""
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
