"""Which batches a reader with isolation.level=read_committed does not see.

Owns the filter for segment files; `protocol.records.isolation` has the one for answers to Fetch. Pure.
Invariant: control batches are no records at either level; `pipeline.arrow.columnar` skips them.
"""

from tidelog.protocol.records import AbortedTransactions, BatchHeader
from tidelog.protocol.types import Buffer


class TransactionsInFilesError(RuntimeError):
    """Segment files hold a transaction, but do not say whether it was committed."""


class NoTransactions:
    """The filter for segment files. They list no aborted transactions, so it refuses every transaction."""

    def hides(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        """Always False. Raises TransactionsInFilesError for a batch of a transaction."""
        if header.is_transactional:
            raise TransactionsInFilesError(
                f"the batch at offset {header.base_offset} belongs to a transaction of producer"
                f" {header.producer_id}, and segment files do not say whether it was committed:"
                " read from the broker (without read.path), or with isolation.level=read_uncommitted"
            )
        return False


BatchFilter = AbortedTransactions | NoTransactions
