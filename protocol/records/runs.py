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

_ASCII = bytes(range(128))
_NOT_ASCII = bytes(range(128, 256))
# Timestamp deltas by their one byte.
_DELTAS = [(each >> 1) ^ -(each & 1) for each in range(128)]
# Offset deltas of one byte, and the first and second bytes of those of two.
_SHORT = b"".join(VARINTS[:64])
_FIRST = bytes(64) + bytes(each[0] for each in VARINTS[64:])
_SECOND = bytes(64) + bytes(each[1] for each in VARINTS[64:])


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


def find_run(data: bytes, start: int, end: int, index: int, reach: int) -> Run | None:
    """The run of records without headers that follow each other at the size of the one in data[start:end].

    That record is valid, is the batch's `index`th, has that offset delta, and is the run's first; `reach`
    bounds the run. None where there is no run of two.
    """
    size = end - start
    offset_width = 1 if index < 64 else 2
    count = min(reach, (64 if offset_width == 1 else TABLE_SIZE) - index, (len(data) - start) // size)
    if count < 2 or data[end - 1]:
        return None
    at = start + (1 if data[start] < 128 else 2) + 1
    stamp_at, stamp_width = at, 1 if data[at] < 128 else 2
    offset_at = at + stamp_width
    key_size, key_width = _size_of(data, offset_at + offset_width)
    key_at = offset_at + offset_width + key_width
    value_size, value_width = _size_of(data, value_head := key_at + max(key_size, 0))
    value_at = value_head + value_width
    if not (key_width and value_width) or value_at + max(value_size, 0) != end - 1:
        return None
    constant = [*range(start, at - 1), *range(offset_at + offset_width, key_at), *range(value_head, value_at)]
    stop = start + count * size
    for column in (*constant, end - 1):
        content = data[column:stop:size]
        count = min(count, len(content) - len(content.lstrip(content[:1])))
    stamps = data[stamp_at:stop:size]
    count = min(count, len(stamps) - len(stamps.lstrip(_ASCII if stamp_width == 1 else _NOT_ASCII)))
    if stamp_width == 2:
        more = data[stamp_at + 1 : stop : size]
        count = min(count, len(more) - len(more.lstrip(_ASCII)))
    stop = start + count * size
    if offset_width == 1:
        is_dense = data[offset_at:stop:size] == _SHORT[index : index + count]
    else:
        is_dense = (
            data[offset_at:stop:size] == _FIRST[index : index + count]
            and data[offset_at + 1 : stop : size] == _SECOND[index : index + count]
        )
    if count < 2 or not is_dense:
        return None
    if stamp_width == 1:
        stamps = stamps[:count]
        # Most runs are sent within one or a few milliseconds.
        deltas = (
            [_DELTAS[stamps[0]]] if stamps.count(stamps[0]) == count else [_DELTAS[each] for each in stamps]
        )
    else:
        pairs = zip(stamps[:count], more, strict=False)
        deltas = [(z >> 1) ^ -(z & 1) for z in [low & 127 | high << 7 for low, high in pairs]]
    return Run(count, stop, deltas, key_at, key_size, value_at, value_size)
