"""The rules of idempotence, one by one (semantics: order of checks, window, epochs)."""

import pytest

from tests.unit.broker.storage.machines import TRANSACTIONAL, Log, code, states
from tests.unit.broker.storage.support import NOW_MS, header
from tidelog.broker.storage.producer_state import Append, Begin, Duplicate
from tidelog.protocol.errors import ErrorCode


@pytest.fixture
def log() -> Log:
    return Log(states())


def test_the_first_transactional_batch_begins_a_transaction_and_the_next_ones_belong_to_it(log: Log) -> None:
    assert log.send(1, 0, 0, 2, attributes=TRANSACTIONAL) == Begin()
    assert log.machine.entry(1).current_txn_start_offset == 0  # type: ignore[union-attr]
    assert log.send(1, 0, 2, attributes=TRANSACTIONAL) == Append()
    assert log.send(1, 0, 0, 2, attributes=TRANSACTIONAL) == Duplicate(0, 1, NOW_MS)
    assert code(log.send(1, 0, 4, attributes=TRANSACTIONAL)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.end_transaction(1, 0)
    assert log.machine.entry(1).current_txn_start_offset == -1  # type: ignore[union-attr]
    assert log.send(1, 0, 3, attributes=TRANSACTIONAL) == Begin()
    assert log.machine.entry(1).current_txn_start_offset == 4  # type: ignore[union-attr]


def test_while_a_transaction_is_open_its_producer_writes_nothing_else(log: Log) -> None:
    log.send(1, 0, 0, attributes=TRANSACTIONAL)
    assert code(log.send(1, 0, 1)) == ErrorCode.INVALID_TXN_STATE
    assert log.send(1, 0, 1, attributes=TRANSACTIONAL) == Append()
    log.end_transaction(1, 0)
    assert log.send(1, 0, 2) == Append()
    assert log.send(2, 0, 0) == Append()


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize(("first", "count"), [(2, 2), (2, 1), (3, 1), (0, 2), (0, 4), (3, 5)])
def test_what_an_ended_transaction_has_is_no_duplicate_for_the_next_one(
    log: Log, commits: bool, first: int, count: int
) -> None:
    """librdkafka numbers other records like this: nobody may be told that they are stored."""
    log.send(1, 0, 0, 2, attributes=TRANSACTIONAL)
    log.send(1, 0, 2, 2, attributes=TRANSACTIONAL)
    assert log.send(1, 0, 2, 2, attributes=TRANSACTIONAL) == Duplicate(2, 3, NOW_MS)
    log.end_transaction(1, 0, commits=commits)
    again = log.send(1, 0, first, count, attributes=TRANSACTIONAL)
    assert code(again) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert log.send(1, 0, 4, 2, attributes=TRANSACTIONAL) == Begin()
    again = log.send(1, 0, first, count, attributes=TRANSACTIONAL)
    assert code(again) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert log.send(1, 0, 4, 2, attributes=TRANSACTIONAL) == Duplicate(5, 6, NOW_MS)
    assert code(log.send(1, 0, 5, attributes=TRANSACTIONAL)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_long_transaction_knows_its_old_batches(log: Log) -> None:
    for sequence in range(9):
        log.send(1, 0, sequence, attributes=TRANSACTIONAL)
    assert code(log.send(1, 0, 0, attributes=TRANSACTIONAL)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    log.end_transaction(1, 0)
    assert code(log.send(1, 0, 0, attributes=TRANSACTIONAL)) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert code(log.send(1, 0, 0)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_newer_epoch_needs_the_coordinators_answer_while_an_older_transaction_is_open(log: Log) -> None:
    log.send(1, 0, 0, attributes=TRANSACTIONAL)
    assert log.send(1, 1, 0, attributes=TRANSACTIONAL) == Begin()
    assert log.machine.entry(1).current_txn_start_offset == 0  # type: ignore[union-attr]


def test_a_marker_of_a_newer_epoch_fences_what_the_old_one_sends_later(log: Log) -> None:
    log.send(1, 0, 0, attributes=TRANSACTIONAL)
    log.end_transaction(1, 1)
    assert code(log.send(1, 0, 1, attributes=TRANSACTIONAL)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.send(1, 1, 0, attributes=TRANSACTIONAL) == Begin()


def test_an_unknown_producers_transaction_follows_the_rules_of_unknown_producers(log: Log) -> None:
    assert code(log.send(1, 0, 3, attributes=TRANSACTIONAL)) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert code(log.send(-1, -1, -1, attributes=TRANSACTIONAL)) == ErrorCode.INVALID_TXN_STATE


def test_batches_without_a_producer_id_leave_no_trace() -> None:
    machine = states()
    machine.apply(header(-1, -1, -1), 0, NOW_MS)
    assert len(machine) == 0
