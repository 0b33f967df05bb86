"""The rules of idempotence, one by one (semantics: order of checks, window, epochs)."""

from __future__ import annotations

import pytest

from tests.unit.broker.storage.machines import TRANSACTIONAL, Log, code, states
from tests.unit.broker.storage.support import NEVER_ISSUED, NOW_MS, header
from tidelog.broker.storage.producer_state import Append, Begin, Duplicate
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import MAX_SEQUENCE


def test_sequences_that_follow_each_other_are_appended() -> None:
    log = Log(states())
    assert [log.send(1, 0, 0, 3), log.send(1, 0, 3, 2), log.send(1, 0, 5, 1)] == [Append()] * 3


def test_a_duplicate_answers_the_first_offset() -> None:
    log = Log(states())
    log.send(9, 0, 0, 7)
    log.send(1, 0, 0, 3)
    log.send(1, 0, 3, 2)
    assert log.send(1, 0, 0, 3) == Duplicate(7, 9, NOW_MS)
    assert log.send(1, 0, 3, 2) == Duplicate(10, 11, NOW_MS)


def test_each_of_the_last_five_batches_is_recognised() -> None:
    log = Log(states())
    for number in range(6):
        log.send(1, 0, number * 10, 10)
    for number in range(1, 6):
        assert log.send(1, 0, number * 10, 10) == Duplicate(number * 10, number * 10 + 9, NOW_MS)


def test_below_the_window_is_duplicate_sequence_number_and_stores_nothing() -> None:
    log = Log(states())
    for number in range(6):
        log.send(1, 0, number)
    assert code(log.send(1, 0, 0)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert log.end == 6


def test_below_the_window_is_out_of_order_when_switched_off() -> None:
    log = Log(states(duplicate_below_window=False))
    for number in range(6):
        log.send(1, 0, number)
    assert code(log.send(1, 0, 0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_below_the_window_across_the_wrap() -> None:
    log = Log(states(reject_unknown_sequence=False))
    log.send(1, 0, MAX_SEQUENCE - 1, 1)
    for number in range(MAX_SEQUENCE, MAX_SEQUENCE + 7):
        assert log.send(1, 0, number & MAX_SEQUENCE) == Append()
    assert code(log.send(1, 0, MAX_SEQUENCE - 1)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_partial_overlap_is_out_of_order() -> None:
    log = Log(states())
    log.send(1, 0, 0, 5)
    assert code(log.send(1, 0, 3, 5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_ahead_of_the_next_sequence_is_out_of_order() -> None:
    log = Log(states())
    log.send(1, 0, 0, 5)
    assert code(log.send(1, 0, 6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_after_the_largest_sequence_comes_zero() -> None:
    log = Log(states(reject_unknown_sequence=False))
    assert log.send(1, 0, MAX_SEQUENCE, 1) == Append()
    assert log.send(1, 0, 0, 1) == Append()


def test_a_batch_may_span_the_wrap() -> None:
    log = Log(states(reject_unknown_sequence=False))
    assert log.send(1, 0, MAX_SEQUENCE - 9, 20) == Append()
    assert log.machine.entry(1).last_sequence == 9  # type: ignore[union-attr]
    assert log.send(1, 0, 10) == Append()
    assert log.send(1, 0, MAX_SEQUENCE - 9, 20) == Duplicate(0, 19, NOW_MS)


def test_an_unknown_producer_must_begin_at_zero() -> None:
    log = Log(states())
    assert code(log.send(1, 0, 5)) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert log.send(1, 3, 0) == Append()


def test_an_unknown_producer_may_begin_anywhere_when_accepted() -> None:
    log = Log(states(reject_unknown_sequence=False))
    assert log.send(1, 0, 5) == Append()
    assert log.send(NEVER_ISSUED + 1, 0, 5) == Append()


@pytest.mark.parametrize("producer_id", [NEVER_ISSUED, NEVER_ISSUED + 7])
def test_a_producer_id_that_was_never_issued_is_unknown_even_at_zero(producer_id: int) -> None:
    assert code(Log(states()).send(producer_id, 0, 0)) == ErrorCode.UNKNOWN_PRODUCER_ID


def test_an_older_epoch_is_fenced() -> None:
    log = Log(states())
    log.send(1, 2, 0)
    assert code(log.send(1, 1, 0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.send(1, 2, 1) == Append()


def test_a_newer_epoch_must_begin_at_zero() -> None:
    log = Log(states())
    log.send(1, 0, 0)
    assert code(log.send(1, 1, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(1, 1, 0) == Append()


def test_a_newer_epoch_clears_the_window() -> None:
    log = Log(states())
    log.send(1, 0, 0)
    log.send(1, 0, 1)
    log.send(1, 1, 0)
    assert log.send(1, 1, 0) == Duplicate(2, 2, NOW_MS)
    assert code(log.send(1, 0, 0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.machine.entry(1).batches == ((0, 0, 2, NOW_MS),)  # type: ignore[union-attr]


def test_the_first_transactional_batch_begins_a_transaction_and_the_next_ones_belong_to_it() -> None:
    log = Log(states())
    assert log.send(1, 0, 0, 2, attributes=TRANSACTIONAL) == Begin()
    assert log.machine.entry(1).current_txn_start_offset == 0  # type: ignore[union-attr]
    assert log.send(1, 0, 2, attributes=TRANSACTIONAL) == Append()
    assert log.send(1, 0, 0, 2, attributes=TRANSACTIONAL) == Duplicate(0, 1, NOW_MS)
    assert code(log.send(1, 0, 4, attributes=TRANSACTIONAL)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.end_transaction(1, 0)
    assert log.machine.entry(1).current_txn_start_offset == -1  # type: ignore[union-attr]
    assert log.send(1, 0, 3, attributes=TRANSACTIONAL) == Begin()
    assert log.machine.entry(1).current_txn_start_offset == 4  # type: ignore[union-attr]


def test_while_a_transaction_is_open_its_producer_writes_nothing_else() -> None:
    log = Log(states())
    log.send(1, 0, 0, attributes=TRANSACTIONAL)
    assert code(log.send(1, 0, 1)) == ErrorCode.INVALID_TXN_STATE
    assert log.send(1, 0, 1, attributes=TRANSACTIONAL) == Append()
    log.end_transaction(1, 0)
    assert log.send(1, 0, 2) == Append()
    assert log.send(2, 0, 0) == Append()


def test_a_newer_epoch_needs_the_coordinators_word_while_an_older_transaction_is_open() -> None:
    log = Log(states())
    log.send(1, 0, 0, attributes=TRANSACTIONAL)
    assert log.send(1, 1, 0, attributes=TRANSACTIONAL) == Begin()
    assert log.machine.entry(1).current_txn_start_offset == 0  # type: ignore[union-attr]


def test_a_marker_of_a_newer_epoch_fences_what_the_old_one_sends_later() -> None:
    log = Log(states())
    log.send(1, 0, 0, attributes=TRANSACTIONAL)
    log.end_transaction(1, 1)
    assert code(log.send(1, 0, 1, attributes=TRANSACTIONAL)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.send(1, 1, 0, attributes=TRANSACTIONAL) == Begin()


def test_an_unknown_producers_transaction_follows_the_rules_of_unknown_producers() -> None:
    log = Log(states())
    assert code(log.send(1, 0, 3, attributes=TRANSACTIONAL)) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert code(log.send(-1, -1, -1, attributes=TRANSACTIONAL)) == ErrorCode.INVALID_TXN_STATE


def test_check_changes_nothing() -> None:
    machine = states()
    log = Log(machine)
    log.send(1, 0, 0)
    before = list(machine.entries())
    for sent in (header(1, 0, 0), header(1, 0, 9), header(1, 1, 0), header(2, 0, 0)):
        machine.check(sent)
    assert list(machine.entries()) == before


def test_batches_without_a_producer_id_leave_no_trace() -> None:
    machine = states()
    machine.apply(header(-1, -1, -1), 0, NOW_MS)
    assert len(machine) == 0
