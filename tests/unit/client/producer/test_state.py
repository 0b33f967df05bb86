"""The client's rules of idempotence while nothing is given up, one test a rule. Batches are A, B, C, ... as
sent."""

import pytest

from tests.unit.client.producer.lab import KEY, OTHER, VIA, Lab, batch
from tidelog.client import DeliveryTimeoutError, DeliveryUncertainError
from tidelog.client.producer.batch import Identity
from tidelog.client.producer.partition import PartitionState
from tidelog.client.producer.state import ProducerState
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


def test_sequences_count_records_from_0_in_each_partition(lab: Lab) -> None:
    a, b, c = lab.send(3, 2, 1)
    (other,) = lab.send(4, key=OTHER)
    assert [each.base_sequence for each in (a, b, c, other)] == [0, 3, 5, 0]
    assert {each.identity for each in (a, b, c, other)} == {Identity(7, 0)}
    assert lab.state.next_sequence(KEY) == (Identity(7, 0), 6)


def test_at_most_five_batches_of_a_partition_are_unsettled(lab: Lab) -> None:
    a, *_ = lab.send(1, 1, 1, 1, 1)
    assert not lab.state.accepts_new(KEY, VIA)
    assert lab.state.accepts_new(OTHER, VIA)
    with pytest.raises(RuntimeError, match="accepts_new"):
        lab.state.take_new(batch(), VIA)
    lab.answer(a)
    assert lab.state.accepts_new(KEY, VIA)


def test_while_batches_are_on_one_connection_none_goes_over_another(lab: Lab) -> None:
    (a,) = lab.send(1)
    elsewhere = object()
    assert not lab.state.accepts_new(KEY, elsewhere)
    lab.answer(a)
    assert lab.state.accepts_new(KEY, elsewhere)


def test_a_retry_bears_the_same_bytes(lab: Lab) -> None:
    (a,) = lab.send(2)
    before = bytes(a.encode(Compression.NONE))
    lab.lose(a)
    assert lab.retry() is a
    assert bytes(a.encode(Compression.NONE)) == before


def test_only_the_oldest_is_retried_and_alone(lab: Lab) -> None:
    a, b, c = lab.send(1, 1, 1)
    lab.lose(a)
    assert lab.retry() is None, "b and c are still on the wire"
    lab.lose(b, c)
    assert lab.retry() is a
    assert lab.retry() is None
    assert not lab.state.accepts_new(KEY, VIA)
    lab.answer(a)
    assert lab.retry() is b


def test_a_retry_waits_for_its_backoff(lab: Lab) -> None:
    (a,) = lab.send(1)
    lab.state.on_lost(a, retry_at_ms=50)
    assert lab.state.retry_due_ms(KEY) == 50
    assert lab.state.take_retry(KEY, VIA, 49) is None
    assert lab.state.take_retry(KEY, VIA, 50) is a


def test_a_second_0_waits_until_all_before_it_is_settled(lab: Lab) -> None:
    at_the_end = PartitionState()
    at_the_end.identity, at_the_end.next_sequence = Identity(7, 0), MAX_SEQUENCE
    lab.state._partitions[KEY] = at_the_end
    (a,) = lab.send(1)
    assert lab.state.next_sequence(KEY) == (Identity(7, 0), 0)
    assert not lab.state.accepts_new(KEY, VIA)
    lab.answer(a)
    assert lab.state.accepts_new(KEY, VIA)


def test_an_attempt_that_never_left_proves_nothing_and_costs_nothing(lab: Lab) -> None:
    (a,) = lab.send(1)
    lab.state.on_not_sent(a, 0)
    assert a.attempts == 0
    (verdict,) = lab.state.expire(KEY, 1_000)
    assert isinstance(verdict.error, DeliveryTimeoutError)


def test_an_attempt_ends_exactly_once(lab: Lab) -> None:
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
