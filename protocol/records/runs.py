"""Encodes a run of records together: their common bytes are made once, the others by C loops over lists.

A run is consecutive records of one batch with one timestamp, no headers and values that are not null; all of
them have keys or none has. So they differ only in offset delta, lengths and contents, and records with the
same lengths (their shape) begin with the same bytes.

Owns: the bytes of a run, and the size of a record by its shape. Invariants: pure. The bytes are the same as
if the builder encoded each record alone. All offset deltas of a run take the same number of bytes; `run_end`
says where a run must end for that.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from tidelog.protocol.records.varints import TABLE_SIZE, VARINTS, encode_varint

Shape: TypeAlias = int | tuple[int, int]
"""Length of the value, or (length of the key, length of the value)."""

# Offset deltas below these take one, two, ... bytes.
_WIDTH_ENDS: Final = (1 << 6, 1 << 13, 1 << 20, 1 << 27, 1 << 34)
_MOST_SHAPES: Final = 8192
_NULL_KEY: Final = b"\x01"
_NO_HEADERS: Final = b"\x00"


class RecordSizes(dict[Shape, int]):
    """Bytes of a whole record by its shape, computed on first use. `deltas_size` is the size of timestamp
    delta and offset delta together."""

    def __init__(self, deltas_size: int) -> None:
        # Attributes and header count take one byte each.
        self._fixed = 1 + deltas_size + 1

    def __missing__(self, shape: Shape) -> int:
        if len(self) >= _MOST_SHAPES:
            self.clear()
        body = _body_size(self._fixed, shape)
        size = self[shape] = len(encode_varint(body)) + body
        return size


@lru_cache(64)
def record_sizes(deltas_size: int) -> RecordSizes:
    """The sizes of records whose timestamp and offset delta take `deltas_size` bytes together."""
    return RecordSizes(deltas_size)


def run_end(offset_delta: int) -> int:
    """The first offset delta after `offset_delta` that takes more bytes."""
    return next(end for end in _WIDTH_ENDS if offset_delta < end)


def encode_run(
    timestamp_delta: bytes, first_offset_delta: int, keys: Sequence[bytes], values: Sequence[bytes]
) -> list[bytes]:
    """The records as pieces to join. `keys` is empty if they have none. `timestamp_delta` is encoded."""
    count = len(values)
    end = first_offset_delta + count
    if end <= TABLE_SIZE:
        numbers = VARINTS[first_offset_delta:end]
    else:
        numbers = [encode_varint(number) for number in range(first_offset_delta, end)]
    fixed = 1 + len(timestamp_delta) + len(numbers[0]) + 1
    # The bytes after a record's value are joined with the next one's length, which saves a piece.
    start = b"\x00" + timestamp_delta
    lengths = list(map(len, values))
    shapes: Sequence[Shape] = list(zip(map(len, keys), lengths, strict=True)) if keys else lengths
    first = shapes[0]
    if shapes.count(first) == count:
        pieces = [*_around(first, fixed, start), b""] * count
    else:
        around = {shape: _around(shape, fixed, start) for shape in set(shapes)}
        pieces = []
        for shape in shapes:
            pieces += around[shape]
            pieces.append(b"")
    width = len(pieces) // count
    pieces[1::width] = numbers
    if keys:
        pieces[3::width] = keys
    pieces[width - 1 :: width] = values
    pieces[0] = pieces[0][len(_NO_HEADERS) :]
    pieces.append(_NO_HEADERS)
    return pieces


def _around(shape: Shape, fixed: int, start: bytes) -> tuple[bytes, ...]:
    """The pieces of a record of this shape, without its value, its offset delta and its key."""
    head = _NO_HEADERS + encode_varint(_body_size(fixed, shape)) + start
    if isinstance(shape, int):
        return head, b"", _NULL_KEY + encode_varint(shape)
    key, value = shape
    return head, b"", encode_varint(key), b"", encode_varint(value)


def _body_size(fixed: int, shape: Shape) -> int:
    """Bytes of a record after its own length."""
    if isinstance(shape, int):
        return fixed + len(_NULL_KEY) + len(encode_varint(shape)) + shape
    key, value = shape
    return fixed + len(encode_varint(key)) + key + len(encode_varint(value)) + value
