"""The fields of many records at once, as numpy arrays of numbers and positions.

Owns the vectorised reading of the record layout of batch version 2: each field is read for all records
together, field after field.

Invariants: what `protocol.records.decode_batch` refuses raises ProtocolError here too. No field may end after
its record: positions only move forward, and the last field must end exactly where the length prefix says.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records.varints import MAX_VARINT_BYTES, MAX_VARLONG_BYTES

Integers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Octets: TypeAlias = npt.NDArray[np.uint8]

# Length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each.
SMALLEST_RECORD_BYTES = 7
_SMALLEST_HEADER_BYTES = 2


@dataclass(frozen=True, slots=True)
class Slices:
    """One field of every record, in bytes `starts` to `ends`. A null is empty and flagged in `nulls`."""

    starts: Integers
    ends: Integers
    nulls: Flags


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The fields of all records, in log order. The header slices hold the headers of all records in order."""

    timestamp_deltas: Integers
    offset_deltas: Integers
    keys: Slices
    values: Slices
    header_counts: Integers
    header_names: Slices
    header_values: Slices


def read_fields(data: Octets, starts: Integers, ends: Integers, last_offset_deltas: Integers) -> RecordFields:
    """The fields of the records in `data` from `starts` to `ends`.

    `last_offset_deltas` holds the value of each record's batch. Raises ProtocolError for a malformed record.
    """
    try:
        return _read_fields(data, starts, ends, last_offset_deltas)
    except IndexError:
        raise ProtocolError("a field of a record is after the end of the data") from None


def _read_fields(
    data: Octets, starts: Integers, ends: Integers, last_offset_deltas: Integers
) -> RecordFields:
    lengths, positions = read_varints(data, starts)
    _refuse_if(lengths < SMALLEST_RECORD_BYTES - 1, starts, "its length is too small")
    _refuse_if(positions + lengths != ends, starts, "its length is negative")
    timestamp_deltas, positions = read_varints(data, positions + 1, MAX_VARLONG_BYTES)
    offset_deltas, positions = read_varints(data, positions)
    out_of_range = (offset_deltas < 0) | (offset_deltas > last_offset_deltas)
    _refuse_if(out_of_range, starts, "its offset lies outside the batch")
    keys = _read_sized(data, positions, ends, starts)
    values = _read_sized(data, keys.ends, ends, starts)
    header_counts, positions = read_varints(data, values.ends)
    most_headers = np.maximum(ends - positions, 0) // _SMALLEST_HEADER_BYTES
    _refuse_if((header_counts < 0) | (header_counts > most_headers), starts, "its header count is impossible")
    header_names, header_values, positions = _read_headers(data, positions, ends, header_counts)
    _refuse_if(positions != ends, starts, "its fields do not end where its length says")
    return RecordFields(
        timestamp_deltas, offset_deltas, keys, values, header_counts, header_names, header_values
    )


def read_varints(
    data: Octets, positions: Integers, most_bytes: int = MAX_VARINT_BYTES
) -> tuple[Integers, Integers]:
    """The zigzag varints at `positions`, and the positions after them.

    Raises IndexError if one runs over the end of `data`, ProtocolError if one is too long or too large.
    """
    first = data[positions]
    after = positions + 1
    goes_on = first > 127
    if not goes_on.any():
        return _unzigzag(first, np.int8), after
    # Most others have two bytes.
    if int(after.max()) < len(data):
        second = data[after]
        if not (goes_on & (second > 127)).any():
            short = first.astype(np.uint16)
            raw = np.where(goes_on, short & 127 | second.astype(np.uint16) << 7, short)
            return _unzigzag(raw, np.int16), after + goes_on
    return _read_long_varints(data, first, after, most_bytes)


def _unzigzag(raw: npt.NDArray[Any], signed: type) -> Integers:
    """Numbers whose lowest bit is their sign; `signed` is the type of the same width that has one."""
    return np.asarray(((raw >> 1) ^ -(raw & 1)).view(signed).astype(np.int64))


def _read_long_varints(
    data: Octets, first: Octets, after: Integers, most_bytes: int
) -> tuple[Integers, Integers]:
    """The varints that begin with the bytes `first` and may continue at `after`."""
    unfinished = np.flatnonzero(first & 128)
    raw = (first & 127).astype(np.uint64)
    # Mostly all continue or none does: then no selection is needed.
    rest: Integers | slice = slice(None) if unfinished.size == first.size else unfinished
    for count in range(1, most_bytes):
        following = data[after[rest]]
        # Only one bit of the tenth byte fits; the shift below would lose the others silently.
        if count == MAX_VARLONG_BYTES - 1 and (following > 1).any():
            raise ProtocolError("a varint does not fit into 64 bits")
        raw[rest] |= (following & 127).astype(np.uint64) << np.uint64(7 * count)
        after[rest] += 1
        goes_on = following > 127
        if not goes_on.any():
            break
        if not goes_on.all():
            rest = np.arange(first.size)[rest][goes_on]
    else:
        raise ProtocolError(f"a varint takes more than {most_bytes} bytes")
    if most_bytes == MAX_VARINT_BYTES and (raw >> np.uint64(32)).any():
        raise ProtocolError("a varint does not fit into 32 bits")
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), after


def _read_sized(data: Octets, positions: Integers, ends: Integers, starts: Integers) -> Slices:
    """A field with a length prefix; length -1 is null."""
    sizes, positions = read_varints(data, positions)
    nulls = sizes == -1
    field_ends = positions + np.where(nulls, 0, sizes)
    _refuse_if((sizes < -1) | (field_ends > ends), starts, "a field does not lie within it")
    return Slices(positions, field_ends, nulls)


def _read_headers(
    data: Octets, positions: Integers, ends: Integers, counts: Integers
) -> tuple[Slices, Slices, Integers]:
    """Names and values of all headers, record by record, and the positions after each record's headers."""
    total = int(counts.sum())
    names, values = _empty_slices(total), _empty_slices(total)
    if not total:
        return names, values, positions
    places = np.cumsum(counts) - counts
    positions = positions.copy()
    rows = np.flatnonzero(counts)
    number = 0
    while rows.size:
        at = places[rows] + number
        name = _read_sized(data, positions[rows], ends[rows], at)
        _refuse_if(name.nulls, at, "a header without a name")
        value = _read_sized(data, name.ends, ends[rows], at)
        _store(names, at, name)
        _store(values, at, value)
        positions[rows] = value.ends
        number += 1
        rows = rows[counts[rows] > number]
    return names, values, positions


def _empty_slices(count: int) -> Slices:
    return Slices(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.bool_))


def _store(target: Slices, at: Integers, source: Slices) -> None:
    target.starts[at] = source.starts
    target.ends[at] = source.ends
    target.nulls[at] = source.nulls


def _refuse_if(wrong: Flags, places: Integers, reason: str) -> None:
    if wrong.any():
        raise ProtocolError(f"record at byte {places[int(np.argmax(wrong))]}: {reason}")
