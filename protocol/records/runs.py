"""Runs of records that are encoded alike, decoded in columns instead of one by one.

Owns: the recognition of such runs. Most producers send records of one size to a partition, or in stretches
of one size; then every byte of the encoding that is not content stands at a fixed distance from its like in
the next record, and a strided slice shows a whole column of them to be checked at once.
Invariants: equal to what the loop in `columns` makes of the same bytes, for whatever is not exactly as
expected ends the run before that record; nothing is raised; the work for a run is at most `reach` records.
Callers: `columns`, with a record that it has decoded itself.
"""

from typing import NamedTuple

from protocol.records.varints import TABLE_SIZE, VARINTS

# Offset deltas below it take one byte, the others of the table two.
SHORT_OFFSETS = 64
_ASCII = bytes(range(128))
_NOT_ASCII = bytes(range(128, 256))
# Timestamp deltas by their one byte.
DELTAS = [(each >> 1) ^ -(each & 1) for each in range(128)]
# Offset deltas of one byte, and the first and second bytes of those of two.
_SHORT = b"".join(VARINTS[:SHORT_OFFSETS])
_FIRST = bytes(SHORT_OFFSETS) + bytes(each[0] for each in VARINTS[SHORT_OFFSETS:])
_SECOND = bytes(SHORT_OFFSETS) + bytes(each[1] for each in VARINTS[SHORT_OFFSETS:])


class Run(NamedTuple):
    """`record_count` records up to `end`, with `deltas` of their timestamps (or one delta that all share);
    sizes of -1 stand for None."""

    record_count: int
    end: int
    deltas: list[int]
    key_at: int
    key_size: int
    value_at: int
    value_size: int


def _size_of(data: bytes, at: int) -> tuple[int, int]:
    """A length of one or two bytes, and its width; width 0 for any other, and where data ends too soon."""
    if at + 1 >= len(data):
        return 0, 0
    first = data[at]
    if first < 128:
        return (-1 if first == 1 else first >> 1), 0 if first & 1 and first != 1 else 1
    second = data[at + 1]
    zigzag = (first & 127) | second << 7
    return zigzag >> 1, 0 if second > 127 or zigzag & 1 else 2


class Shape(NamedTuple):
    """Where the fields of one record lie, as distances from its start; sizes of -1 stand for None.

    `constant` are the bytes that are the same in each record of a run.
    """

    constant: list[int]
    stamp_at: int
    stamp_width: int
    offset_at: int
    offset_width: int
    key_at: int
    key_size: int
    value_at: int
    value_size: int


def shape_of(data: bytes, start: int, end: int, index: int) -> Shape | None:
    """The shape of the record data[start:end], which is valid and has the offset delta `index`.

    None where it has headers, or numbers that take more than two bytes.
    """
    if data[end - 1] or index >= TABLE_SIZE:
        return None
    stamp_at = 2 if data[start] < 128 else 3
    stamp_width = 1 if data[start + stamp_at] < 128 else 2
    if data[start + stamp_at - 2] > 127 or data[start + stamp_at + stamp_width - 1] > 127:
        return None
    offset_at = stamp_at + stamp_width
    offset_width = 1 if index < SHORT_OFFSETS else 2
    key_size_at = offset_at + offset_width
    key_size, key_width = _size_of(data, start + key_size_at)
    key_at = key_size_at + key_width
    value_size_at = key_at + max(key_size, 0)
    value_size, value_width = _size_of(data, start + value_size_at)
    value_at = value_size_at + value_width
    last = end - start - 1
    if not (key_width and value_width) or value_at + max(value_size, 0) != last:
        return None
    constant = [*range(stamp_at), *range(key_size_at, key_at), *range(value_size_at, value_at), last]
    return Shape(
        constant, stamp_at, stamp_width, offset_at, offset_width, key_at, key_size, value_at, value_size
    )


def offset_column(index: int, count: int, byte: int) -> bytes:
    """The first or second (`byte` 0 or 1) byte of the offset deltas from `index` on, all of one width."""
    if byte:
        return _SECOND[index : index + count]
    return (_SHORT if index < SHORT_OFFSETS else _FIRST)[index : index + count]


def find_run(data: bytes, start: int, end: int, index: int, reach: int) -> Run | None:
    """The run of records without headers that follow each other at the size of the one in data[start:end].

    That record is valid, is the batch's `index`th, has that offset delta, and is the run's first; `reach`
    bounds the run. None where there is no run of two.
    """
    size = end - start
    longest = SHORT_OFFSETS if index < SHORT_OFFSETS else TABLE_SIZE
    count = min(reach, longest - index, (len(data) - start) // size)
    if count < 2 or (shape := shape_of(data, start, end, index)) is None:
        return None
    stop = start + count * size
    for column in shape.constant:
        content = data[start + column : stop : size]
        count = min(count, len(content) - len(content.lstrip(content[:1])))
    stamps = data[start + shape.stamp_at : stop : size]
    count = min(count, len(stamps) - len(stamps.lstrip(_ASCII if shape.stamp_width == 1 else _NOT_ASCII)))
    if shape.stamp_width == 2:
        more = data[start + shape.stamp_at + 1 : stop : size]
        count = min(count, len(more) - len(more.lstrip(_ASCII)))
    stop = start + count * size
    is_dense = all(
        data[start + shape.offset_at + byte : stop : size] == offset_column(index, count, byte)
        for byte in range(shape.offset_width)
    )
    if count < 2 or not is_dense:
        return None
    if shape.stamp_width == 1:
        stamps = stamps[:count]
        # Most runs are sent within one or a few milliseconds.
        deltas = (
            [DELTAS[stamps[0]]] if stamps.count(stamps[0]) == count else [DELTAS[each] for each in stamps]
        )
    else:
        pairs = zip(stamps[:count], more, strict=False)
        deltas = [(z >> 1) ^ -(z & 1) for z in [low & 127 | high << 7 for low, high in pairs]]
    return Run(
        count, stop, deltas, start + shape.key_at, shape.key_size, start + shape.value_at, shape.value_size
    )
