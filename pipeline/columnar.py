"""Record batches as the log holds them, decoded into Arrow columns without a Python object per record.

Owns the assembly of Arrow arrays from what `pipeline.vectors` read: keys, values and headers are gathered
from the bytes as they lie. Together they are the twin of `protocol.records.decode_batch`; a property test
holds them equal.

Invariants:
- Bytes that `decode_batch` refuses raise ProtocolError here too, and no half decoded batch leaves this
  module.
- Control batches are markers, not records: they are skipped. The CRC-32C is checked before a batch is
  looked at.
- Every column has exactly the Arrow type that Spark derives from the source's schema; Spark insists on it.

Called by the Spark source, in Python workers; knows nothing of Spark or sockets.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.isolation import BatchFilter
from pipeline.vectors import Flags, Integers, RecordFields, Slices, read_fields, walk
from protocol.compression import Compression, decompress
from protocol.errors import ProtocolError
from protocol.records import (
    BATCH_HEADER_SIZE,
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    batch_crc_is_valid,
    iter_batches,
)
from protocol.types import MAX_SEQUENCE, NO_SEQUENCE, Buffer

HEADERS_TYPE = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
ARROW_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int32()),
        pa.field("sequence", pa.int32()),
    ]
)
COLUMNS: tuple[str, ...] = tuple(ARROW_SCHEMA.names)
NO_END = 2**63 - 1

_ArrowArray: TypeAlias = Any
# Arrow's binary arrays hold 32-bit positions.
_MOST_PAYLOAD_BYTES = 2**31 - 1
# What fits into Arrow's microseconds; a record may claim any number of milliseconds.
_LARGEST_TIMESTAMP_MS = (2**63 - 1) // 1000
_HEADER_FIELDS = {name: place for place, name in enumerate(BatchHeader._fields)}


def decode_record_batches(
    data: Buffer,
    *,
    topic: str,
    partition: int,
    start_offset: int = 0,
    end_offset: int = NO_END,
    columns: Sequence[str] = COLUMNS,
    target_rows: int = 65_536,
    batch_filter: BatchFilter | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of `data` with start_offset <= offset < end_offset, in log order, as Arrow record batches.

    `data` holds whole batches as Fetch or a segment gives them; a truncated tail is ignored. Each yielded
    batch has `columns` in that order and at least `target_rows` rows, except the last; a log batch is not
    split. Timestamps beyond what microseconds hold are clipped. What `batch_filter` hides is left out.
    Raises ProtocolError for a wrong CRC or a malformed batch, KeyError for an unknown column, and what
    `batch_filter` raises.
    """
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
    rows = _Rows(topic, partition, schema)
    for position, header in iter_batches(data):
        if header.base_offset >= end_offset:
            break
        # First the CRC: a damaged header must not pass for one that is to be skipped.
        if not batch_crc_is_valid(data, header, position):
            raise ProtocolError(
                f"{topic}-{partition}: the batch at offset {header.base_offset} does not match its CRC"
            )
        if batch_filter is not None and batch_filter.hides(data, position, header):
            continue
        if header.last_offset < start_offset or header.is_control:
            continue
        payload = _payload(data, position, header, f"{topic}-{partition}")
        if rows.size_bytes + len(payload) > _MOST_PAYLOAD_BYTES:
            yield from rows.take(start_offset, end_offset)
        rows.add(header, payload)
        if rows.count >= target_rows:
            yield from rows.take(start_offset, end_offset)
    yield from rows.take(start_offset, end_offset)


def _payload(data: Buffer, position: int, header: BatchHeader, where: str) -> bytes:
    """The uncompressed records of the batch at `position`."""
    packed = memoryview(data)[position + BATCH_HEADER_SIZE : position + header.size_bytes]
    codec = header.compression
    if codec is Compression.NONE:
        return bytes(packed)
    try:
        return decompress(codec, packed, DEFAULT_MAX_DECOMPRESSED_BYTES)
    except ProtocolError as error:
        raise ProtocolError(f"{where}: batch at offset {header.base_offset}: {error}") from None


class _Rows:
    """Batches that were walked and wait to be decoded together, so that small ones share numpy's overhead."""

    def __init__(self, topic: str, partition: int, schema: pa.Schema) -> None:
        self._topic = topic
        self._partition = partition
        self._schema = schema
        self._clear()

    def _clear(self) -> None:
        self._headers: list[BatchHeader] = []
        self._payloads: list[bytes] = []
        self._counts: list[int] = []
        self._ends: list[int] = []
        self.size_bytes = 0

    @property
    def count(self) -> int:
        return len(self._ends)

    def add(self, header: BatchHeader, payload: bytes) -> None:
        """Take one batch. ProtocolError if its records do not fill its payload."""
        try:
            ends = walk(payload, header.record_count)
        except ProtocolError as error:
            raise ProtocolError(f"{self._where(header)}: {error}") from None
        self._headers.append(header)
        self._payloads.append(payload)
        self._counts.append(len(ends))
        self._ends += ends
        self.size_bytes += len(payload)

    def take(self, start_offset: int, end_offset: int) -> Iterator[pa.RecordBatch]:
        """At most one Arrow batch with the rows between the two offsets; afterwards there are none left."""
        if self._ends:
            batch, offsets = self._decode()
            wanted = (offsets >= start_offset) & (offsets < end_offset)
            if not wanted.all():
                batch = batch.filter(_flags(wanted))
            if batch.num_rows:
                yield batch
        self._clear()

    def _decode(self) -> tuple[pa.RecordBatch, Integers]:
        payload = self._payloads[0] if len(self._payloads) == 1 else b"".join(self._payloads)
        counts = np.array(self._counts, np.int64)
        sizes = np.array([len(each) for each in self._payloads], np.int64)
        ends = np.array(self._ends, np.int64) + np.repeat(np.cumsum(sizes) - sizes, counts)
        per_batch = {
            name: np.array([header[place] for header in self._headers], np.int64)
            for name, place in _HEADER_FIELDS.items()
        }
        last_deltas = np.repeat(per_batch["last_offset_delta"], counts)
        try:
            fields = read_fields(np.frombuffer(payload, np.uint8), ends, last_deltas)
            columns = _Columns(fields, payload, counts, per_batch)
            arrays = [
                columns.build(name, self._topic, self._partition).cast(self._schema.field(name).type)
                for name in self._schema.names
            ]
        except ProtocolError as error:
            first, last = self._headers[0], self._headers[-1]
            raise ProtocolError(f"{self._where(first)} to {last.last_offset}: {error}") from None
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), columns.offsets

    def _where(self, header: BatchHeader) -> str:
        return f"{self._topic}-{self._partition}: batch at offset {header.base_offset}"


class _Columns:
    """Builds each column that is wanted, and none other."""

    def __init__(
        self, fields: RecordFields, payload: bytes, counts: Integers, per_batch: dict[str, Integers]
    ) -> None:
        self._fields = fields
        self._buffer = pa.py_buffer(payload)
        self._counts = counts
        self._per_batch = per_batch
        self._rows = len(fields.offset_deltas)
        self.offsets: Integers = self._each("base_offset") + fields.offset_deltas

    def build(self, name: str, topic: str, partition: int) -> _ArrowArray:
        builders: dict[str, Callable[[], _ArrowArray]] = {
            "key": lambda: self._gather(self._fields.keys, pa.binary()),
            "value": lambda: self._gather(self._fields.values, pa.binary()),
            "topic": lambda: _repeated(topic, self._rows),
            "partition": lambda: _numbers(np.full(self._rows, partition, np.int32)),
            "offset": lambda: _numbers(self.offsets),
            "timestamp": self._timestamps,
            "timestampType": lambda: _numbers((self._each("attributes") >> 3 & 1).astype(np.int32)),
            "headers": self._headers,
            "producer_id": lambda: _numbers(self._each("producer_id")),
            "producer_epoch": lambda: _numbers(self._each("producer_epoch").astype(np.int32)),
            "sequence": self._sequences,
        }
        return builders[name]()

    def _each(self, name: str) -> Integers:
        """A field of the batch header, repeated for each record of its batch."""
        return np.repeat(self._per_batch[name], self._counts)

    def _timestamps(self) -> _ArrowArray:
        created = self._each("base_timestamp") + self._fields.timestamp_deltas
        is_append_time = (self._each("attributes") & 8).astype(np.bool_)
        timestamps = np.where(is_append_time, self._each("max_timestamp"), created)
        clipped = np.clip(timestamps, -_LARGEST_TIMESTAMP_MS, _LARGEST_TIMESTAMP_MS)
        return _numbers(clipped * 1000).view(pa.timestamp("us", tz="UTC"))

    def _sequences(self) -> _ArrowArray:
        base = self._each("base_sequence")
        sequences = np.where(base < 0, NO_SEQUENCE, (base + self._fields.offset_deltas) & MAX_SEQUENCE)
        return _numbers(sequences.astype(np.int32))

    def _headers(self) -> _ArrowArray:
        """Null where a record has none, as in Spark's own Kafka source."""
        names = self._gather(self._fields.header_names, pa.string())
        try:
            names.validate(full=True)
        except pa.ArrowInvalid as error:
            raise ProtocolError(f"a header name is not UTF-8 ({error})") from None
        values = self._gather(self._fields.header_values, pa.binary())
        struct_type = HEADERS_TYPE.value_type
        pairs = pa.StructArray.from_arrays([names, values], fields=list(struct_type))
        counts = self._fields.header_counts
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))).astype(np.int32)
        return pa.ListArray.from_arrays(_numbers(ends), pairs, type=HEADERS_TYPE, mask=_flags(counts == 0))

    def _gather(self, slices: Slices, arrow_type: pa.DataType) -> _ArrowArray:
        """The slices of the payload as an array: all of it, cut at each start and end, of which every second
        piece is wanted."""
        count = len(slices.starts)
        if not count:
            return pa.array([], arrow_type)
        cuts: npt.NDArray[np.int32] = np.empty(2 * count, np.int32)
        cuts[0::2] = slices.starts
        cuts[1::2] = slices.ends
        pieces = pa.Array.from_buffers(arrow_type, 2 * count - 1, [None, pa.py_buffer(cuts), self._buffer])
        wanted = _numbers(np.arange(0, 2 * count, 2))
        if slices.nulls.any():
            validity = pa.py_buffer(np.packbits(~slices.nulls, bitorder="little"))
            wanted = pa.Array.from_buffers(pa.int64(), count, [validity, wanted.buffers()[1]])
        return pieces.take(wanted)


# pa.array() and pa.scalar() would do the same, and import pandas first, in every Python worker.
def _numbers(values: npt.NDArray[np.int64] | npt.NDArray[np.int32]) -> _ArrowArray:
    arrow_type = pa.int64() if values.dtype == np.int64 else pa.int32()
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(values)])


def _flags(values: Flags) -> _ArrowArray:
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def _repeated(text: str, count: int) -> _ArrowArray:
    encoded = text.encode()
    cuts = np.arange(count + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(cuts), pa.py_buffer(encoded * count)]
    )
