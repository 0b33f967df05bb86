"""The epochs of a transactional id: each client can be fenced, and each transaction has its own markers."""

import pytest

from tests.unit.broker.coordinator.transactions.site import NOW_MS, P0
from tidelog.broker.coordinator.transactions.states import IllegalTransition, TransactionState
from tidelog.broker.coordinator.transactions.transaction import (
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    Producer,
    Transaction,
)

ONGOING = Transaction(
    Producer(7, 3), 60_000, TransactionState.ONGOING, frozenset((P0,)), NOW_MS, NOW_MS, last_epoch=2
)


def test_the_end_of_version_2_gives_the_client_and_the_markers_the_next_epoch() -> None:
    decided = ONGOING.ended(True, 2, 99, NOW_MS)
    assert (decided.producer, decided.client, decided.last_epoch) == (Producer(7, 4), Producer(7, 4), 3)
    assert decided.following == NO_PRODUCER
    assert decided.completed(NOW_MS).producer == Producer(7, 4)


def test_only_a_transaction_with_a_timeout_is_timed_out() -> None:
    assert not ONGOING.is_timed_out(NOW_MS + 60_000)
    assert ONGOING.is_timed_out(NOW_MS + 60_001)
    assert not ONGOING._replace(timeout_ms=NO_TIMEOUT_MS).is_timed_out(1 << 60)
    assert not ONGOING.fenced(-1, NOW_MS).is_timed_out(1 << 60)


def test_a_transition_that_the_table_does_not_have_is_a_broken_invariant() -> None:
    with pytest.raises(IllegalTransition, match="Ongoing and cannot become CompleteAbort"):
        ONGOING.completed(NOW_MS)
