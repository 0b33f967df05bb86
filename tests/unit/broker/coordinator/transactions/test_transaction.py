"""The epochs of a transactional id: each client can be fenced, and each transaction has its own markers."""

import pytest

from tests.unit.broker.coordinator.transactions.site import NOW_MS, P0
from tidelog.broker.coordinator.transactions.states import IllegalTransition, TransactionState
from tidelog.broker.coordinator.transactions.transaction import (
    Producer,
    Transaction,
)

ONGOING = Transaction(
    Producer(7, 3), 60_000, TransactionState.ONGOING, frozenset((P0,)), NOW_MS, NOW_MS, last_epoch=2
)


def test_a_transition_that_the_table_does_not_have_is_a_broken_invariant() -> None:
    with pytest.raises(IllegalTransition, match="Ongoing and cannot become CompleteAbort"):
        ONGOING.completed(NOW_MS)
