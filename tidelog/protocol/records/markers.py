"""The control batch that ends a producer's transaction on one partition, and what that hides from consumers.

Owns the layout of its one record: the key holds the version and whether it commits or aborts, the value holds
the epoch of the transaction coordinator that wrote it; and the filter for aborted transactions in an answer
to Fetch. Invariants: reading any other batch raises ProtocolError; a batch that was built here reads as what
it was built from; the filter must be given every batch in log order; batches without a transaction are always
seen.

Pure. Source: KIP-98, "Control Records" and "Consumer"; Kafka's EndTransactionMarker; the protocol's Fetch
response.
"""

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records.builder import RecordBatchBuilder
from tidelog.protocol.records.header import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    CURRENT_MAGIC,
    BatchHeader,
    read_batch_header,
)
from tidelog.protocol.records.reader import decode_batch
from tidelog.protocol.types import Buffer

# The record of `build_marker`: lengths and deltas, key, length of the value, value, and no headers.
_RECORD = Struct(">5shhshis")
_PLAIN_RECORD = (b"\x20\0\0\0\x08", b"\x0c", b"\0")
_PLAIN_BYTES = BATCH_HEADER_SIZE + _RECORD.size
_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1
_LARGEST_MARKER_BYTES = 1 << 16


class EndTransactionMarker(NamedTuple):
    """How a transaction ended, and under which coordinator."""

    is_commit: bool
    coordinator_epoch: int


class TransactionMarker(NamedTuple):
    """Whose transaction ends on a partition, and how: what a coordinator asks the partition's leader for.

    `transaction_version` is not stored. From 2 on, the epoch is later than that of the transaction's records.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = 0


@lru_cache(maxsize=16)
def build_marker(marker: TransactionMarker, timestamp_ms: int) -> bytes:
    """The control batch, as a coordinator appends it: the same one to each partition of the transaction."""
    builder = RecordBatchBuilder()
    kind = _COMMIT if marker.is_commit else _ABORT
    builder.append(timestamp_ms, _KEY.pack(0, kind), _VALUE.pack(0, marker.coordinator_epoch))
    batch = builder.build(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    return bytes(batch)


def read_marker(batch: Buffer, position: int = 0) -> EndTransactionMarker:
    """The marker in the control batch at `position`, whose CRC was checked. Raises ProtocolError."""
    return _read_plain(batch, position) or read_any_marker(batch, position)


def _read_plain(batch: Buffer, position: int) -> EndTransactionMarker | None:
    """The marker in a batch as `build_marker`, and Kafka, make it; None for another batch. Raises
    ProtocolError."""
    header = read_batch_header(batch, position)
    odd = header.last_offset_delta or header.attributes & COMPRESSION_MASK
    is_plain = header.magic == CURRENT_MAGIC and header.record_count == 1 and not odd
    if not is_plain or not header.size_bytes == _PLAIN_BYTES <= len(batch) - position:
        return None
    start, _, kind, middle, _, epoch, more = _RECORD.unpack_from(batch, position + BATCH_HEADER_SIZE)
    if (start, middle, more) != _PLAIN_RECORD or kind not in (_ABORT, _COMMIT):
        return None
    return EndTransactionMarker(kind == _COMMIT, epoch)


def read_any_marker(batch: Buffer, position: int) -> EndTransactionMarker:
    """The rules of `read_marker`, for a batch of any form."""
    records = decode_batch(batch, position, max_decompressed_bytes=_LARGEST_MARKER_BYTES, check_crc=False)
    key = records[0].key if records else None
    value = records[0].value if records else None
    offset = read_batch_header(batch, position).base_offset
    if key is None or len(key) < _KEY.size or value is None or len(value) < _VALUE.size:
        raise ProtocolError(
            f"control batch at offset {offset}: expected a key of {_KEY.size} bytes with its kind and a"
            f" value of {_VALUE.size} bytes, got {key!r:.40} and {value!r:.40}"
        )
    _, kind = _KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        raise ProtocolError(f"control batch at offset {offset}: expected 0 (abort) or 1 (commit), got {kind}")
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return EndTransactionMarker(kind == _COMMIT, coordinator_epoch)


class AbortedTransactions:
    """The filter for batches that follow each other in a log, such as those of a Fetch answer. `aborted`
    holds, in any order, (producer id, first offset) of the aborted transactions that have records among them.
    A control batch ends one, after its last batch."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._begin = sorted(((first, producer_id) for producer_id, first in aborted), reverse=True)
        self._aborting: set[int] = set()

    def hides(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether the batch at `position`, the next in the log, belongs to an aborted transaction."""
        while self._begin and self._begin[-1][0] <= header.last_offset:
            self._aborting.add(self._begin.pop()[1])
        if header.producer_id not in self._aborting:
            return False
        if header.is_control:
            if not read_marker(data, position).is_commit:
                self._aborting.discard(header.producer_id)
            return False
        return header.is_transactional
