"""The rules of a session and of a lease, in the machine and in what is saved."""

import pytest

from tests.unit.client.producer.lab import KEY, OTHER, VIA, Lab, batch
from tidelog.client import (
    DeliveryUncertainError,
    ProducerFencedError,
    ProducerSession,
    SessionError,
    SessionPartition,
    TopicPartition,
)
from tidelog.client.producer.batch import Identity
from tidelog.client.producer.session import Found, Run, found_in_batches, found_in_entry
from tidelog.client.producer.verdicts import Action
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import BatchHeader, RecordBatchBuilder, read_batch_header
from tidelog.protocol.types import MAX_SEQUENCE

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def session_lab() -> Lab:
    lab = Lab(lease_ms=100)
    lab.state.is_session = True
    return lab


def header(producer_id: int, epoch: int, base_sequence: int, count: int) -> BatchHeader:
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(0, None, b"x")
    return read_batch_header(builder.build(Compression.NONE, producer_id, epoch, base_sequence))


def test_a_resumed_partition_goes_on_under_its_own_epoch_and_number() -> None:
    lab = session_lab()
    lab.state.resume(KEY, Identity(7, 3), 40)
    lab.send(2)
    lab.send(1, key=OTHER)
    assert lab.sequences() == [(Identity(7, 3), 40)]
    assert [each.identity for each in lab.state.in_flight(OTHER)] == [Identity(7, 0)]


def test_in_a_session_a_number_that_the_broker_has_names_a_record_that_is_stored() -> None:
    lab = session_lab()
    (sent,) = lab.send(2)
    verdict = lab.answer(sent, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert (verdict.action, verdict.base_offset) == (Action.STORED, -1)


def test_in_a_session_a_batch_out_of_order_is_halved_down_to_the_record_and_then_ends_it() -> None:
    lab = session_lab()
    (sent,) = lab.send(2)
    assert lab.answer(sent, OUT_OF_ORDER).action is Action.SPLIT
    lab.state.split(sent, sent.split())
    first = lab.retry()
    assert first is not None
    first.encode(Compression.NONE)
    verdict = lab.answer(first, OUT_OF_ORDER)
    assert verdict.action is Action.FATAL
    assert isinstance(verdict.error, SessionError)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.UNKNOWN_PRODUCER_ID, SessionError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
        (ErrorCode.INVALID_RECORD, Exception),
    ],
)
def test_in_a_session_nothing_is_passed_over(code: ErrorCode, error: type[Exception]) -> None:
    lab = session_lab()
    (sent,) = lab.send(1)
    verdict = lab.answer(sent, code)
    assert verdict.action is Action.FATAL
    assert isinstance(verdict.error, error)
    assert lab.state.identity == Identity(7, 0)


def test_in_a_session_what_expires_ends_it() -> None:
    lab = session_lab()
    (sent,) = lab.send(1, deadline_ms=50)
    lab.lose(sent)
    (verdict,) = lab.state.expire(KEY, 60)
    assert verdict.action is Action.FATAL
    assert isinstance(verdict.error, DeliveryUncertainError)


def test_a_lease_counts_from_the_first_sending_and_starts_a_new_epoch_only_when_idle() -> None:
    lab = Lab(lease_ms=100)
    sent = lab.state.take_new(batch(), VIA, 1_000)
    lab.state.renew(KEY, 5_000)
    assert lab.state.identity == Identity(7, 0), "a batch is in flight"
    lab.lose(sent)
    assert lab.state.take_retry(KEY, VIA, 1_090) is sent
    lab.answer(sent)
    lab.state.renew(KEY, 1_099)
    assert lab.state.identity == Identity(7, 0)
    lab.state.renew(KEY, 1_100)
    assert lab.state.identity == Identity(7, 1)
    after = lab.state.take_new(batch(), VIA, 1_100)
    assert (after.identity, after.base_sequence) == (Identity(7, 1), 0)


def test_a_saved_session_survives_its_json_form() -> None:
    partitions = {KEY: SessionPartition(2, MAX_SEQUENCE, 99), OTHER: SessionPartition(0, 0)}
    session = ProducerSession(7, 1, 1_700_000_000_000, {"t": 2}, partitions, "cluster")
    assert ProducerSession.from_dict(session.to_dict()) == session


@pytest.mark.parametrize("saved", [{}, {"format": 2}, {"format": 1, "producer_id": 3}])
def test_what_is_no_session_is_refused(saved: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="session"):
        ProducerSession.from_dict(saved)


def test_the_last_sequence_tells_how_many_records_to_skip_also_round_the_wrap() -> None:
    assert found_in_entry(KEY, SessionPartition(0, 10), 9) == Found((), 0, 10)
    assert found_in_entry(KEY, SessionPartition(0, 10), 14) == Found((Run(0, 10, 5),), 0, 15)
    wrapped = found_in_entry(KEY, SessionPartition(0, MAX_SEQUENCE), 1)
    assert wrapped == Found((Run(0, MAX_SEQUENCE, 3),), 0, 2)
    with pytest.raises(SessionError):
        found_in_entry(TopicPartition("t", 0), SessionPartition(0, 10), 8)


def test_batches_are_counted_from_the_saved_record_on_through_all_epochs() -> None:
    headers = [
        header(7, 0, 0, 4),
        header(8, 0, 4, 9),
        header(7, 0, 4, 4),
        header(7, 1, 0, 2),
        header(7, 1, 2, 3),
    ]
    found = found_in_batches(7, SessionPartition(0, 6), headers, starts_anew=False)
    assert found == Found((Run(0, 6, 2), Run(1, 0, 2), Run(1, 2, 3)), 1, 5)
    assert [found.place(skipped) for skipped in (0, 1, 2, 4, 7)] == [(0, 6), (0, 7), (1, 0), (1, 2), (1, 5)]
    assert found_in_batches(7, SessionPartition(0, 6), headers, starts_anew=True)[1:] == (2, 0)


def test_a_partition_never_written_to_needs_no_new_epoch() -> None:
    assert found_in_batches(7, SessionPartition(0, 0), (), starts_anew=True) == Found((), 0, 0)
