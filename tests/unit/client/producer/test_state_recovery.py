"""What each refusal and each deadline means for a batch and those behind it, one test a rule."""

import pytest

from tests.unit.client.producer.lab import KEY, OTHER, VIA, Lab
from tidelog.client import (
    DeliveryFailedError,
    DeliveryTimeoutError,
    DeliveryUncertainError,
    ProducerFencedError,
)
from tidelog.client.producer.batch import Identity
from tidelog.client.producer.verdicts import Action
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import batch_crc_is_valid, read_batch_header


def test_a_duplicate_below_the_window_is_a_success_without_an_offset(lab: Lab) -> None:
    (a,) = lab.send(1)
    lab.lose(a)
    lab.retry()
    verdict = lab.answer(a, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, base_offset=99)
    assert (verdict.action, verdict.base_offset) == (Action.STORED, -1)


def test_a_duplicate_that_was_sent_only_once_is_somebody_elses(lab: Lab) -> None:
    a, _ = lab.send(1, 1)
    verdict = lab.answer(a, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert isinstance(verdict.error, DeliveryUncertainError)
    assert lab.state.needs_producer_id


def test_45_at_the_head_with_every_attempt_refused_starts_a_new_epoch(lab: Lab) -> None:
    a, b, c = lab.send(2, 2, 2)
    lab.answer(a)
    assert lab.answer(b, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER).action is Action.RETRY
    assert lab.retry() is None, "c is still on the wire under the old epoch"
    assert lab.answer(c, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER).action is Action.RETRY
    assert lab.retry() is b
    assert lab.sequences() == [(Identity(7, 1), 0), (Identity(7, 1), 2)]
    header = read_batch_header(data := b.encode(Compression.NONE))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 0)
    assert batch_crc_is_valid(data, header)


def test_45_at_the_head_after_a_lost_answer_is_uncertain(lab: Lab) -> None:
    a, b = lab.send(2, 1)
    lab.lose(a, b)
    lab.retry()
    verdict = lab.answer(a, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert verdict.action is Action.FAILED
    error = verdict.error
    assert isinstance(error, DeliveryUncertainError)
    assert (error.producer_id, error.producer_epoch, error.base_sequence, error.record_count) == (7, 0, 0, 2)
    assert not error.retriable
    # What follows goes out as it is, and its answer tells; nothing new goes before that is known.
    assert not lab.state.accepts_new(KEY, VIA)
    assert lab.retry() is b
    assert b.base_sequence == 2


def test_a_later_acknowledgement_proves_that_an_abandoned_batch_was_stored(lab: Lab) -> None:
    (a,) = lab.send(1, deadline_ms=10)
    (b,) = lab.send(1, deadline_ms=1_000)
    lab.lose(a, b)
    (verdict,) = lab.state.expire(KEY, 10)
    assert verdict.batch is a
    assert isinstance(verdict.error, DeliveryUncertainError)
    assert lab.retry() is b
    lab.answer(b)
    assert lab.state.accepts_new(KEY, VIA)
    (c,) = lab.send(1)
    assert (c.identity, c.base_sequence) == (Identity(7, 0), 2)


def test_nothing_follows_an_unresolved_batch_under_its_epoch(lab: Lab) -> None:
    a, b = lab.send(1, 1)
    lab.answer(a)
    lab.lose(b)
    lab.state.expire(KEY, 1_000)
    (c,) = lab.send(1)
    assert (c.identity, c.base_sequence) == (Identity(7, 1), 0)


def test_a_batch_that_was_refused_until_its_deadline_is_surely_not_stored(lab: Lab) -> None:
    (a,) = lab.send(1, deadline_ms=10)
    (b,) = lab.send(1)
    lab.answer(a, ErrorCode.NOT_ENOUGH_REPLICAS)
    lab.answer(b, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    (verdict,) = lab.state.expire(KEY, 10)
    assert isinstance(verdict.error, DeliveryTimeoutError)
    assert "NOT_ENOUGH_REPLICAS" in str(verdict.error)
    assert lab.retry() is b
    assert lab.sequences() == [(Identity(7, 1), 0)]


def test_a_batch_on_the_wire_at_its_deadline_is_uncertain_but_its_answer_still_counts(lab: Lab) -> None:
    a, b = lab.send(1, 1)
    verdicts = lab.state.expire(KEY, 1_000)
    assert [type(each.error) for each in verdicts] == [DeliveryUncertainError] * 2
    assert lab.answer(a).action is Action.IGNORED
    assert lab.answer(b).action is Action.IGNORED
    assert lab.state.next_sequence(KEY) == (Identity(7, 0), 2)
    (c,) = lab.send(1)
    assert (c.identity, c.base_sequence) == (Identity(7, 0), 2)


def test_a_forgotten_producer_recovers_under_a_new_epoch(lab: Lab) -> None:
    (a,) = lab.send(1)
    lab.answer(a)
    b, c = lab.send(1, 1)
    for refused in (b, c):
        assert lab.answer(refused, ErrorCode.UNKNOWN_PRODUCER_ID).action is Action.RETRY
    assert lab.retry() is b
    assert lab.sequences() == [(Identity(7, 1), 0), (Identity(7, 1), 1)]


def test_a_producer_id_that_no_broker_issued_is_replaced(lab: Lab) -> None:
    (a,) = lab.send(1)
    assert lab.answer(a, ErrorCode.UNKNOWN_PRODUCER_ID).action is Action.RETRY
    assert lab.state.needs_producer_id
    assert lab.retry() is None
    lab.state.set_producer_id(8, 0)
    assert lab.retry() is a
    assert lab.sequences() == [(Identity(8, 0), 0)]


def test_59_after_a_lost_answer_is_uncertain(lab: Lab) -> None:
    (a,) = lab.send(1)
    lab.lose(a)
    lab.retry()
    verdict = lab.answer(a, ErrorCode.UNKNOWN_PRODUCER_ID)
    assert isinstance(verdict.error, DeliveryUncertainError)


def test_47_means_that_somebody_else_has_the_id_so_a_new_one_is_asked_for(lab: Lab) -> None:
    (a,) = lab.send(1)
    assert lab.answer(a, ErrorCode.INVALID_PRODUCER_EPOCH).action is Action.RETRY
    assert lab.state.needs_producer_id


def test_90_is_fatal(lab: Lab) -> None:
    (a,) = lab.send(1)
    verdict = lab.answer(a, ErrorCode.PRODUCER_FENCED)
    assert verdict.action is Action.FATAL
    assert isinstance(verdict.error, ProducerFencedError)


def test_other_partitions_take_a_new_epoch_only_when_nothing_of_theirs_is_in_flight(lab: Lab) -> None:
    (other,) = lab.send(3, key=OTHER)
    (a,) = lab.send(1)
    lab.answer(a)
    (b,) = lab.send(1)
    lab.answer(b, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert lab.state.identity == Identity(7, 1)
    assert not lab.state.accepts_new(OTHER, VIA)
    lab.answer(other)
    (next_one,) = lab.send(1, key=OTHER)
    assert (next_one.identity, next_one.base_sequence) == (Identity(7, 1), 0)


def test_one_cause_bumps_the_epoch_once_for_all_partitions(lab: Lab) -> None:
    (a,) = lab.send(1)
    (other,) = lab.send(1, key=OTHER)
    lab.answer(a)
    lab.answer(other)
    (a,) = lab.send(1)
    (other,) = lab.send(1, key=OTHER)
    for refused in (a, other):
        lab.answer(refused, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert lab.state.identity == Identity(7, 1)


def test_a_refusal_for_good_fails_the_batch_and_spares_those_behind_it(lab: Lab) -> None:
    a, b = lab.send(1, 1)
    verdict = lab.answer(a, ErrorCode.INVALID_RECORD)
    assert isinstance(verdict.error, DeliveryFailedError)
    lab.answer(b, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert lab.retry() is b
    assert (b.identity, b.base_sequence) == (Identity(7, 1), 0)


def test_a_refusal_for_good_after_a_lost_answer_is_uncertain(lab: Lab) -> None:
    (a,) = lab.send(1)
    lab.lose(a)
    lab.retry()
    verdict = lab.answer(a, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(verdict.error, DeliveryUncertainError)


def test_a_batch_that_is_too_large_is_split_within_its_sequences(lab: Lab) -> None:
    a, b = lab.send(4, 1)
    assert lab.answer(a, ErrorCode.MESSAGE_TOO_LARGE).action is Action.SPLIT
    parts = a.split()
    lab.state.split(a, parts)
    lab.answer(b, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert sum(part.record_count for part in parts) == 4
    assert len(parts) > 1
    assert [each.base_sequence for each in parts] == [
        sum(part.record_count for part in parts[:index]) for index in range(len(parts))
    ]
    for part in parts:
        assert lab.retry() is part
        assert read_batch_header(part.encode(Compression.NONE)).base_sequence == part.base_sequence
        lab.answer(part)
    assert lab.retry() is b


def test_closing_tells_what_is_uncertain_from_what_is_not_stored(lab: Lab) -> None:
    (a,) = lab.send(1)
    (other,) = lab.send(1, key=OTHER)
    lab.answer(other, ErrorCode.NOT_ENOUGH_REPLICAS)
    kinds = {each.batch: type(each.error) for each in lab.state.abandon_all("closed")}
    assert kinds == {a: DeliveryUncertainError, other: DeliveryTimeoutError}


def in_transaction() -> Lab:
    lab = Lab()
    lab.state.is_transactional = True
    return lab


@pytest.mark.parametrize(
    "code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_RECORD]
)
def test_in_a_transaction_a_refused_batch_fails_and_no_other_gets_new_sequences(code: ErrorCode) -> None:
    lab = in_transaction()
    a, b, c = lab.send(1, 1, 1)
    assert lab.answer(a, code).action is Action.FAILED
    lab.lose(b, c)
    assert lab.retry() is b
    assert lab.state.identity == Identity(7, 0)
    assert lab.sequences() == [(Identity(7, 0), 1), (Identity(7, 0), 2)]


def test_in_a_transaction_an_old_epoch_is_fatal() -> None:
    lab = in_transaction()
    (a,) = lab.send(1)
    verdict = lab.answer(a, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert verdict.action is Action.FATAL
    assert isinstance(verdict.error, ProducerFencedError)


def test_after_the_end_of_a_transaction_each_partition_starts_under_the_epoch_that_was_given() -> None:
    lab = in_transaction()
    (a,) = lab.send(3)
    lab.answer(a)
    lab.state.set_producer_id(7, 1)
    (b,) = lab.send(1)
    assert (b.identity, b.base_sequence) == (Identity(7, 1), 0)
