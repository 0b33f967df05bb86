"""Record batches, version 2: bytes to header views and records, and back.

Owns: the layout of a batch and of the records in it. Invariants: nothing here copies a batch that it only
reads. Malformed input raises only ProtocolError. The CRC-32C covers everything from the attributes on, so
base offset and leader epoch may be written in place without a new CRC.

Source: KIP-98, Kafka's documentation of the message format ("Record Batch").
"""

from tidelog.protocol.records.builder import RecordBatchBuilder
from tidelog.protocol.records.columns import SMALLEST_RECORD_BYTES, Columns, Headers
from tidelog.protocol.records.filtering import emptied, placeholder, with_records
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
    inspect_one_by_one,
    inspect_single_record,
    inspect_uniform,
    inspectable,
    largest_record_bytes,
)
from tidelog.protocol.records.markers import (
    AbortedTransactions,
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
