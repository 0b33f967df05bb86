"""Zigzag varints as records use them, with the small ones precomputed.

Owns: the encoding of one signed number, and a table for nearly every field of nearly every record.
Invariants:
the table holds only 0 .. TABLE_SIZE - 1. Callers must not index it with a negative number, which Python would
read from its end.
"""

from functools import lru_cache
from itertools import pairwise
from typing import Final

from tidelog.protocol.errors import ProtocolError

# All numbers whose zigzag form takes at most two bytes.
TABLE_SIZE: Final = 8192
MAX_VARLONG_BYTES: Final = 10
MAX_VARINT_BYTES: Final = 5


def _encode(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 127:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


VARINTS: Final[list[bytes]] = [_encode(value) for value in range(TABLE_SIZE)]


# Numbers below it take one byte, the other numbers of the table two.
SHORT_NUMBERS: Final = 64
# The number of each byte that is a whole varint.
ONE_BYTE_DELTAS: Final = [(each >> 1) ^ -(each & 1) for each in range(128)]
_FIRST_BYTES: Final = bytes(each[0] for each in VARINTS)
_LAST_BYTES: Final = bytes(each[-1] for each in VARINTS)
# The first numbers whose varints take one more byte.
_WIDER_AT: Final = (0, 64, 8192, 1 << 20)
MOST_NUMBERS: Final = 1 << 27
_FEW: Final = 8


@lru_cache(maxsize=512)
def widths(count: int) -> tuple[tuple[int, int, int], ...]:
    """The numbers below `count` (at most MOST_NUMBERS) by the size of their varints.

    For each: bytes, the first number, how many.
    """
    parts = enumerate(pairwise((*(each for each in _WIDER_AT if each < count), count)), start=1)
    return tuple((width, first, end - first) for width, (first, end) in parts)


def dense_column(first: int, count: int, byte: int) -> bytes:
    """Byte number `byte` (from 0) of the varints of `first`, `first` + 1, …, which all have one width."""
    if first < TABLE_SIZE:
        return (_LAST_BYTES if byte else _FIRST_BYTES)[first : first + count]
    # A byte is the same for this many numbers (the first byte's lowest bit is the sign), and then repeats.
    if not byte:
        low = first & 63
        return (_FIRST_BYTES[64:128] * (count // 64 + 2))[low : low + count]
    more = 128 if byte < (3 if first >= _WIDER_AT[3] else 2) else 0
    shift = 7 * byte - 1
    begin, end = first >> shift, (first + count - 1 >> shift) + 1
    column = b"".join([bytes((each & 127 | more,)) * (1 << shift) for each in range(begin, end)])
    skipped = first - (begin << shift)
    return column[skipped : skipped + count]


def distinct(column: bytes) -> set[int]:
    """The distinct values of the bytes. It is fast if they are few, as for timestamps."""
    found: set[int] = set()
    while column and len(found) < _FEW:
        first = column[:1]
        found.add(first[0])
        column = column.translate(None, first)
    return found.union(column)


def encode_varint(value: int) -> bytes:
    """`value`, in the int64 range, as a zigzag varint of 1 to 10 bytes."""
    return VARINTS[value] if 0 <= value < TABLE_SIZE else _encode(value)


def decode_varint(data: bytes, position: int, max_bytes: int = MAX_VARINT_BYTES) -> tuple[int, int]:
    """The signed number at `position` and the position after it.

    `max_bytes` is 5 for an int32 and 10 for an int64. Raises ProtocolError if the number is cut off by the
    end of the data, takes more bytes, or does not fit.
    """
    zigzag = 0
    shift = 0
    for at in range(position, min(position + max_bytes, len(data))):
        byte = data[at]
        zigzag |= (byte & 127) << shift
        if byte < 128:
            if zigzag >> (32 if max_bytes == MAX_VARINT_BYTES else 64):
                raise ProtocolError(f"varint at byte {position} does not fit")
            return (zigzag >> 1) ^ -(zigzag & 1), at + 1
        shift += 7
    if len(data) - position < max_bytes:
        raise ProtocolError(f"varint at byte {position} is cut off by the end of the data")
    raise ProtocolError(f"varint at byte {position} takes more than {max_bytes} bytes")
