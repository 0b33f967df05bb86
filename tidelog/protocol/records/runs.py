"""Encodes a run of records together: the bytes around their contents are made by C loops over lists.

A run is consecutive records of one batch without headers and with values that are not null; all of them have
keys or none has. Their offset deltas all take the same number of bytes, and so do their timestamp deltas. So
the position of each field depends only on the lengths of key and value.

Owns: the bytes of a run, and the sizes by which the builder counts them. Invariants: pure. The bytes are the
same as if the builder encoded each record alone.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import add
from typing import Final, TypeVar

from tidelog.protocol.records.varints import SHORT_NUMBERS, TABLE_SIZE, VARINTS, encode_varint

_T = TypeVar("_T")

# Offset deltas below these take one, two, ... bytes.
_WIDTH_ENDS: Final = (1 << 6, 1 << 13, 1 << 20, 1 << 27, 1 << 34)
# A run waits by reference, which takes more memory than its bytes.
_LONGEST_RUN: Final = 1024
_MOST_REMEMBERED: Final = 8192
_NO_ATTRIBUTES: Final = b"\x00"
_NULL_KEY: Final = b"\x01"
_NO_HEADERS: Final = b"\x00"

FIELD_SIZES: Final = [*range(1, SHORT_NUMBERS + 1), *range(SHORT_NUMBERS + 2, TABLE_SIZE + 2)]
"""`field_size` of all lengths in the table of varints: for the fastest paths, which fail with IndexError for
others."""


def field_size(length: int) -> int:
    """Bytes of a length and of the content after it."""
    return length + len(encode_varint(length))


def fixed_size(timestamp_delta: bytes, offset_delta: int, *, has_key: bool) -> int:
    """Bytes of a record's body (all after its own length) without value, key and their lengths. A null key
    counts."""
    size = len(_NO_ATTRIBUTES) + len(timestamp_delta) + len(encode_varint(offset_delta)) + len(_NO_HEADERS)
    return size if has_key else size + len(_NULL_KEY)


def run_end(offset_delta: int) -> int:
    """The offset delta before which a run that begins with `offset_delta` must end."""
    return min(next(end for end in _WIDTH_ENDS if offset_delta < end), offset_delta + _LONGEST_RUN)


class _Remembered(dict[int, _T]):
    """What `make` returns for each number, computed on first use."""

    def __init__(self, make: Callable[[int], _T]) -> None:
        self._make = make

    def __missing__(self, number: int) -> _T:
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        made = self[number] = self._make(number)
        return made


_field_sizes = _Remembered(field_size)
_lengths = _Remembered(encode_varint)
_lengths_after_null_key = _Remembered(lambda length: _NULL_KEY + encode_varint(length))


@lru_cache(64)
def _heads(fixed: int) -> _Remembered[bytes]:
    """The bytes from the end of the record before to the timestamp delta, by the size of key and value with
    their lengths. `fixed` is the `fixed_size`."""
    return _Remembered(lambda size: _NO_HEADERS + encode_varint(fixed + size) + _NO_ATTRIBUTES)


def encode_run(
    stamps: Sequence[tuple[int, bytes]],
    first_offset_delta: int,
    keys: Sequence[bytes] | None,
    values: Sequence[bytes],
) -> list[bytes]:
    """The records as pieces to join. `stamps` has each encoded timestamp delta with the offset delta of the
    first record that has it."""
    count = len(values)
    end = first_offset_delta + count
    if end <= TABLE_SIZE:
        numbers = VARINTS[first_offset_delta:end]
    else:
        numbers = [encode_varint(number) for number in range(first_offset_delta, end)]
    heads = _heads(fixed_size(stamps[0][1], first_offset_delta, has_key=keys is not None))
    sizes = list(map(len, values))
    key_sizes = None if keys is None else list(map(len, keys))
    stretches = [(delta, after - first) for (first, delta), (after, _) in pairwise((*stamps, (end, b"")))]
    are_alike = sizes.count(sizes[0]) == count
    if are_alike and (key_sizes is None or key_sizes.count(key_sizes[0]) == count):
        key_size = None if key_sizes is None else key_sizes[0]
        pieces, width = _around_alike(heads, stretches, key_size, sizes[0])
        pieces[1::width] = numbers
    else:
        pieces, width = _around(heads, stretches, key_sizes, sizes)
        pieces[2::width] = numbers
    if keys is not None:
        pieces[width - 3 :: width] = keys
    pieces[width - 1 :: width] = values
    # No record is before the first, and the last one's header count is missing.
    pieces[0] = pieces[0][len(_NO_HEADERS) :]
    pieces.append(_NO_HEADERS)
    return pieces


def _around_alike(
    heads: _Remembered[bytes], stretches: Sequence[tuple[bytes, int]], key_size: int | None, size: int
) -> tuple[list[bytes], int]:
    """The pieces of records that all have these sizes, and how many a record has. Offset deltas, keys and
    values are empty. Timestamp deltas are joined with the bytes before them, which saves a piece."""
    around: tuple[bytes, ...]
    if key_size is None:
        head, around = heads[_field_sizes[size]], (b"", _lengths_after_null_key[size], b"")
    else:
        head = heads[_field_sizes[key_size] + _field_sizes[size]]
        around = (b"", _lengths[key_size], b"", _lengths[size], b"")
    pieces: list[bytes] = []
    for delta, more in stretches:
        pieces += (head + delta, *around) * more
    return pieces, 1 + len(around)


def _around(
    heads: _Remembered[bytes],
    stretches: Sequence[tuple[bytes, int]],
    key_sizes: Sequence[int] | None,
    sizes: Sequence[int],
) -> tuple[list[bytes], int]:
    """As `_around_alike` for records of any sizes, column by column."""
    width = 5 if key_sizes is None else 7
    pieces = [b""] * (width * len(sizes))
    fields: Iterable[int] = map(_field_sizes.__getitem__, sizes)
    if key_sizes is None:
        pieces[3::width] = map(_lengths_after_null_key.__getitem__, sizes)
    else:
        fields = map(add, map(_field_sizes.__getitem__, key_sizes), fields)
        pieces[3::width] = map(_lengths.__getitem__, key_sizes)
        pieces[5::width] = map(_lengths.__getitem__, sizes)
    pieces[::width] = map(heads.__getitem__, fields)
    deltas: list[bytes] = []
    for delta, more in stretches:
        deltas += (delta,) * more
    pieces[1::width] = deltas
    return pieces, width
