"""The control batch that ends a producer's transaction on one partition.

Owns the layout of its one record: the key holds the version and whether it commits or aborts, the value holds
the epoch of the transaction coordinator that wrote it. Invariants: reading any other batch raises
ProtocolError; a batch that was built here reads as what it was built from.

Source: KIP-98, "Control Records"; Kafka's EndTransactionMarker.
"""

from struct import Struct
from typing import NamedTuple

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records.builder import RecordBatchBuilder
from tidelog.protocol.records.header import read_batch_header
from tidelog.protocol.records.reader import decode_batch
from tidelog.protocol.types import Buffer

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1
_LARGEST_MARKER_BYTES = 1 << 16


class EndTransactionMarker(NamedTuple):
    """How a transaction ended, and under which coordinator."""

    is_commit: bool
    coordinator_epoch: int


class TransactionMarker(NamedTuple):
    """Whose transaction ends on a partition, and how: what a coordinator asks the partition's leader for."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


def build_marker(marker: TransactionMarker, timestamp_ms: int) -> bytearray:
    """The control batch, as a coordinator appends it."""
    builder = RecordBatchBuilder()
    kind = _COMMIT if marker.is_commit else _ABORT
    builder.append(timestamp_ms, _KEY.pack(0, kind), _VALUE.pack(0, marker.coordinator_epoch))
    return builder.build(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_marker(batch: Buffer, position: int = 0) -> EndTransactionMarker:
    """The marker in the control batch at `position`, whose CRC was checked. Raises ProtocolError."""
    records = decode_batch(batch, position, max_decompressed_bytes=_LARGEST_MARKER_BYTES, check_crc=False)
    key = records[0].key if records else None
    value = records[0].value if records else None
    offset = read_batch_header(batch, position).base_offset
    if key is None or len(key) < _KEY.size or value is None or len(value) < _VALUE.size:
        raise ProtocolError(
            f"control batch at offset {offset}: expected a key of {_KEY.size} bytes with its kind and a"
            f" value of {_VALUE.size} bytes, came {key!r:.40} and {value!r:.40}"
        )
    _, kind = _KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        raise ProtocolError(f"control batch at offset {offset}: kind {kind}, expected 0 or 1 (abort, commit)")
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return EndTransactionMarker(kind == _COMMIT, coordinator_epoch)
