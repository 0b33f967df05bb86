"""Decodes records of any sizes with one unpack call each: two lengths determine the position of all fields.

Owns: the layouts, and the decoding of records by them. A layout unpacks the fields of a record with one
`struct` call; there is one per pair of record length and key length seen so far. They serve the records that
most producers send: dense offsets, no headers, values that are not None, timestamps within 63 ms of the
batch's, at most half a kilobyte. Invariants: the result is the same as that of `columns`. It is None for
anything unexpected, and nothing is raised: the assumptions of a layout are checked afterwards, column by
column. Memory stays below three megabytes. Safe in any thread.
"""

from collections.abc import Callable, Sequence
from struct import Struct, error
from typing import Any, NamedTuple

from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.header import BatchHeader
from tidelog.protocol.records.varints import ONE_BYTE_DELTAS, SHORT_NUMBERS, TABLE_SIZE, VARINTS, dense_column

# Longer records have so many lengths that making their layouts would take more time than they save.
_LONGEST = 512
# Per width of offset deltas.
_MOST_LAYOUTS = 2048
_NULL = 1


# An unpacker of a record into timestamp delta, offset delta, key, size of the value, value, and number of
# headers; the record's size in bytes; the expected size of the value, after the key's own size if that is
# None.
_Layout = tuple[Callable[[bytes, int], tuple[Any, ...]], int, bytes]


class _ByLength(dict[bytes, "_ByKey"]):
    """Layouts for records whose offset deltas take `offset_width` bytes, by their first two bytes."""

    __slots__ = ("_made", "offset_width")

    def __init__(self, offset_width: int) -> None:
        self.offset_width = offset_width
        self._made = 0

    def __missing__(self, head: bytes) -> "_ByKey":
        first, second = head  # ValueError at the end of the data.
        width = 1 if first < 128 else 2
        length = first if width == 1 else first & 127 | second << 7
        if length & 1 or length >> 1 > _LONGEST:
            raise KeyError(head)
        self.make_room()
        made = self[head] = _ByKey(self, width, length >> 1)
        return made

    def make_room(self) -> None:
        """Make space for one more layout: drop all of them if there are too many."""
        self._made += 1
        if self._made > _MOST_LAYOUTS:
            self.clear()
            self._made = 0


class _ByKey(dict[int, _Layout]):
    """Layouts for records of one length, by the byte of the key's length, which is at `key_at`."""

    __slots__ = ("_head", "_owner", "_room", "key_at")

    def __init__(self, owner: _ByLength, length_width: int, length: int) -> None:
        self._owner = owner
        self.key_at = length_width + 2 + owner.offset_width
        self._head = f"={length_width + 1}xB{owner.offset_width}s"
        # For the key, the value and its size.
        self._room = length - owner.offset_width - 4

    def __missing__(self, key_byte: int) -> _Layout:
        key_size = 0 if key_byte == _NULL else key_byte >> 1
        room = self._room - key_size
        value_size = room - 1 if room <= SHORT_NUMBERS else room - 2
        if key_byte > 127 or (key_byte & 1 and key_byte != _NULL) or not 0 <= value_size < TABLE_SIZE:
            raise KeyError(key_byte)
        size = VARINTS[value_size]
        if len(size) + value_size != room:
            raise KeyError(key_byte)  # No size of a value fits exactly.
        if key_byte == _NULL:
            size = bytes([_NULL]) + size
            key = "0s"
        else:
            key = f"x{key_size}s"
        self._owner.make_room()
        layout = Struct(f"{self._head}{key}{len(size)}s{value_size}sB")
        made = self[key_byte] = (layout.unpack_from, layout.size, size)
        return made


_short, _long = _ByLength(1), _ByLength(2)


class _Stretch(NamedTuple):
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]


def decode_by_layouts(data: bytes, start: int, header: BatchHeader) -> Columns | None:
    """The batch's records, from `start` to the end of `data`, or None."""
    count = header.record_count
    if not 1 <= count <= min(TABLE_SIZE, header.last_offset_delta + 1):
        return None
    try:
        short, start = _decode(data, start, 0, min(count, SHORT_NUMBERS), header.base_timestamp)
        if short is not None and count > SHORT_NUMBERS:
            more, start = _decode(data, start, SHORT_NUMBERS, count - SHORT_NUMBERS, header.base_timestamp)
            short = more and _Stretch(
                [*short.timestamps, *more.timestamps],
                [*short.keys, *more.keys],
                [*short.values, *more.values],
            )
    except (LookupError, ValueError, error):
        return None
    if short is None or start != len(data):
        return None
    offsets = range(header.base_offset, header.base_offset + count)
    return Columns(header.timestamp_type, offsets, *short, ((),) * count)


def _decode(
    data: bytes, position: int, index: int, count: int, base_timestamp: int
) -> tuple[_Stretch | None, int]:
    """`count` records from `position` on, and the position after them. The first one is the batch's
    `index`th.

    Raises LookupError, ValueError or struct.error for records that fit no layout.
    """
    layouts = _long if index else _short
    rows: list[tuple[Any, ...]] = []
    expected: list[bytes] = []
    add_row, add_expected = rows.append, expected.append
    for _ in range(count):
        by_key = layouts[data[position : position + 2]]
        unpack, size_bytes, size = by_key[data[position + by_key.key_at]]
        add_row(unpack(data, position))
        add_expected(size)
        position += size_bytes
    keys: Sequence[bytes | None]
    stamps, offsets, keys, sizes, values, header_counts = zip(*rows, strict=True)
    deltas = bytes(stamps)
    if (
        list(sizes) != expected
        or not deltas.isascii()
        or any(header_counts)
        or any(
            bytes(column) != dense_column(index, count, byte)
            for byte, column in enumerate(zip(*offsets, strict=True))
        )
    ):
        return None, position
    if deltas.count(deltas[0]) == count:
        timestamps = [base_timestamp + ONE_BYTE_DELTAS[deltas[0]]] * count
    else:
        timestamps = [base_timestamp + ONE_BYTE_DELTAS[delta] for delta in deltas]
    if b"" in keys:
        keys = [None if size[0] == _NULL else key for key, size in zip(keys, expected, strict=True)]
    return _Stretch(timestamps, keys, values), position
