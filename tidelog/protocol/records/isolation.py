"""Which batches of an answer to Fetch a consumer of committed records does not see.

Owns the filter for aborted transactions. An answer lists the aborted transactions that have records in it,
each as (producer id, first offset). A control batch ends the transaction, after its last batch. One filter
serves one answer, from its first batch on.

Invariants: the filter must be given every batch in log order; batches without a transaction are always seen.
Pure. Source: KIP-98, "Consumer", and the protocol's Fetch response.
"""

from collections.abc import Iterable

from tidelog.protocol.records.header import BatchHeader
from tidelog.protocol.records.markers import read_marker
from tidelog.protocol.types import Buffer


class AbortedTransactions:
    """The filter for one Fetch answer; `aborted` holds (producer id, first offset) in any order."""

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
