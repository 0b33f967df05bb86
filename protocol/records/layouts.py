"""Batches that are laid out as an earlier one was, decoded by a few comparisons and one unpacking.

Owns: the layouts seen lately. A producer of records of one size fills batch after batch in the same way; then
every byte of the encoding stands where it stood before, and only offsets, timestamps and contents are new.
Invariants: a batch is taken only when each byte that is neither content nor timestamp is the one that records
of the sizes learned have at that place; so what comes out equals what `columns` makes of it. A layout is
learned when its size and count come for the second time; memory stays below five megabytes.
Callers: `reader`, before and after a batch is decoded otherwise. Safe in any thread.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from protocol.records.columns import Columns
from protocol.records.header import BatchHeader
from protocol.records.varints import ONE_BYTE_DELTAS, SHORT_NUMBERS, TABLE_SIZE, dense_numbers, encode_varint

# Of all layouts together; each takes about 70 bytes a record.
_MOST_RECORDS = 65_536
_MOST_SEEN = 1024
_NO_ATTRIBUTES = b"\0"
_NO_HEADERS = b"\0"

_Key = tuple[int, int, int]


class Layout:
    """Where each byte of the records stands in a buffer of the size and the position that were learned.

    All keys are of `key_size` bytes, all values of `value_size`; -1 where all are None.
    """

    __slots__ = ("_columns", "_contents", "_count", "_headers", "_nones", "_sizes", "_stamps")

    def __init__(
        self,
        count: int,
        columns: list[tuple[slice, bytes]],
        stamps: list[slice],
        contents: Struct,
        key_size: int,
        value_size: int,
    ) -> None:
        self._count = count
        self._columns = columns
        self._stamps = stamps
        self._contents = contents
        self._sizes = key_size, value_size
        self._nones = (None,) * count
        self._headers = ((),) * count

    def decode(self, data: bytes, header: BatchHeader) -> Columns | None:
        """The records in `data`, which has the size that was learned; None where it is laid out otherwise."""
        count = self._count
        if header.last_offset_delta < count - 1:
            return None
        for column, expected in self._columns:
            if data[column] != expected:
                return None
        base_timestamp = header.base_timestamp
        timestamps: list[int] = []
        for column in self._stamps:
            stamps = data[column]
            if not stamps.isascii():
                return None
            if stamps.count(stamps[0]) == len(stamps):
                timestamps += [base_timestamp + ONE_BYTE_DELTAS[stamps[0]]] * len(stamps)
            else:
                timestamps += [base_timestamp + ONE_BYTE_DELTAS[each] for each in stamps]
        keys: Sequence[bytes | None] = self._nones
        values: Sequence[bytes | None] = self._nones
        contents = self._contents.unpack_from(data)
        key_size, value_size = self._sizes
        if key_size < 0:
            values = contents
        elif value_size < 0:
            keys = contents
        else:
            keys, values = contents[::2], contents[1::2]
        offsets = range(header.base_offset, header.base_offset + count)
        # The named tuple's own constructor takes longer than all that is left to do here.
        row = header.timestamp_type, offsets, timestamps, keys, values, self._headers, *self._sizes
        return tuple.__new__(Columns, row)


_layouts: dict[_Key, Layout] = {}
_seen: dict[_Key, None] = {}


def decode_known(data: bytes, position: int, header: BatchHeader) -> Columns | None:
    """The records from `position` to the end of `data`; None where no earlier batch was laid out so."""
    layout = _layouts.get((position, len(data) - position, header.record_count))
    return None if layout is None else layout.decode(data, header)


def learn_layout(data: bytes, position: int, header: BatchHeader, columns: Columns) -> None:
    """Take note of the records from `position` to the end of `data`, which gave `columns`."""
    count = header.record_count
    key = (position, len(data) - position, count)
    if not 1 < count <= TABLE_SIZE:
        return
    sizes = _size_of(columns.keys[0]), _size_of(columns.values[0])
    if sizes != (_size_of(columns.keys[-1]), _size_of(columns.values[-1])):
        return
    stretches = _stretches(count, *sizes)
    if sum(each.alike * each.size_bytes for each in stretches) != key[1] or sizes == (-1, -1):
        return
    if key not in _seen:
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        _seen[key] = None
        return
    layout = _layout_of(position, stretches, sizes)
    if layout.decode(data, header) is not None:
        if sum(known[2] for known in list(_layouts)) + count > _MOST_RECORDS:
            _layouts.clear()
        _layouts[key] = layout


def _size_of(content: bytes | None) -> int:
    return -1 if content is None else len(content)


class _Stretch(NamedTuple):
    """`alike` records of one size that follow each other, beginning with the batch's `first`th.

    What surrounds each one's timestamp delta, offset delta, key and value: `head`, `middle`, `before_value`.
    """

    first: int
    alike: int
    offset_width: int
    head: bytes
    middle: bytes
    before_value: bytes
    size_bytes: int


def _stretches(count: int, key_size: int, value_size: int) -> list[_Stretch]:
    """How `count` records are encoded that have keys and values of one size each, and no headers."""
    middle, before_value = encode_varint(key_size), encode_varint(value_size)
    content_size = max(key_size, 0) + max(value_size, 0)
    found = []
    for index, end, width in ((0, SHORT_NUMBERS, 1), (SHORT_NUMBERS, TABLE_SIZE, 2)):
        if count > index:
            body_size = 3 + width + len(middle) + len(before_value) + content_size
            head = encode_varint(body_size) + _NO_ATTRIBUTES
            size_bytes = len(head) - 1 + body_size
            alike = min(count, end) - index
            found.append(_Stretch(index, alike, width, head, middle, before_value, size_bytes))
    return found


def _layout_of(position: int, stretches: list[_Stretch], sizes: tuple[int, int]) -> Layout:
    key_size, value_size = max(sizes[0], 0), max(sizes[1], 0)
    columns: list[tuple[slice, bytes]] = []
    stamps: list[slice] = []
    contents = [f"={position}x"]
    for each in stretches:
        stop = position + each.alike * each.size_bytes
        stamps.append(slice(position + len(each.head), stop, each.size_bytes))
        offset_at = position + len(each.head) + 1
        for byte in range(each.offset_width):
            numbers = dense_numbers(each.first, each.alike)[byte :: each.offset_width]
            columns.append((slice(offset_at + byte, stop, each.size_bytes), numbers))
        middle_at = offset_at + each.offset_width
        before_value_at = middle_at + len(each.middle) + key_size
        pieces = (
            (position, each.head),
            (middle_at, each.middle),
            (before_value_at, each.before_value),
            (position + each.size_bytes - 1, _NO_HEADERS),
        )
        columns += [
            (slice(at + place, stop, each.size_bytes), bytes([byte]) * each.alike)
            for at, piece in pieces
            for place, byte in enumerate(piece)
        ]
        key = f"{middle_at + len(each.middle) - position}x" + f"{key_size}s" * (sizes[0] >= 0)
        value = f"{len(each.before_value)}x" + f"{value_size}s" * (sizes[1] >= 0)
        contents.append(f"{key}{value}x" * each.alike)
        position = stop
    return Layout(sum(each.alike for each in stretches), columns, stamps, Struct("".join(contents)), *sizes)
