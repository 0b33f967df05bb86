"""Record batches, version 2: bytes to header views and records, and back.

Owns: the layout of a batch and of the records in it. `header` reads and patches the 61-byte header and never
reads records; `inspection` checks records for the broker; `builder` encodes a batch; `reader` decodes one.
Sequence arithmetic is in protocol.sequences and is exported here too.
Invariants: nothing here copies a batch that it only reads. Malformed input raises only ProtocolError. The
CRC-32C covers everything from the attributes on, so base offset and leader epoch may be written in place
without a new CRC.

Source: KIP-98, Kafka's documentation of the message format ("Record Batch").
"""

from tidelog.protocol.records.builder import RecordBatchBuilder
from tidelog.protocol.records.columns import SMALLEST_RECORD_BYTES, Columns, Headers
from tidelog.protocol.records.filtering import emptied, with_records
from tidelog.protocol.records.header import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    CURRENT_MAGIC,
    LOG_OVERHEAD,
    BatchHeader,
    TimestampType,
    batch_crc_is_valid,
    iter_batches,
    largest_timestamp,
    pack_prefix,
    read_batch_header,
    read_magic,
    set_producer,
    unpack_header,
    with_log_append_time,
    with_max_timestamp,
    write_header,
)
from tidelog.protocol.records.inspection import (
    MOST_KEYLESS,
    Inspection,
    inspect_in_lanes,
    inspect_lone,
    inspect_one_by_one,
    inspect_uniform,
    inspectable,
)
from tidelog.protocol.records.isolation import AbortedTransactions
from tidelog.protocol.records.markers import (
    EndTransactionMarker,
    TransactionMarker,
    build_marker,
    read_marker,
)
from tidelog.protocol.records.reader import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Record,
    columns_of,
    decode_batch,
    decode_batch_columns,
    decode_plain_batches,
    record_bytes,
)
from tidelog.protocol.records.runs import FIELD_SIZES
from tidelog.protocol.sequences import (
    decrement_sequence,
    increment_sequence,
    last_sequence,
    sequence_distance,
)

__all__ = [
    "BATCH_HEADER_SIZE",
    "COMPRESSION_MASK",
    "CURRENT_MAGIC",
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "FIELD_SIZES",
    "LOG_OVERHEAD",
    "MOST_KEYLESS",
    "SMALLEST_RECORD_BYTES",
    "AbortedTransactions",
    "BatchHeader",
    "Columns",
    "EndTransactionMarker",
    "Headers",
    "Inspection",
    "Record",
    "RecordBatchBuilder",
    "TimestampType",
    "TransactionMarker",
    "batch_crc_is_valid",
    "build_marker",
    "columns_of",
    "decode_batch",
    "decode_batch_columns",
    "decode_plain_batches",
    "decrement_sequence",
    "emptied",
    "increment_sequence",
    "inspect_in_lanes",
    "inspect_lone",
    "inspect_one_by_one",
    "inspect_uniform",
    "inspectable",
    "iter_batches",
    "largest_timestamp",
    "last_sequence",
    "pack_prefix",
    "read_batch_header",
    "read_magic",
    "read_marker",
    "record_bytes",
    "sequence_distance",
    "set_producer",
    "unpack_header",
    "with_log_append_time",
    "with_max_timestamp",
    "with_records",
    "write_header",
]
