"""The client's rules of idempotence while nothing is given up, one test a rule. Batches are A, B, C, ... as
sent."""

import pytest

from tests.unit.client.lab import KEY, OTHER, VIA, Lab, batch
from tidelog.client.batch import Identity
from tidelog.client.errors import (
    DeliveryTimeoutError,
    DeliveryUncertainError,
)
from tidelog.client.producer_partition import PartitionState
from tidelog.client.producer_state import ProducerState
from tidelog.client.verdicts import Action
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import MAX_SEQUENCE


def test_nothing_may_be_sent_before_a_producer_id_is_there() -> None:
    state = ProducerState()
    assert state.needs_producer_id
    assert not state.accepts_new(KEY, VIA)
    state.set_producer_id(7, 0)
    assert not state.needs_producer_id
    assert state.accepts_new(KEY, VIA)


def test_sequences_count_records_from_0_in_each_partition() -> None:
    lab = Lab()
    a, b, c = lab.send(3, 2, 1)
    (other,) = lab.send(4, key=OTHER)
    assert [each.base_sequence for each in (a, b, c, other)] == [0, 3, 5, 0]
    assert {each.identity for each in (a, b, c, other)} == {Identity(7, 0)}
    assert lab.state.next_sequence(KEY) == (Identity(7, 0), 6)


def test_at_most_five_batches_of_a_partition_are_unsettled() -> None:
    lab = Lab()
    a, *_ = lab.send(1, 1, 1, 1, 1)
    assert not lab.state.accepts_new(KEY, VIA)
    assert lab.state.accepts_new(OTHER, VIA)
    with pytest.raises(RuntimeError, match="accepts_new"):
        lab.state.take_new(batch(), VIA)
    lab.answer(a)
    assert lab.state.accepts_new(KEY, VIA)


def test_while_batches_are_on_one_connection_none_goes_over_another() -> None:
    lab = Lab()
    (a,) = lab.send(1)
    elsewhere = object()
    assert not lab.state.accepts_new(KEY, elsewhere)
    lab.answer(a)
    assert lab.state.accepts_new(KEY, elsewhere)


def test_a_retry_bears_the_same_bytes() -> None:
    lab = Lab()
    (a,) = lab.send(2)
    before = bytes(a.encode(Compression.NONE))
    lab.lose(a)
    assert lab.retry() is a
    assert bytes(a.encode(Compression.NONE)) == before


def test_only_the_oldest_is_retried_and_alone() -> None:
    lab = Lab()
    a, b, c = lab.send(1, 1, 1)
    lab.lose(a)
    assert lab.retry() is None, "b and c are still on the wire"
    lab.lose(b, c)
    assert lab.retry() is a
    assert lab.retry() is None
    assert not lab.state.accepts_new(KEY, VIA)
    lab.answer(a)
    assert lab.retry() is b


def test_a_retry_waits_for_its_backoff() -> None:
    lab = Lab()
    (a,) = lab.send(1)
    lab.state.on_lost(a, retry_at_ms=50)
    assert lab.state.retry_due_ms(KEY) == 50
    assert lab.state.take_retry(KEY, VIA, 49) is None
    assert lab.state.take_retry(KEY, VIA, 50) is a


def test_what_follows_a_lost_request_is_sent_again_behind_it_with_its_own_sequence() -> None:
    lab = Lab()
    a, b, c, d, e = lab.send(1, 1, 1, 1, 1)
    lab.answer(a)
    lab.answer(b)
    lab.lose(c)
    for refused in (d, e):
        verdict = lab.answer(refused, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert verdict.action is Action.RETRY
    for expected in (c, d, e):
        assert lab.retry() is expected
        assert lab.answer(expected, base_offset=1).action is Action.STORED
    assert [each.base_sequence for each in (c, d, e)] == [2, 3, 4]
    assert lab.state.identity == Identity(7, 0), "no epoch was spent on it"


def test_order_holds_when_the_middle_one_fails() -> None:
    lab = Lab()
    m1, m2, m3 = lab.send(1, 1, 1)
    lab.answer(m1)
    lab.answer(m2, ErrorCode.NOT_ENOUGH_REPLICAS)
    lab.answer(m3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert lab.state.in_flight(KEY) == [m2, m3]
    assert lab.retry() is m2


def test_sequences_go_from_the_last_one_to_0() -> None:
    lab = Lab()
    at_the_end = PartitionState()
    at_the_end.identity, at_the_end.next_sequence = Identity(7, 0), MAX_SEQUENCE - 9
    at_the_end.last_acked = MAX_SEQUENCE - 10
    lab.state._partitions[KEY] = at_the_end
    (a,) = lab.send(20)
    assert (a.base_sequence, a.last_sequence) == (MAX_SEQUENCE - 9, 10 - 1)
    assert lab.state.next_sequence(KEY) == (Identity(7, 0), 10)
    (b,) = lab.send(1)
    lab.lose(a, b)
    for expected in (a, b):
        assert lab.retry() is expected
        lab.answer(expected)
    assert lab.state.accepts_new(KEY, VIA)


def test_a_second_0_waits_until_all_before_it_is_settled() -> None:
    lab = Lab()
    at_the_end = PartitionState()
    at_the_end.identity, at_the_end.next_sequence = Identity(7, 0), MAX_SEQUENCE
    lab.state._partitions[KEY] = at_the_end
    (a,) = lab.send(1)
    assert lab.state.next_sequence(KEY) == (Identity(7, 0), 0)
    assert not lab.state.accepts_new(KEY, VIA)
    lab.answer(a)
    assert lab.state.accepts_new(KEY, VIA)


def test_an_attempt_that_never_left_proves_nothing_and_costs_nothing() -> None:
    lab = Lab()
    (a,) = lab.send(1)
    lab.state.on_not_sent(a, 0)
    assert a.attempts == 0
    (verdict,) = lab.state.expire(KEY, 1_000)
    assert isinstance(verdict.error, DeliveryTimeoutError)


def test_an_attempt_ends_exactly_once() -> None:
    lab = Lab()
    (a,) = lab.send(1)
    lab.answer(a)
    with pytest.raises(RuntimeError, match="exactly once"):
        lab.answer(a)


def test_without_idempotence_one_batch_a_partition_is_sent_and_nothing_is_numbered() -> None:
    state = ProducerState(is_idempotent=False)
    assert not state.needs_producer_id
    a = state.take_new(batch(), VIA)
    assert (a.identity, a.base_sequence) == (None, -1)
    assert not state.accepts_new(KEY, VIA)
    state.on_lost(a, 0)
    assert state.take_retry(KEY, VIA, 0) is a
    (verdict,) = [state.on_answer(a, ErrorCode.INVALID_RECORD)]
    assert isinstance(verdict.error, DeliveryUncertainError)
    assert state.accepts_new(KEY, VIA)
