"""Batches whose records all have one size: proved by a few comparisons, decoded by a few unpack calls.

Owns: the decoding of records with keys of one size, values of one size and no headers, as many producers send
them. The sizes of the first record determine the position of each byte. Only offsets, timestamps and contents
differ, and a strided slice is one byte of all records. Invariants: a batch is decoded only if each byte other
than content and timestamp is right for these sizes, and its timestamps are within 63 ms of the batch's. The
result is the same as that of `columns`; None for any other batch, and nothing is raised. The caches stay
below four megabytes. Safe in any thread.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.header import LOG_APPEND_TIME_BIT, BatchHeader, TimestampType
from tidelog.protocol.records.varints import (
    MOST_NUMBERS,
    ONE_BYTE_DELTAS,
    TABLE_SIZE,
    decode_varint,
    dense_column,
    encode_varint,
    widths,
)

_TYPES = {0: TimestampType.CREATE_TIME, LOG_APPEND_TIME_BIT: TimestampType.LOG_APPEND_TIME}
_NO_ATTRIBUTES = b"\0"
_NO_HEADERS = b"\0"
_NO_CONTENT = (-1, -1)
# The most records in one unpack call.
_BLOCK = 64


class _Shape(NamedTuple):
    """A record whose offset delta takes `offset_width` bytes. Positions count from its start."""

    size_bytes: int
    constant: tuple[tuple[int, bytes], ...]
    """Positions and their bytes."""
    stamp_at: int
    offset_width: int
    layout: str
    """The struct format of its key and its value."""
    key_size: int
    value_size: int


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
    return _Shape(size_bytes, constant, len(head), offset_width, f"{key}{value}x", key_size, value_size)


@lru_cache(maxsize=512)
def _unpacker(layout: str, count: int) -> Callable[[bytes, int], tuple[Any, ...]]:
    return Struct("=" + layout * count).unpack_from


# Consecutive records of a batch whose offset deltas take the same number of bytes: the position of the first,
# their number, and their encoded timestamp deltas, one byte each. A plain tuple, as each batch needs one.
Stretch = tuple[_Shape, int, int, bytes]


class _Part(NamedTuple):
    """How to prove one stretch, with slices that are made once: making them takes longer than comparing."""

    shape: _Shape
    at: int
    records: int
    constant: tuple[tuple[slice, bytes], ...]
    offset_deltas: tuple[tuple[slice, int, int], ...]
    """Each with the number of the first record, and which byte of the number it is."""
    stamps: slice


# By the bytes of the data, where the records start and how many they are, what the last such batch held.
_plans: dict[tuple[int, int, int], list[_Part]] = {}
_MOST_PLANS = 512


def stretches_of(data: bytes, start: int, count: int) -> list[Stretch] | None:
    """The stretches of the batch's `count` records, from `start` to the end of `data`, or None.

    Their offset deltas are 0, 1, 2, …
    """
    # The batches of one producer are often alike, so most need only the proof.
    known = len(data), start, count
    plan = _plans.get(known)
    if plan is not None and (stretches := _proved(data, plan)) is not None:
        return stretches
    plan = _plan(data, start, count)
    if plan is None or (stretches := _proved(data, plan)) is None:
        return None
    if len(_plans) >= _MOST_PLANS:
        _plans.clear()
    _plans[known] = plan
    return stretches


def _plan(data: bytes, start: int, count: int) -> list[_Part] | None:
    """What the records are if they are as their number and the first one say; None for any other number of
    bytes."""
    if count > MOST_NUMBERS:
        return None
    try:
        length, _ = _number(data, start)
        parts = widths(count)
        if start + sum(_size_bytes(length + width - 1) * more for width, _, more in parts) != len(data):
            return None
        key_size, value_size = _sizes_of_first(data, start)
    except (IndexError, ProtocolError):
        return None
    if key_size < -1 or value_size < -1:
        return None
    plan: list[_Part] = []
    at = start
    for width, first, more in parts:
        shape = _shape(width, key_size, value_size)
        plan.append(_part(shape, at, first, more))
        at += shape.size_bytes * more
    return plan if at == len(data) else None


def _part(shape: _Shape, at: int, first: int, count: int) -> _Part:
    step = shape.size_bytes
    stop = at + count * step
    delta_at = at + shape.stamp_at + 1
    return _Part(
        shape,
        at,
        count,
        tuple((slice(at + place, stop, step), byte) for place, byte in shape.constant),
        tuple((slice(delta_at + more, stop, step), first, more) for more in range(shape.offset_width)),
        slice(at + shape.stamp_at, stop, step),
    )


def _proved(data: bytes, plan: list[_Part]) -> list[Stretch] | None:
    """The stretches of this plan, or None if the records are others."""
    stretches = []
    for shape, at, count, constant, offset_deltas, stamps_at in plan:
        for column, byte in constant:
            if data[column] != byte * count:
                return None
        for column, first, more in offset_deltas:
            if data[column] != dense_column(first, count, more):
                return None
        stamps = data[stamps_at]
        if not stamps.isascii():
            return None
        stretches.append((shape, at, count, stamps))
    return stretches


def _size_bytes(length: int) -> int:
    """The size of a record, its length field included."""
    return length + (1 if length < 64 else 2 if length < TABLE_SIZE else len(encode_varint(length)))


def decode_uniform(data: bytes, start: int, header: BatchHeader) -> Columns | None:
    """The batch's records, from `start` to the end of `data`, or None."""
    timestamps: list[int] = []
    contents: list[bytes] = []
    sizes = append_uniform(data, start, header, timestamps, contents)
    return None if sizes is None else uniform_columns(header, sizes, timestamps, contents)


def append_uniform(
    data: bytes,
    start: int,
    header: BatchHeader,
    timestamps: list[int],
    contents: list[bytes],
    alike: tuple[int, int] | None = None,
) -> tuple[int, int] | None:
    """Append the batch's timestamps, and its keys and values that are not None in the order of the records.

    Returns the sizes of a key and of a value, -1 for None. If that is not `alike`, or the records are not
    uniform, it appends nothing and returns None.
    """
    count = header.record_count
    if not 0 < count <= header.last_offset_delta + 1:
        return None
    stretches = stretches_of(data, start, count)
    if stretches is None:
        return None
    shape, _, _, _ = stretches[0]
    sizes = shape.key_size, shape.value_size
    if sizes == _NO_CONTENT or sizes != (alike or sizes):
        return None
    for shape, at, more, stamps in stretches:
        timestamps += _timestamps(stamps, header.base_timestamp)
        _append_contents(contents, data, at, shape, more)
    return sizes


def uniform_columns(
    header: BatchHeader, sizes: tuple[int, int], timestamps: list[int], contents: list[bytes]
) -> Columns:
    """What `append_uniform` appended of one batch, or of several without a gap between their offsets.
    `header` is that of the first."""
    key_size, value_size = sizes
    count = len(timestamps)
    keys: Sequence[bytes | None] = contents[::2]
    values: Sequence[bytes | None] = contents[1::2]
    if key_size < 0:
        keys, values = (None,) * count, contents
    elif value_size < 0:
        keys, values = contents, (None,) * count
    kind = _TYPES[header.attributes & LOG_APPEND_TIME_BIT]
    offsets = range(header.base_offset, header.base_offset + count)
    # Not by the named tuple's own constructor, which takes as long as some records.
    row = kind, offsets, timestamps, keys, values, ((),) * count, key_size, value_size
    return tuple.__new__(Columns, row)


def _sizes_of_first(data: bytes, start: int) -> tuple[int, int]:
    """The sizes of the first record's key and value. Raises IndexError or ProtocolError."""
    at = start + 4 if data[start] < 128 else start + 5 if data[start + 1] < 128 else start + 6
    key_size, at = _number(data, at)
    return key_size, _number(data, at + max(key_size, 0))[0]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """As `decode_varint`, but faster for usual numbers."""
    zigzag = data[at]
    if zigzag < 128:
        at += 1
    elif (more := data[at + 1]) < 128:
        zigzag += (more << 7) - 128
        at += 2
    else:
        return decode_varint(data, at)
    return (zigzag >> 1) ^ -(zigzag & 1), at


def _timestamps(stamps: bytes, base_timestamp: int) -> list[int]:
    if stamps.count(stamps[0]) == len(stamps):
        return [base_timestamp + ONE_BYTE_DELTAS[stamps[0]]] * len(stamps)
    return [base_timestamp + ONE_BYTE_DELTAS[each] for each in stamps]


def _append_contents(contents: list[bytes], data: bytes, start: int, shape: _Shape, count: int) -> None:
    """Append the keys and values that are not None, in the order of the records."""
    if count >= _BLOCK:
        unpack = _unpacker(shape.layout, _BLOCK)
        block_bytes = _BLOCK * shape.size_bytes
        end = start + count // _BLOCK * block_bytes
        for at in range(start, end, block_bytes):
            contents += unpack(data, at)
        start = end
    if rest := count % _BLOCK:
        contents += _unpacker(shape.layout, rest)(data, start)
