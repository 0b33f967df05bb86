"""Batches that are laid out as an earlier one was, decoded by a few comparisons and one unpacking.

Owns: the layouts seen lately. A producer of records of one size fills batch after batch in the same way; then
every byte of the encoding stands where it stood before, and only offsets, timestamps and contents are new.
Invariants: a batch is taken only when each byte that is neither content nor timestamp is the one that a batch
had which `columns` decoded, at the same place; so what comes out equals what `columns` makes of it. A layout
is learned when its size and count come for the second time; memory stays below five megabytes.
Callers: `reader`, before and after it decodes a batch by `columns`. Safe in any thread.
"""

from collections.abc import Sequence
from struct import Struct

from protocol.records.columns import Columns
from protocol.records.header import BatchHeader
from protocol.records.runs import DELTAS, Shape, find_run, offset_column, shape_of
from protocol.records.varints import decode_varint

# Of one layout. Stretches: offset deltas of one byte, then of two, and in between lengths that grow.
_MOST_RECORDS = 512
_MOST_STRETCHES = 4
_MOST_LAYOUTS = 128
_MOST_SEEN = 1024

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
                timestamps += [base_timestamp + DELTAS[stamps[0]]] * len(stamps)
            else:
                timestamps += [base_timestamp + DELTAS[each] for each in stamps]
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


def learn_layout(data: bytes, position: int, count: int) -> None:
    """Take note of the `count` records from `position` to the end of `data`, which were decoded."""
    key = (position, len(data) - position, count)
    if not 1 < count <= _MOST_RECORDS:
        return
    if key not in _seen:
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        _seen[key] = None
        return
    layout = _layout_of(data, position, count)
    if layout is not None:
        if len(_layouts) >= _MOST_LAYOUTS:
            _layouts.clear()
        _layouts[key] = layout


def _layout_of(data: bytes, position: int, count: int) -> Layout | None:
    columns: list[tuple[slice, bytes]] = []
    stamps: list[slice] = []
    contents = [f"={position}x"]
    sizes: set[tuple[int, int]] = set()
    index = 0
    while index < count:
        length, after = decode_varint(data, position)
        step = after + length - position
        shape = shape_of(data, position, position + step, index)
        if shape is None or shape.stamp_width > 1 or len(stamps) == _MOST_STRETCHES:
            return None
        run = find_run(data, position, position + step, index, count - index)
        alike = 1 if run is None else run.record_count
        stop = position + alike * step
        places = [position + at for at in shape.constant]
        columns += [(slice(at, stop, step), data[at : at + 1] * alike) for at in places]
        for byte in range(shape.offset_width):
            column = slice(position + shape.offset_at + byte, stop, step)
            columns.append((column, offset_column(index, alike, byte)))
        stamps.append(slice(position + shape.stamp_at, stop, step))
        contents.append(_format(shape) * alike)
        sizes.add((shape.key_size, shape.value_size))
        position = stop
        index += alike
    if len(sizes) > 1 or sizes == {(-1, -1)} or any(data[column] != content for column, content in columns):
        return None
    ((key_size, value_size),) = sizes
    return Layout(count, columns, stamps, Struct("".join(contents)), key_size, value_size)


def _format(shape: Shape) -> str:
    """One record for struct, all but its key and value passed over."""
    key, value = max(shape.key_size, 0), max(shape.value_size, 0)
    between = shape.value_at - shape.key_at - key
    parts = [f"{shape.key_at}x", f"{key}s" * (shape.key_size >= 0), f"{between}x"]
    return "".join([*parts, f"{value}s" * (shape.value_size >= 0), "x"])
