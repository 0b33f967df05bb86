"""What is saved of a session, and what the log shows of it. `state.txt` has its rules."""

import pytest

from tidelog.client import (
    ProducerSession,
    SessionError,
    SessionPartition,
    TopicPartition,
)
from tidelog.client.producer.session import Found, Run, found_in_batches, found_in_entry
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import BatchHeader, RecordBatchBuilder, read_batch_header
from tidelog.protocol.types import MAX_SEQUENCE

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def header(producer_id: int, epoch: int, base_sequence: int, count: int) -> BatchHeader:
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(0, None, b"x")
    return read_batch_header(builder.build(Compression.NONE, producer_id, epoch, base_sequence))


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
