"""Batches whose records are all of one size, decoded by a few comparisons and a few unpackings.

Owns: the way of records that have keys of one size, values of one size and no headers, as many producers send
them. The sizes of the first one tell where each byte of the encoding has to be; then only offsets, timestamps
and contents differ, and a strided slice shows one byte of all records at once.
Invariants: a batch is taken only when each byte that is neither content nor timestamp is the one that records
of these sizes have at that place, so what comes out equals what `columns` makes of it; None for any other,
and nothing is raised. What is kept of sizes seen stays below four megabytes.
Callers: `reader`, before a batch is decoded otherwise. Safe in any thread.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.header import LOG_APPEND_TIME_BIT, BatchHeader, TimestampType
from tidelog.protocol.records.varints import (
    ONE_BYTE_DELTAS,
    SHORT_NUMBERS,
    TABLE_SIZE,
    decode_varint,
    dense_column,
    encode_varint,
)

_TYPES = {0: TimestampType.CREATE_TIME, LOG_APPEND_TIME_BIT: TimestampType.LOG_APPEND_TIME}
_NO_ATTRIBUTES = b"\0"
_NO_HEADERS = b"\0"
# Records that one unpacking takes at most.
_BLOCK = 64


class _Shape(NamedTuple):
    """A record whose offset delta takes `offset_width` bytes. Places count from its start."""

    size_bytes: int
    constant: tuple[tuple[int, bytes], ...]
    """Places and what stands there."""
    stamp_at: int
    offset_width: int
    layout: str
    """Its key and its value, for struct."""


@lru_cache(maxsize=512)
def _shape(offset_width: int, key_size: int, value_size: int) -> _Shape:
    middle, before_value = encode_varint(key_size), encode_varint(value_size)
    content_size = max(key_size, 0) + max(value_size, 0)
    body_size = 3 + offset_width + len(middle) + len(before_value) + content_size
    head = encode_varint(body_size) + _NO_ATTRIBUTES
    size_bytes = len(head) - 1 + body_size
    middle_at = len(head) + 1 + offset_width
    key_at = middle_at + len(middle)
    before_value_at = key_at + max(key_size, 0)
    pieces = (0, head), (middle_at, middle), (before_value_at, before_value), (size_bytes - 1, _NO_HEADERS)
    constant = tuple((at + place, bytes([byte])) for at, piece in pieces for place, byte in enumerate(piece))
    key = f"{key_at}x" + f"{key_size}s" * (key_size >= 0)
    value = f"{len(before_value)}x" + f"{value_size}s" * (value_size >= 0)
    return _Shape(size_bytes, constant, len(head), offset_width, f"{key}{value}x")


@lru_cache(maxsize=512)
def _unpacker(layout: str, count: int) -> Callable[[bytes, int], tuple[Any, ...]]:
    return Struct("=" + layout * count).unpack_from


def decode_uniform(data: bytes, start: int, header: BatchHeader) -> Columns | None:
    """The batch's records, which lie from `start` to the end of `data`, or None."""
    count = header.record_count
    if not 1 < count <= min(TABLE_SIZE, header.last_offset_delta + 1):
        return None
    try:
        key_size, value_size = _sizes_of_first(data, start)
    except (IndexError, ProtocolError):
        return None
    if key_size < -1 or value_size < -1 or (key_size < 0 and value_size < 0):
        return None
    few = min(count, SHORT_NUMBERS)
    short = _shape(1, key_size, value_size)
    long = short if count == few else _shape(2, key_size, value_size)
    middle = start + few * short.size_bytes
    if middle + (count - few) * long.size_bytes != len(data):
        return None
    timestamps = _timestamps(data, start, short, 0, few, header.base_timestamp)
    if timestamps is None:
        return None
    contents: Sequence[bytes] = _unpacker(short.layout, few)(data, start)
    if count > few:
        more = _timestamps(data, middle, long, few, count - few, header.base_timestamp)
        if more is None:
            return None
        timestamps += more
        contents = [*contents, *_contents(data, middle, long, count - few)]
    keys: Sequence[bytes | None] = contents[::2]
    values: Sequence[bytes | None] = contents[1::2]
    if key_size < 0:
        keys, values = (None,) * count, contents
    elif value_size < 0:
        keys, values = contents, (None,) * count
    kind = _TYPES[header.attributes & LOG_APPEND_TIME_BIT]
    offsets = range(header.base_offset, header.base_offset + count)
    # The named tuple's own constructor takes longer than all that is left to do here.
    row = kind, offsets, timestamps, keys, values, ((),) * count, key_size, value_size
    return tuple.__new__(Columns, row)


def _sizes_of_first(data: bytes, start: int) -> tuple[int, int]:
    """Of its key and its value, if it is as it should be. Raises IndexError, ProtocolError."""
    # Behind its length: attributes, timestamp delta and offset delta, a byte each in a batch's first record.
    at = start + 4 if data[start] < 128 else start + 5 if data[start + 1] < 128 else start + 6
    key_size, at = _number(data, at)
    return key_size, _number(data, at + max(key_size, 0))[0]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """As `decode_varint`, quickly for the usual ones."""
    zigzag = data[at]
    if zigzag < 128:
        at += 1
    elif (more := data[at + 1]) < 128:
        zigzag += (more << 7) - 128
        at += 2
    else:
        return decode_varint(data, at)
    return (zigzag >> 1) ^ -(zigzag & 1), at


def _timestamps(
    data: bytes, start: int, shape: _Shape, first: int, count: int, base_timestamp: int
) -> list[int] | None:
    """Those of `count` records from `start` on, the batch's `first`th and so on; None for any other shape."""
    step = shape.size_bytes
    stop = start + count * step
    for place, byte in shape.constant:
        if data[start + place : stop : step] != byte * count:
            return None
    at = start + shape.stamp_at
    for more in range(shape.offset_width):
        if data[at + 1 + more : stop : step] != dense_column(first, count, more):
            return None
    stamps = data[at:stop:step]
    if not stamps.isascii():
        return None
    if stamps.count(stamps[0]) == count:
        return [base_timestamp + ONE_BYTE_DELTAS[stamps[0]]] * count
    return [base_timestamp + ONE_BYTE_DELTAS[each] for each in stamps]


def _contents(data: bytes, start: int, shape: _Shape, count: int) -> list[bytes]:
    """Keys and values, as far as they are not None, record by record."""
    contents: list[bytes] = []
    whole, rest = divmod(count, _BLOCK)
    unpack = _unpacker(shape.layout, _BLOCK)
    block_bytes = _BLOCK * shape.size_bytes
    for at in range(start, start + whole * block_bytes, block_bytes):
        contents += unpack(data, at)
    if rest:
        contents += _unpacker(shape.layout, rest)(data, start + whole * block_bytes)
    return contents
