"""Which transactions of a stretch of a log were committed, and which were aborted.

Owns what control batches say of the batches before them. Only what was read is certain: a transaction whose
marker was not read is unknown. Memory is bounded by MOST_MARKERS; what follows that many is unknown.

Pure.
"""

from bisect import bisect_left

from tidelog.broker.storage.compaction.retention import Outcome
from tidelog.protocol.records import BatchHeader

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
