"""Record batches as the log holds them, decoded into Arrow columns without a Python object per record.

Owns how Arrow arrays are built from the fields that `vectors` reads: keys, values and headers are gathered
directly from the bytes.

Invariants:
- Bytes that `decode_batch` refuses raise ProtocolError here too. No partly decoded batch is yielded.
- Control batches are markers, not records: they are skipped. The CRC-32C is checked before a batch is read.
- Every column has exactly the Arrow type that Spark derives from the source's schema; Spark insists on it.

Knows nothing of Spark or sockets.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.pipeline.arrow.arrays import ArrowArray, flags, numbers, repeated
from tidelog.pipeline.arrow.batches import NO_END, Batches, batch_positions
from tidelog.pipeline.arrow.record_ends import record_places
from tidelog.pipeline.arrow.vectors import Integers, RecordFields, Slices, read_fields
from tidelog.protocol.compression import Compression, decompress
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    AbortedTransactions,
    read_batch_header,
)
from tidelog.protocol.records.header import COMPRESSION_MASK, CONTROL_BIT
from tidelog.protocol.types import MAX_SEQUENCE, NO_SEQUENCE, Buffer

HEADERS_TYPE = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
ARROW_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("headers", HEADERS_TYPE),
        pa.field("producer_id", pa.int64(), nullable=False),
        pa.field("producer_epoch", pa.int32(), nullable=False),
        pa.field("sequence", pa.int32(), nullable=False),
    ]
)

# Compressed batches may be a thousand times larger than what was fetched. Bytes that are decoded together, or
# a single batch.
_UNPACKED_BYTES = 32 * 1024 * 1024
# The largest that fits into Arrow's microseconds; a record may hold any number of milliseconds.
_LARGEST_TIMESTAMP_MS = (2**63 - 1) // 1000


def decode_record_batches(
    data: Buffer,
    *,
    topic: str,
    partition: int,
    start_offset: int = 0,
    end_offset: int = NO_END,
    columns: Sequence[str] = tuple(ARROW_SCHEMA.names),
    target_rows: int = 65_536,
    batch_filter: AbortedTransactions | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of `data` with start_offset <= offset < end_offset, in log order, as Arrow record batches.

    `data` holds whole batches of a Fetch or a segment; a truncated tail is ignored. The yielded batches have
    `columns` in that order and about `target_rows` rows each; a log batch is not split. Timestamps too large
    for microseconds are clipped. Batches that `batch_filter` hides are left out. Raises ProtocolError for a
    wrong CRC or a malformed batch, KeyError for an unknown column, and the errors of `batch_filter`.
    """
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
    decoder = _Decoder(topic, partition, schema, start_offset, end_offset)
    batches = Batches.at(data, batch_positions(data, end_offset))
    # The CRC comes first: otherwise a damaged header could cause the batch to be skipped.
    batches.check_crcs(f"{topic}-{partition}")
    is_wanted = (batches.field("attributes") & CONTROL_BIT == 0) & (batches.last_offsets >= start_offset)
    if batch_filter is not None:
        for number, position in enumerate(batches.positions.tolist()):
            if batch_filter.hides(data, position, read_batch_header(data, position)):
                is_wanted[number] = False
    batches = batches.where(is_wanted)
    rows = np.cumsum(np.maximum(batches.field("record_count"), 0))
    total = int(rows[-1]) if len(rows) else 0
    pieces = max(1, round(total / target_rows))
    cuts = np.searchsorted(rows, [total * number // pieces for number in range(1, pieces)], side="left") + 1
    for begin, end in pairwise(sorted({0, *cuts.tolist(), len(rows)})):
        yield from decoder.decode(batches.where(slice(begin, end)))


class _Decoder:
    """Decodes batches together, so that small ones share numpy's overhead."""

    def __init__(
        self, topic: str, partition: int, schema: pa.Schema, start_offset: int, end_offset: int
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._schema = schema
        self._start_offset = start_offset
        self._end_offset = end_offset

    def decode(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The rows from start to end offset, in one Arrow batch, or in several if they were compressed."""
        if not (batches.field("attributes") & COMPRESSION_MASK).any():
            starts = batches.positions + BATCH_HEADER_SIZE
            yield from self._decode(batches, batches.data, starts, batches.ends)
            return
        payloads: list[Buffer] = []
        begin, size = 0, 0
        for number, position in enumerate(batches.positions.tolist()):
            payload = self._payload(batches.data, position)
            if payloads and size + len(payload) > _UNPACKED_BYTES:
                yield from self._decode_payloads(batches.where(slice(begin, number)), payloads)
                begin, payloads, size = number, [], 0
            payloads.append(payload)
            size += len(payload)
        yield from self._decode_payloads(batches.where(slice(begin, len(batches))), payloads)

    def _payload(self, data: Buffer, position: int) -> Buffer:
        """The uncompressed records of the batch at `position`."""
        header = read_batch_header(data, position)
        packed = memoryview(data)[position + BATCH_HEADER_SIZE : position + header.size_bytes]
        try:
            if header.compression is Compression.NONE:
                return packed
            return decompress(header.compression, packed, DEFAULT_MAX_DECOMPRESSED_BYTES)
        except ProtocolError as error:
            where = f"{self._topic}-{self._partition}: batch at offset {header.base_offset}"
            raise ProtocolError(f"{where}: {error}") from None

    def _decode_payloads(self, batches: Batches, payloads: list[Buffer]) -> Iterator[pa.RecordBatch]:
        sizes = np.array([len(each) for each in payloads], np.int64)
        ends = np.cumsum(sizes)
        yield from self._decode(batches, b"".join(payloads), ends - sizes, ends)

    def _decode(
        self, batches: Batches, payload: Buffer, starts: Integers, ends: Integers
    ) -> Iterator[pa.RecordBatch]:
        """At most one Arrow batch. The records of batch n are in bytes starts[n] to ends[n] of `payload`."""
        octets = np.frombuffer(payload, np.uint8)
        counts = batches.field("record_count")
        try:
            fields = read_fields(
                octets,
                *record_places(octets, starts, ends, counts),
                np.repeat(batches.field("last_offset_delta"), counts),
            )
            columns = _Columns(fields, payload, counts, batches)
            arrays = [
                columns.build(name, self._topic, self._partition).cast(self._schema.field(name).type)
                for name in self._schema.names
            ]
        except ProtocolError as error:
            offsets = f"{batches.field('base_offset')[0]} to {batches.last_offsets[-1]}"
            raise ProtocolError(f"{self._topic}-{self._partition}: offsets {offsets}: {error}") from None
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        wanted = (columns.offsets >= self._start_offset) & (columns.offsets < self._end_offset)
        if not wanted.all():
            rows = rows.filter(flags(wanted))
        if rows.num_rows:
            yield rows


class _Columns:
    """Builds Arrow columns from the fields of records, only those that are wanted."""

    def __init__(self, fields: RecordFields, payload: Buffer, counts: Integers, batches: Batches) -> None:
        self._fields = fields
        self._buffer = pa.py_buffer(payload)
        self._counts = counts
        self._batches = batches
        self._rows = len(fields.offset_deltas)
        self.offsets: Integers = self._each("base_offset") + fields.offset_deltas

    def build(self, name: str, topic: str, partition: int) -> ArrowArray:
        builders: dict[str, Callable[[], ArrowArray]] = {
            "key": lambda: self._gather(self._fields.keys, pa.binary()),
            "value": lambda: self._gather(self._fields.values, pa.binary()),
            "topic": lambda: repeated(topic, self._rows),
            "partition": lambda: numbers(np.full(self._rows, partition, np.int32)),
            "offset": lambda: numbers(self.offsets),
            "timestamp": self._timestamps,
            "timestampType": lambda: numbers((self._each("attributes") >> 3 & 1).astype(np.int32)),
            "headers": self._headers,
            "producer_id": lambda: numbers(self._each("producer_id")),
            "producer_epoch": lambda: numbers(self._each("producer_epoch").astype(np.int32)),
            "sequence": self._sequences,
        }
        return builders[name]()

    def _each(self, name: str) -> Integers:
        """A field of the batch header, repeated for each record of its batch."""
        return np.repeat(self._batches.field(name), self._counts)

    def _timestamps(self) -> ArrowArray:
        created = self._each("base_timestamp") + self._fields.timestamp_deltas
        is_append_time = (self._each("attributes") & 8).astype(np.bool_)
        timestamps = np.where(is_append_time, self._each("max_timestamp"), created)
        clipped = np.clip(timestamps, -_LARGEST_TIMESTAMP_MS, _LARGEST_TIMESTAMP_MS)
        return numbers(clipped * 1000).view(pa.timestamp("us", tz="UTC"))

    def _sequences(self) -> ArrowArray:
        base = self._each("base_sequence")
        sequences = np.where(base < 0, NO_SEQUENCE, (base + self._fields.offset_deltas) & MAX_SEQUENCE)
        return numbers(sequences.astype(np.int32))

    def _headers(self) -> ArrowArray:
        """Null if a record has no headers, as in Spark's own Kafka source."""
        names = self._gather(self._fields.header_names, pa.string())
        try:
            names.validate(full=True)
        except pa.ArrowInvalid as error:
            raise ProtocolError(
                f"a header name is not UTF-8 ({error}): leave out the column headers"
            ) from None
        values = self._gather(self._fields.header_values, pa.binary())
        struct_type = HEADERS_TYPE.value_type
        pairs = pa.StructArray.from_arrays([names, values], fields=list(struct_type))
        counts = self._fields.header_counts
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))).astype(np.int32)
        return pa.ListArray.from_arrays(numbers(ends), pairs, type=HEADERS_TYPE, mask=flags(counts == 0))

    def _gather(self, slices: Slices, arrow_type: pa.DataType) -> ArrowArray:
        """The slices of the payload as an array: the payload is cut at each start and end, and every second
        piece is taken."""
        count = len(slices.starts)
        if not count:
            return pa.nulls(0, arrow_type)
        cuts: npt.NDArray[np.int32] = np.empty(2 * count, np.int32)
        cuts[0::2] = slices.starts
        cuts[1::2] = slices.ends
        pieces = pa.Array.from_buffers(arrow_type, 2 * count - 1, [None, pa.py_buffer(cuts), self._buffer])
        wanted = numbers(np.arange(0, 2 * count, 2))
        if slices.nulls.any():
            validity = pa.py_buffer(np.packbits(~slices.nulls, bitorder="little"))
            wanted = pa.Array.from_buffers(pa.int64(), count, [validity, wanted.buffers()[1]])
        return pieces.take(wanted)
