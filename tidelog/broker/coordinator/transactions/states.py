"""The states of a transactional id, and the legal transitions between them.

Owns the table. Kafka has two more states, which it never stores: Dead (here the id is unknown) and
PrepareEpochFence (here one decision raises the epoch and begins the abort).

Pure. Source: Kafka's TransactionState, KIP-98, KIP-890 (an abort of nothing raises the epoch).
"""

from collections.abc import Mapping
from enum import IntEnum


class TransactionState(IntEnum):
    """The number is the one that records hold."""

    EMPTY = 0
    """A producer has the id, and has not begun a transaction since."""
    ONGOING = 1
    """Partitions take part. With two-phase commit the producer may have prepared it."""
    PREPARE_COMMIT = 2
    """The commit is decided. Not all partitions have their markers."""
    PREPARE_ABORT = 3
    """The abort is decided. Not all partitions have their markers."""
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """The name that clients see."""
        return self.name.title().replace("_", "")

    @property
    def is_decided(self) -> bool:
        """Whether the transaction has an outcome, and partitions may still lack their markers."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether there is no transaction now."""
        return not self.is_decided and self is not TransactionState.ONGOING


_NEW_TRANSACTION = (TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT)
TRANSITIONS: Mapping[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: frozenset(_NEW_TRANSACTION),
    TransactionState.ONGOING: frozenset(
        (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
    ),
    TransactionState.PREPARE_COMMIT: frozenset((TransactionState.COMPLETE_COMMIT,)),
    TransactionState.PREPARE_ABORT: frozenset((TransactionState.COMPLETE_ABORT,)),
    TransactionState.COMPLETE_COMMIT: frozenset(_NEW_TRANSACTION),
    TransactionState.COMPLETE_ABORT: frozenset(_NEW_TRANSACTION),
}
"""State -> the states that may follow it. An id without a transaction may also be forgotten."""


class IllegalTransition(Exception):
    """A broken invariant: the table does not allow this transition."""
