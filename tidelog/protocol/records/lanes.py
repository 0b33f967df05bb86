"""Proves that records of any sizes are valid, by one field of all records at a time.

Owns: this proof for the records that most producers send: no headers, no key or keys of one size below 64
bytes, values that are not null, sizes below 8 KB, timestamps within 8 s of the batch's. A loop only steps
from record to record and copies the bytes before each value (the heads). In the joined heads, a strided slice
is one byte of all records, and a size of one or two bytes is a lane of 16 bits in one large integer.
Invariants: `columns` can decode all proved records. The result is None for anything unexpected, and nothing
is raised. Memory: about a hundred bytes per record while it runs. Pure; safe in any thread.
"""

from functools import lru_cache

from tidelog.protocol.records.varints import MOST_NUMBERS, dense_column, distinct, widths

_NULL = 1
# By the first byte of a length: bytes from there to the next record, without the second byte's part.
_STEPS = [(2 if each > 127 else 1) + ((each & 127) >> 1) for each in range(256)]
# The byte before a length's last byte: the previous record's header count 0, or the length's first byte.
_BEFORE_LENGTH = bytes([0, *range(128, 256, 2)])
_HIGH_BIT = bytes(each >> 7 for each in range(256))
# Their positions in a head: after the three bytes that end with the length.
_ATTRIBUTES, _STAMP = 3, 4
# Runs of timestamps of one byte and of two bytes. If they change more often, lanes save no time.
_MOST_RUNS = 8


def deltas_of(data: bytes, start: int, count: int) -> tuple[set[int], bool] | None:
    """Timestamp deltas, as zigzag numbers, of the `count` records from `start` to the end of `data`, and
    whether they have keys: all of them, or none has.

    None if they are not proved. Two zero bytes precede `start`. The offset deltas are 0, 1, 2, …
    """
    if count > MOST_NUMBERS:
        return None
    deltas: set[int] = set()
    try:
        key_byte = _key_byte(data, start)
        key_size = key_byte >> 1
        for width, first, more in widths(count):
            # Up to a timestamp of two bytes; offset, key and its size; two bytes of the value's.
            size = _STAMP + 2 + width + 1 + key_size + 2
            heads, start = _heads(data, start, more, size)
            found = _deltas(heads, size, width, first, more, key_byte)
            if found is None:
                return None
            deltas |= found
    except (IndexError, ValueError):
        return None
    return (deltas, key_byte != _NULL) if start == len(data) and not data[-1] else None


def _key_byte(data: bytes, start: int) -> int:
    """The length of the first record's key as it is encoded. The record begins at `start`.

    Raises IndexError or ValueError if there is no such record.
    """
    at = start + (3 if data[start] > 127 else 2)
    key_byte = data[at + (2 if data[at] > 127 else 1) + 1]
    if key_byte > 127 or (key_byte & 1 and key_byte != _NULL):
        raise ValueError
    return key_byte


def _heads(data: bytes, position: int, count: int, size: int) -> tuple[bytes, int]:
    """The joined heads (the bytes before each value) and the position after the last record.

    Each head has `size` bytes; the fourth one is the attributes. Raises IndexError or ValueError.
    """
    heads: list[bytes] = []
    add = heads.append
    steps = _STEPS
    for _ in range(count):
        if (length := data[position]) > 127:
            add(data[position - 1 : position - 1 + size])
            position += steps[length] + (data[position + 1] << 6)
        elif data[position - 1]:
            raise ValueError  # The record before it has headers; this is not the start of a longer length.
        else:
            add(data[position - 2 : position - 2 + size])
            position += steps[length]
    joined = b"".join(heads)
    # If the last value is empty, the last byte of its head may be missing. It is not needed.
    missing = count * size - len(joined)
    if missing > 1:
        raise ValueError
    return joined + bytes(missing), position


def _deltas(heads: bytes, size: int, width: int, first: int, count: int, key_byte: int) -> set[int] | None:
    """Timestamp deltas of the records from number `first` on, in runs of one-byte and two-byte timestamps."""
    deltas: set[int] = set()
    is_wide = heads[_STAMP::size].translate(_HIGH_BIT)
    begin = 0
    for _ in range(_MOST_RUNS):
        more = is_wide[begin]
        end = is_wide.find(1 - more, begin)
        end = count if end < 0 else end
        run = heads[begin * size : end * size]
        if not _are_right(run, size, _STAMP + 1 + more, width, first + begin, end - begin, key_byte):
            return None
        lows, highs = run[_STAMP::size], run[_STAMP + 1 :: size]
        if not more:
            deltas |= distinct(lows)
        elif highs.isascii():
            deltas |= {(low & 127) + (high << 7) for low, high in set(zip(lows, highs, strict=True))}
        else:
            return None
        begin = end
        if begin == count:
            return deltas
    return None


def _are_right(
    heads: bytes, size: int, offset_at: int, width: int, first: int, count: int, key_byte: int
) -> bool:
    """Whether all fields except timestamps are right. Offset deltas of `width` bytes are at `offset_at`."""
    key_at = offset_at + width
    value_at = key_at + 1 + (key_byte >> 1)
    if heads[key_at::size] != bytes((key_byte,)) * count:
        return False
    if not heads[_ATTRIBUTES::size].isascii() or heads[1::size].translate(None, _BEFORE_LENGTH):
        return False
    for byte in range(width):
        if heads[offset_at + byte :: size] != dense_column(first, count, byte):
            return False
    ones = _ones(count)
    lengths = _lengths(heads[::size], heads[1::size], heads[2::size], ones)
    sizes = _lanes(heads[value_at::size], heads[value_at + 1 :: size])
    # Bytes besides the value: from the attributes to one byte of its size, and the number of headers.
    return lengths is not None and _fit(lengths, sizes, value_at + 1 - _ATTRIBUTES + 1, ones)


def _lengths(before: bytes, first: bytes, last: bytes, ones: int) -> int | None:
    """Zigzag lengths of records as lanes, from the three bytes before their attributes: 0 and a length of two
    bytes, or any byte, 0 and a length of one. None for anything else."""
    firsts, lasts = _lanes(first), _lanes(last)
    is_long = (firsts >> 7 & ones) * 0xFFFF
    if not last.isascii() or _lanes(before) & is_long:
        return None
    long = lasts & is_long
    return firsts & 0x7F * ones | long << 7 | lasts ^ long


def _fit(lengths: int, sizes: int, overhead: int, ones: int) -> bool:
    """Whether each record is longer than its value by `overhead`, plus one if the value's size takes two
    bytes. `sizes` are two bytes per record as in the data: if the size takes one byte, the second one is
    content."""
    has_second = sizes >> 7 & ones
    sizes &= 0xFF * ones | has_second * 0xFF00
    if sizes & 0x8000 * ones or lengths & ones:
        return False
    sizes = sizes & 0x7F * ones | sizes >> 1 & 0x3F80 * ones
    return lengths == sizes + 2 * has_second + 2 * overhead * ones


def _lanes(low: bytes, high: bytes = b"") -> int:
    pairs = bytearray(2 * len(low))
    pairs[::2] = low
    if high:
        pairs[1::2] = high
    return int.from_bytes(pairs, "little")


@lru_cache(maxsize=64)
def _ones(count: int) -> int:
    """1 in each of `count` lanes."""
    return int.from_bytes(b"\1\0" * count, "little")
