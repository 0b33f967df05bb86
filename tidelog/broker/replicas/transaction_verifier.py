"""What a partition asks the transaction coordinator of its broker before a transaction begins on it.

Owns the interface only. Invariant: the answer needs no I/O and awaits nothing, because batches are appended
in the order of arrival. Source: KIP-890, part 1.
"""

from typing import Protocol

from tidelog.protocol.errors import ErrorCode


class TransactionVerifier(Protocol):
    """Knows the transactions that are ongoing, and the partitions that take part in them."""

    def permits(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int
    ) -> ErrorCode:
        """NONE if the partition takes part in the ongoing transaction of just this producer and epoch.

        INVALID_TXN_STATE if it does not. Any other code is the coordinator's reason why it cannot say, or why
        this producer has no transaction: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, NOT_COORDINATOR,
        COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS.
        """
        ...
