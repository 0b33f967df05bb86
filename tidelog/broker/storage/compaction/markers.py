"""Which markers of transactions a cleaner removes, so that they do not grow without bound.

Owns Kafka's rule: a marker is needed while its transaction has a batch in the log. Then it stays for
delete.retention.ms, by a delete horizon as a tombstone has one, so that a replica that has the records, and a
consumer that reads them, get their marker too. The newest marker of a producer that the broker remembers
stays: a replay of the log finds its epoch there. And what control batches say of the batches before them:
a transaction whose marker was not read is unknown.

More cautious than Kafka: an aborted transaction stays in its index as long as its marker.

Invariants: without certainty a marker stays; no index names a transaction whose marker is gone, because a
consumer would hide all that its producer wrote later. Memory is bounded by MOST_MARKERS producers; beyond
that number all markers stay.

Pure. Source: KIP-534, Kafka's CleanedTransactionMetadata.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from tidelog.broker.storage.compaction.retention import Outcome
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import BatchHeader, read_marker, record_bytes, with_records
from tidelog.protocol.types import MAX_TIMESTAMP

MOST_MARKERS = 1 << 20


class Transactions:
    """Tells how transactions ended in one stretch, which is read in order: `note` for each control batch."""

    def __init__(self) -> None:
        self._ends: dict[int, tuple[list[int], list[bool]]] = {}
        """Producer id -> offsets of its markers, ascending, and whether each commits."""
        self._markers = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more is remembered."""
        return self._markers >= MOST_MARKERS

    def note(self, producer_id: int, offset: int, *, is_commit: bool) -> None:
        """A marker of this producer lies at `offset`."""
        if not self.is_full:
            offsets, commits = self._ends.setdefault(producer_id, ([], []))
            offsets.append(offset)
            commits.append(is_commit)
            self._markers += 1

    def outcome_of(self, header: BatchHeader) -> Outcome:
        """The end of the transaction of a batch of the stretch: that of its producer's next marker."""
        if not header.is_transactional:
            return Outcome.NONE
        offsets, commits = self._ends.get(header.producer_id, ((), ()))
        at = bisect_left(offsets, header.last_offset)
        if at == len(offsets):
            return Outcome.UNKNOWN
        return Outcome.COMMITTED if commits[at] else Outcome.ABORTED


_LARGEST_BYTES = 1 << 16


class Markers:
    """Decides which markers of transactions one clean keeps. Times in milliseconds. `note_dirty` for what the
    map takes, then `left_of` and `note_left` for all batches of the log, in their order."""

    def __init__(self, now_ms: int, delete_retention_ms: int, producer_ids: array[int]) -> None:
        """`producer_ids`: of the producers that are remembered, ascending."""
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, MAX_TIMESTAMP)
        self._producer_ids = producer_ids
        self._newest: dict[int, int] = {}
        self._with_records: set[int] = set()
        """Producers whose transaction has a batch that stays, and no marker yet."""
        self._is_full = False
        self._unneeded = array("q")

    def note_dirty(self, header: BatchHeader) -> None:
        """A control batch lies in the dirty part."""
        if header.producer_id in self._newest or len(self._newest) < MOST_MARKERS:
            self._newest[header.producer_id] = header.base_offset

    def note_left(self, header: BatchHeader) -> None:
        """A batch with records of a transaction stays, maybe without records."""
        self._with_records.add(header.producer_id)
        self._is_full |= len(self._with_records) > MOST_MARKERS

    def left_of(self, batch: bytes, header: BatchHeader, *, is_last: bool, may_grow: bool) -> bytes:
        """What stays of a control batch: as it is, with a delete horizon, or nothing.

        `is_last` and `may_grow` as for other batches. Raises ProtocolError as `record_bytes`.
        """
        try:
            marker = read_marker(batch)
        except ProtocolError:
            return batch  # A kind that this version does not know: it ends nothing.
        is_needed = header.producer_id in self._with_records or self._is_full
        self._with_records.discard(header.producer_id)
        if is_needed:
            return batch
        if header.delete_horizon_ms is None:
            if self._is_newest(header) or not may_grow:
                return batch
            data, start = record_bytes(batch, 0, header, _LARGEST_BYTES, check_crc=False)
            return with_records(header, data, start, [1], [header.max_timestamp], self._horizon_ms)
        if header.delete_horizon_ms > self._now_ms:
            return batch
        if not marker.is_commit:
            self._unneeded.append(header.base_offset)
        return batch if is_last else b""

    def take_unneeded(self) -> array[int]:
        """The offsets of the markers, since the last call, whose aborted transactions leave their index."""
        unneeded, self._unneeded = self._unneeded, array("q")
        return unneeded

    def _is_newest(self, header: BatchHeader) -> bool:
        """Whether a remembered producer may have no later marker."""
        if self._newest.get(header.producer_id, -1) > header.base_offset:
            return False
        at = bisect_left(self._producer_ids, header.producer_id)
        return at < len(self._producer_ids) and self._producer_ids[at] == header.producer_id
