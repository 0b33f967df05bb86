"""Checks that records match their batch's header, and finds their timestamps, without decoding them.

Owns: a broker's checks of records before it stores them, in four ways. Invariants: `reader` and any client
can decode each batch that passes. Lengths match exactly, down to the last byte. There are as many records as
the header says, with the offset deltas 0, 1, 2, …. Header names are UTF-8. Timestamps fit into int64. The
unused attributes of records are below 128, because aiokafka and kafka-python read them as a varint. A batch
that does not pass raises ProtocolError, and nothing else is raised. Pure; safe in any thread.

Source: Kafka's LogValidator and DefaultRecord.readFrom.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records.columns import SMALLEST_RECORD_BYTES, Lists, decode_record
from tidelog.protocol.records.header import BATCH_HEADER_SIZE, COMPRESSION_MASK, BatchHeader
from tidelog.protocol.records.lanes import deltas_of
from tidelog.protocol.records.uniform import stretches_of
from tidelog.protocol.records.varints import decode_varint, distinct
from tidelog.protocol.types import NO_TIMESTAMP, Buffer

_new_tuple = tuple.__new__
_INT64_MAX = 2**63 - 1
_NO_DELTA = {0}
_NULL = 1
_TWO_BYTES_END = 1 << 14
_FIRST_BYTES = Struct("7B")
_SHORTEST_LONE = BATCH_HEADER_SIZE + SMALLEST_RECORD_BYTES
_BEFORE = b"\0\0"
_START = len(_BEFORE)
# For fewer records, the fixed cost of lanes is higher than the saving.
_FEWEST_IN_LANES = 24
_ALL_OF_ONE = range(1)
MOST_KEYLESS: Final = 100


class Inspection(NamedTuple):
    """Timestamps of the records of a batch, milliseconds, -1 if no record has one; and which have no key."""

    oldest: int
    """The smallest timestamp of the records that have one."""
    latest: int
    keyless: Sequence[int] = ()
    """The positions of the records without a key, in order; at most MOST_KEYLESS if not all are."""


def inspect_single_record(batch: Buffer, header: BatchHeader) -> Inspection | None:
    """Inspect the only record of an uncompressed batch in place, in a sixth of the time of one by one.

    None for an unusual record (headers, a timestamp other than the batch's, a key of 64 bytes or more, a
    length of three bytes), and for any error.
    """
    end = len(batch)
    _, _, _, _, _, codec, _, timestamp, _, _, _, _, count = header
    if count != 1 or codec & COMPRESSION_MASK or end < _SHORTEST_LONE:
        return None
    length, attributes, delta, offset, key, value, more = _FIRST_BYTES.unpack_from(batch, BATCH_HEADER_SIZE)
    start = BATCH_HEADER_SIZE + 1
    if length > 127:
        start += 1
        length += (attributes << 7) - 128
        attributes, delta, offset, key, value = delta, offset, key, value, more
    odd, at = length, start + 5
    has_no_key = key == _NULL
    try:
        if not has_no_key:
            odd |= key
            at += key >> 1
            value = batch[at - 1]
        if value > 127:
            value += (batch[at] << 7) - 128
            at += 1
    except IndexError:
        return None
    if value != _NULL:
        odd |= value
        at += value >> 1
    if odd & 1 or delta or offset or attributes > 127 or key > 127 or timestamp < NO_TIMESTAMP:
        return None
    if length != 2 * (end - start) or at != end - 1 or batch[at]:
        return None
    if length >= _TWO_BYTES_END or value >= _TWO_BYTES_END:
        return None
    return _new_tuple(Inspection, (timestamp, timestamp, _ALL_OF_ONE if has_no_key else ()))


def inspectable(records: Buffer) -> bytes:
    """A copy of a batch's decompressed records after two zero bytes, for the functions below."""
    return _BEFORE + records


def inspect_uniform(data: bytes, header: BatchHeader) -> Inspection | None:
    """Inspect records of one size, in some nanoseconds per record.

    None for other records, and for nearly all errors. Raises ProtocolError.
    """
    if header.record_count < 2:
        return None
    stretches = stretches_of(data, _START, header.record_count)
    if stretches is None:
        return None
    shape, _, _, _ = stretches[0]
    keyless = range(header.record_count) if shape.key_size < 0 else ()
    return _inspection(header, distinct(b"".join([stamps for _, _, _, stamps in stretches])), keyless)


def inspect_in_lanes(data: bytes, header: BatchHeader) -> Inspection | None:
    """Inspect records of any sizes, in half the time of one by one.

    None for unusual records, and for nearly all errors. Raises ProtocolError.
    """
    if header.record_count < _FEWEST_IN_LANES:
        return None
    found = deltas_of(data, _START, header.record_count)
    if found is None:
        return None
    deltas, have_keys = found
    return _inspection(header, deltas, () if have_keys else range(header.record_count))


def inspect_one_by_one(data: bytes, header: BatchHeader) -> Inspection:
    """Inspect any records. Raises ProtocolError."""
    records = data[_START:]
    count = header.record_count
    if not 0 < count <= len(records) // SMALLEST_RECORD_BYTES:
        raise ProtocolError(f"{count} records cannot lie in {len(records)} bytes")
    deltas, end, keyless = _walk(records, header)
    if end != len(records):
        raise ProtocolError(f"{len(records) - end} bytes follow the {count} records")
    return _inspection(header, deltas, keyless)


def largest_record_bytes(data: bytes, count: int) -> int:
    """The length of the largest of `count` records that were inspected before."""
    position, largest = _START, 0
    for _ in range(count):
        size, start = decode_varint(data, position)
        position = start + size
        largest = max(largest, size)
    return largest


def _inspection(header: BatchHeader, deltas: set[int], keyless: Sequence[int]) -> Inspection:
    """The result for these timestamp deltas (zigzag numbers). Raises ProtocolError."""
    base_timestamp = header.base_timestamp
    if deltas == _NO_DELTA and base_timestamp >= NO_TIMESTAMP:
        return _new_tuple(Inspection, (base_timestamp, base_timestamp, keyless))
    timestamps = {base_timestamp + ((each >> 1) ^ -(each & 1)) for each in deltas}
    latest = max(timestamps)
    if latest > _INT64_MAX or min(timestamps) < ~_INT64_MAX:
        raise ProtocolError("a record's timestamp does not fit into int64")
    if NO_TIMESTAMP in timestamps:
        timestamps.remove(NO_TIMESTAMP)
    return Inspection(min(timestamps, default=NO_TIMESTAMP), max(latest, NO_TIMESTAMP), keyless)


def _walk(data: bytes, header: BatchHeader) -> tuple[set[int], int, Sequence[int]]:
    """Timestamp deltas of the records, as zigzag numbers, the position after the last one, and the records
    without a key, at most MOST_KEYLESS.

    Numbers of one and two bytes (some of three) are read in place; a first byte above 127 is corrected by
    128. Whether one was longer, negative or past the end is checked at the record's end.
    """
    deltas: set[int] = set()
    keyless: list[int] = []
    add, last_delta = deltas.add, -1
    position, size_bytes = 0, len(data)
    for index in range(header.record_count):
        start, unsure = position, 0
        try:
            if (length := data[position]) > 127:
                position += 1
                length += ((unsure := data[position]) << 7) - 128
            end = position + 1 + (length >> 1)
            unsure |= data[position + 1]
            position += 2
            if (delta := data[position]) > 127:
                position += 1
                delta += ((more := data[position]) << 7) - 128
                if more > 127:
                    position += 1
                    delta += ((more := data[position]) << 14) - 16384
                unsure |= more
            position += 1
            if (offset := data[position]) > 127:
                position += 1
                offset += ((more := data[position]) << 7) - 128
                if more > 127:
                    position += 1
                    offset += ((more := data[position]) << 14) - 16384
                unsure |= more
            position += 1
            if (size := data[position]) > 127:
                position += 1
                size += ((more := data[position]) << 7) - 128
                unsure |= more
            odd = length
            if size != 1:
                odd |= size
                position += size >> 1
            elif len(keyless) < MOST_KEYLESS:
                keyless.append(index)
            position += 1
            if (size := data[position]) > 127:
                position += 1
                size += ((more := data[position]) << 7) - 128
                unsure |= more
            if size != 1:
                odd |= size
                position += size >> 1
            position += 1
            if unsure < 128 and offset == 2 * index and not odd & 1:
                if data[position]:
                    position = _behind_headers(data, position)
                else:
                    position += 1
                if position == end <= size_bytes:
                    if delta != last_delta:
                        add(delta)
                        last_delta = delta
                    continue
        except (IndexError, ProtocolError):
            pass  # The plain decoder finds the error, if there is one.
        delta, position = _plainly(data, start, index, header, keyless)
        add(delta)
    return deltas, position, keyless


def _plainly(data: bytes, start: int, index: int, header: BatchHeader, keyless: list[int]) -> tuple[int, int]:
    """Timestamp delta (zigzag number) of record `index`, which begins at `start`, and the position after
    it. `keyless` holds it at the end if it has no key."""
    if keyless[-1:] == [index]:
        keyless.pop()
    record = Lists(header)
    end = decode_record(data, start, header, record)
    attributes = data[decode_varint(data, start)[1]]
    if attributes > 127:
        raise ProtocolError(f"record at byte {start}: expected attributes below 0x80, got {attributes:#x}")
    if record.offsets[0] != header.base_offset + index:
        raise ProtocolError(
            f"record at byte {start}: its offset delta is not {index}, its place in the batch"
        )
    delta = record.timestamps[0] - header.base_timestamp
    if record.keys[0] is None and len(keyless) < MOST_KEYLESS:
        keyless.append(index)
    return delta << 1 ^ delta >> 63, end


def _behind_headers(data: bytes, position: int) -> int:
    """The position after the headers whose count is at `position`; -1 if a number takes more than one
    byte."""
    count = data[position]
    position += 1
    if count & 129:
        return -1
    for _ in range(count >> 1):
        size = data[position]
        position += 1
        end = position + (size >> 1)
        if size & 129 or not data[position:end].isascii():
            return -1
        size = data[end]
        position = end + 1
        if size != 1:
            if size & 129:
                return -1
            position += size >> 1
    return position
