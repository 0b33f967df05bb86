"""Arrow columns, encoded into record batches without a Python object per record.

Owns the layout of records, the inverse of `columnar`: numpy computes the sizes and varints of all records
together, and Arrow joins the parts of each record. The joined bytes are the batches. A property test holds
them equal to those of `protocol.records.RecordBatchBuilder`, record by record.

Invariants: rows keep their order. A batch is never larger than asked for, unless it holds a single record.
Deltas start at 0 in each batch. The client writes the headers of batches. Knows nothing of Spark or sockets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipeline.arrow.arrays import integers, nulls, numbers, octets
from tidelog.pipeline.arrow.vectors import Integers, Octets
from tidelog.protocol.records import BATCH_HEADER_SIZE, RecordBatchBuilder
from tidelog.protocol.records.varints import encode_varint
from tidelog.protocol.types import NO_TIMESTAMP

# Varints of length, timestamp and offset delta, key length, value length and header count, and attributes.
_MOST_OVERHEAD = 5 + 10 + 5 + 5 + 5 + 5 + 1
_BINARY = pa.binary()
_NO_HEADERS = octets(b"\0")
_NOTHING = octets(b"")


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records to encode: binary `keys` and `values` (None: all null), timestamps in milliseconds.

    `headers` has the type `columnar.HEADERS_TYPE`, or is None if no record has any. `last_header` adds a last
    header to each record: its name, and a binary array without nulls.
    """

    timestamps_ms: Integers
    keys: Any = None
    values: Any = None
    headers: Any = None
    last_header: tuple[str, Any] | None = None

    def take(self, rows: Integers) -> "RecordColumns":
        """The records at these positions, in this order."""
        chosen = numbers(rows)

        def pick(column: Any) -> Any:
            return None if column is None else column.take(chosen)

        last = self.last_header
        return RecordColumns(
            self.timestamps_ms[rows],
            pick(self.keys),
            pick(self.values),
            pick(self.headers),
            None if last is None else (last[0], pick(last[1])),
        )


class EncodedBatch(NamedTuple):
    """The records of one batch. Timestamps are milliseconds."""

    payload: memoryview
    record_count: int
    base_timestamp: int
    max_timestamp: int

    def builder(self) -> RecordBatchBuilder:
        """For `BatchBuilder.of`."""
        return RecordBatchBuilder.from_encoded(
            self.payload, self.record_count, self.base_timestamp, self.max_timestamp
        )


def record_size_bounds(columns: RecordColumns) -> Integers:
    """An upper bound of each record's size in bytes."""
    headers = _header_blobs(columns)
    sizes = np.full(len(columns.timestamps_ms), _MOST_OVERHEAD, np.int64)
    for array in (columns.keys, columns.values, *headers.parts):
        if isinstance(array, pa.Array):
            sizes += _lengths(array, absent=0)
    return sizes + headers.constant_bytes


def encode(columns: RecordColumns, batch_bytes: int) -> Iterator[EncodedBatch]:
    """Whole batches of at most `batch_bytes` before compression, header included.

    Raises ValueError for a timestamp before 1970 (-1 is none), ArrowInvalid for 2 GiB of records.
    """
    count = len(columns.timestamps_ms)
    if not count:
        return
    if int(columns.timestamps_ms.min()) < NO_TIMESTAMP:
        raise ValueError(
            f"timestamp {int(columns.timestamps_ms.min())} ms lies before 1970; a record cannot hold it"
        )
    headers = _header_blobs(columns)
    keys, values = _lengths_or_null(columns.keys, count), _lengths_or_null(columns.values, count)
    content = np.maximum(keys, 0) + np.maximum(values, 0) + headers.lengths
    starts = _batch_starts(content + _MOST_OVERHEAD, batch_bytes - BATCH_HEADER_SIZE)
    counts = np.diff(np.append(starts, count))
    base_timestamps = columns.timestamps_ms[starts]
    fields = [
        varints(columns.timestamps_ms - np.repeat(base_timestamps, counts)),
        varints(np.arange(count) - np.repeat(starts, counts)),
        varints(keys),
    ]
    value_field, count_field = varints(values), varints(headers.counts)
    body = content + 1 + value_field.widths + count_field.widths + sum(each.widths for each in fields)
    heads = _ragged([varints(body), _attributes(count), *fields])
    pieces: list[Any] = [heads, _or_nothing(columns.keys), _ragged([value_field])]
    pieces += [_or_nothing(columns.values)]
    pieces += [_NO_HEADERS] if not headers.parts else [_ragged([count_field]), *headers.parts]
    joined = pc.binary_join_element_wise(*pieces, _NOTHING, null_handling="replace", null_replacement=b"")
    _, positions, data = joined.buffers()
    ends = np.frombuffer(positions, np.int32, count + 1, 4 * joined.offset)
    view = memoryview(data)
    highest = np.maximum.reduceat(columns.timestamps_ms, starts)
    for start, size, base, latest in zip(starts, counts, base_timestamps, highest, strict=True):
        payload = view[int(ends[start]) : int(ends[start + size])]
        yield EncodedBatch(payload, int(size), int(base), int(latest))


class Varints(NamedTuple):
    """One zigzag varint per row: its bytes are in the first `widths` columns of `octets`."""

    octets: Octets
    widths: Integers


def varints(numbers: Integers) -> Varints:
    """The varints of int64 numbers."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    widths = np.ones(len(numbers), np.int64)
    highest = int(zigzag.max(initial=0))
    if highest < 128:
        return Varints(zigzag.astype(np.uint8)[:, None], widths)
    most = 1
    while most < 10 and highest >> (7 * most):
        widths += zigzag >= np.uint64(1 << (7 * most))
        most += 1
    octets = np.empty((len(numbers), most), np.uint8)
    for place in range(most):
        septets = ((zigzag >> np.uint64(7 * place)) & np.uint64(127)).astype(np.uint8)
        octets[:, place] = septets | ((widths > place + 1).astype(np.uint8) << 7)
    return Varints(octets, widths)


def _attributes(count: int) -> Varints:
    return Varints(np.zeros((count, 1), np.uint8), np.ones(count, np.int64))


def _ragged(fields: list[Varints]) -> Any:
    """The concatenated bytes of each row's fields, as a binary array."""
    octets = np.hstack([each.octets for each in fields])
    total = np.sum([each.widths for each in fields], axis=0)
    if int(total.sum()) == octets.size:
        data = octets.ravel()
    else:
        used = np.hstack([np.arange(each.octets.shape[1]) < each.widths[:, None] for each in fields])
        data = octets[used]
    return _binary_array(total, pa.py_buffer(data))


def _binary_array(lengths: Integers, data: Any) -> Any:
    positions = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=positions[1:])
    return pa.BinaryArray.from_buffers(_BINARY, len(lengths), [None, pa.py_buffer(positions), data])


def _batch_starts(bounds: Integers, most_bytes: int) -> Integers:
    """The first row of each batch. Each takes as many rows as fit by their bounds, and at least one."""
    ends = np.cumsum(bounds)
    starts = [0]
    while True:
        before = int(ends[starts[-1] - 1]) if starts[-1] else 0
        after = int(np.searchsorted(ends, before + most_bytes, "right"))
        following = max(after, starts[-1] + 1)
        if following >= len(bounds):
            return np.array(starts, np.int64)
        starts.append(following)


class _HeaderBlobs(NamedTuple):
    """The headers of each record: their number, their total bytes, and the parts (arrays, scalars) to
    join."""

    counts: Integers
    lengths: Integers
    parts: list[Any]
    constant_bytes: int


def _header_blobs(columns: RecordColumns) -> _HeaderBlobs:
    count = len(columns.timestamps_ms)
    counts, lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
    parts: list[Any] = []
    constant_bytes = 0
    if columns.headers is not None and len(columns.headers.flatten()):
        counts = integers(pc.list_value_length(columns.headers))
        blobs = _joined_headers(columns.headers.flatten(), counts)
        lengths = _lengths(blobs, absent=0)
        parts.append(blobs)
    if columns.last_header is not None:
        name, contents = columns.last_header
        prefix = encode_varint(len(name.encode())) + name.encode()
        sizes = _lengths(contents, absent=0)
        size_field = varints(sizes)
        parts += [octets(prefix), _ragged([size_field]), contents]
        constant_bytes = len(prefix)
        counts = counts + 1
        lengths = lengths + len(prefix) + size_field.widths + sizes
    return _HeaderBlobs(counts, lengths, parts, constant_bytes)


def _joined_headers(elements: Any, counts: Integers) -> Any:
    """The encoded headers of each record; `elements` holds the headers of all records in order."""
    names, values = elements.field("key").cast(_BINARY), elements.field("value")
    if elements.null_count or names.null_count:
        raise ValueError("a header without a name; every element of headers needs a key")
    name_sizes = varints(_lengths(names, absent=0))
    value_sizes = varints(_lengths(values, absent=-1))
    encoded = pc.binary_join_element_wise(
        _ragged([name_sizes]),
        names,
        _ragged([value_sizes]),
        values,
        _NOTHING,
        null_handling="replace",
        null_replacement=b"",
    )
    _, positions, data = encoded.buffers()
    ends = np.frombuffer(positions, np.int32, len(encoded) + 1, 4 * encoded.offset)
    last = np.concatenate([[0], np.cumsum(counts)])
    places = np.ascontiguousarray(ends[last], np.int32)
    return pa.BinaryArray.from_buffers(_BINARY, len(counts), [None, pa.py_buffer(places), data])


def _lengths(array: Any, absent: int) -> Integers:
    """The length of each element, `absent` for a null."""
    return integers(pc.binary_length(array), absent)


def _lengths_or_null(array: Any, count: int) -> Integers:
    return np.full(count, -1, np.int64) if array is None else _lengths(array, absent=-1)


def _or_nothing(array: Any) -> Any:
    return _NOTHING if array is None else array


def murmur2_partitions(keys: Any, partitions: int) -> Integers:
    """The partition that the Java client chooses for each key of a binary array, -1 for nulls."""
    lengths = _lengths(keys, absent=0)
    # Words of four bytes are read past the end of the last key.
    padded = np.frombuffer(b"".join(_data_of(keys)) + b"\0\0\0\0", np.uint8)
    starts = np.cumsum(lengths) - lengths
    hashes = (np.uint32(0x9747B28C) ^ lengths.astype(np.uint32)).astype(np.uint32)
    words = lengths // 4
    order = np.argsort(-words, kind="stable")
    live: npt.NDArray[np.int64] = order
    for number in range(int(words.max(initial=0))):
        live = live[: np.searchsorted(-words[live], -number, "left")]
        mixed = _word(padded, starts[live] + 4 * number) * _M
        mixed = (mixed ^ (mixed >> np.uint32(24))) * _M
        hashes[live] = (hashes[live] * _M) ^ mixed
    rest = lengths - 4 * words
    rows = np.flatnonzero(rest)
    if rows.size:
        mask = (np.uint32(1) << (rest[rows] * 8).astype(np.uint32)) - np.uint32(1)
        hashes[rows] = (hashes[rows] ^ (_word(padded, starts[rows] + 4 * words[rows]) & mask)) * _M
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
    hashes ^= hashes >> np.uint32(15)
    chosen = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions
    return np.where(nulls(keys), -1, chosen)


_M = np.uint32(0x5BD1E995)


def _word(data: Octets, at: Integers) -> npt.NDArray[np.uint32]:
    word = data[at].astype(np.uint32)
    for place in range(1, 4):
        word |= data[at + place].astype(np.uint32) << np.uint32(8 * place)
    return word


def _data_of(array: Any) -> list[memoryview]:
    """The concatenated bytes of all elements; a null has none."""
    if array.null_count:
        array = array.fill_null(_NOTHING)
    _, positions, data = array.buffers()
    if data is None or not len(array):
        return []
    ends = np.frombuffer(positions, np.int32, len(array) + 1, 4 * array.offset)
    return [memoryview(data)[int(ends[0]) : int(ends[-1])]]
