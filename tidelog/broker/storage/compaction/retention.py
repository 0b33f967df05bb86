"""Which records and batches of a log a cleaner keeps.

Owns the rules, which are Kafka's but for transactions:
- of each key the last record stays; a record without a key is removed;
- a tombstone (a record without a value) stays until the delete horizon of its batch. The horizon is set when
  a clean keeps the tombstone for the first time, `delete.retention.ms` after that clean. It is set only where
  the map of that clean, or of an earlier one, has the tombstone. So all older records of its key are removed
  before the tombstone;
- records after the map's latest offset stay;
- the last batch of each producer stays without records, and that of each file that is written also without
  its producer.

Transactions, more cautious than Kafka: a record of a transactional batch is removed if a later record takes
its place. Its own offset counts for the map only if its transaction was committed for certain, and only then
its batch gets a delete horizon. Records of a transaction that was aborted for certain are removed.

Invariant: a batch that loses nothing is given back as it is.

Pure. Source: Kafka's Cleaner.shouldRetainRecord and checkBatchRetention.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum

from tidelog.broker.storage.compaction.offset_map import OffsetMap
from tidelog.protocol.records import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    columns_of,
    emptied,
    placeholder,
    record_bytes,
    with_records,
)
from tidelog.protocol.types import MAX_TIMESTAMP


class Outcome(Enum):
    """What became of the transaction that a batch belongs to."""

    NONE = "none"
    """It belongs to none."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


COUNTED = (Outcome.NONE, Outcome.COMMITTED)
"""Records of such batches take the place of older ones."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Decides which records and batches one clean keeps. Times in milliseconds."""

    offsets: OffsetMap
    now_ms: int
    delete_retention_ms: int
    last_offsets: array[int]
    """Last offset of the last batch of each producer, ascending."""

    def is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether a producer may have to be recognised by this batch."""
        offsets, last_offset = self.last_offsets, header.last_offset
        at = bisect_left(offsets, last_offset)
        return header.producer_id >= 0 and at < len(offsets) and offsets[at] == last_offset

    def left_of(
        self, batch: bytes, header: BatchHeader, outcome: Outcome, *, is_last: bool, may_grow: bool = True
    ) -> bytes:
        """What stays of the one batch in `batch`, which may be nothing. It is no control batch, and its CRC
        was checked.

        `is_last`: it is the last one of the file that is written. Without `may_grow` no horizon is set, since
        that may make it longer. Raises ProtocolError for records that cannot be decoded.
        """
        if not header.record_count or outcome is Outcome.ABORTED:
            return self._without_records(batch, header, is_last)
        data, start = record_bytes(batch, 0, header, DEFAULT_MAX_DECOMPRESSED_BYTES, check_crc=False)
        columns = columns_of(data, start, header)
        latest = self.offsets.latest_offset
        kept = self.offsets.newest(columns.keys, columns.offsets)
        if header.last_offset > latest:
            kept = [flag or offset > latest for flag, offset in zip(kept, columns.offsets, strict=True)]
        new_horizon_ms = None
        if columns.value_size == -1 or (columns.value_size is None and None in columns.values):
            rows = zip(kept, columns.values, columns.offsets, strict=True)
            horizon_ms = header.delete_horizon_ms
            if horizon_ms is None:
                has_tombstone = any(flag and value is None for flag, value, _ in rows)
                if has_tombstone and may_grow and self._is_in_map(header, outcome):
                    new_horizon_ms = min(self.now_ms + self.delete_retention_ms, MAX_TIMESTAMP)
            elif horizon_ms <= self.now_ms:
                kept = [flag and (value is not None or offset > latest) for flag, value, offset in rows]
        if not any(kept):
            return self._without_records(batch, header, is_last)
        if new_horizon_ms is None and all(kept):
            return batch
        return with_records(header, data, start, kept, columns.timestamps, new_horizon_ms)

    def _without_records(self, batch: bytes, header: BatchHeader, is_last: bool) -> bytes:
        """What stays of a batch that has lost its last record."""
        if self.is_last_of_producer(header):
            return emptied(header) if header.record_count else batch
        if not is_last:
            return b""
        return placeholder(header) if header.record_count or header.producer_id >= 0 else batch

    def _is_in_map(self, header: BatchHeader, outcome: Outcome) -> bool:
        """Whether the map of this clean, or of an earlier one, has all records of the batch.

        Of a transaction it is known only for those in this map, where the outcome was looked up.
        """
        return header.last_offset <= self.offsets.latest_offset and outcome in COUNTED
