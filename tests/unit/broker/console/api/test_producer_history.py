"""The history of a producer: runs of batches, and what the verification of logs finds between them."""

from typing import Any

import pytest

from tidelog.broker.console.api.producer_history import ProducerHistory
from tidelog.broker.storage.holes import Hole
from tidelog.protocol.records import BatchHeader, EndTransactionMarker, RecordBatchBuilder, read_batch_header

PRODUCER = 7
NOW_MS = 1_700_000_000_000


def header(offset: int, sequence: int, *, epoch: int = 0, count: int = 2, **more: Any) -> BatchHeader:
    builder = RecordBatchBuilder()
    for number in range(count):
        builder.append(NOW_MS + offset + number, None, b"v")
    identity = {"producer_id": PRODUCER, "producer_epoch": epoch, "base_sequence": sequence}
    return read_batch_header(builder.build(**identity, **more))._replace(base_offset=offset)


def marker(offset: int, *, epoch: int = 0) -> BatchHeader:
    return header(offset, -1, epoch=epoch, count=1, is_transactional=True)._replace(attributes=0x30)


@pytest.fixture
def history() -> ProducerHistory:
    return ProducerHistory(start_offset=0, is_whole=True, next_producer_id=100, crc_at=lambda _: None)


def shown(history: ProducerHistory) -> list[tuple[str, int, int]]:
    rows = history.take(is_last=True)
    return [(row["kind"], row["base_offset"], row["batches"]) for row in rows]


def test_batches_that_follow_each_other_are_one_row(history: ProducerHistory) -> None:
    for number in range(4):
        history.batch(header(number * 10, number * 2), None)
    assert history.take(is_last=False) == []
    (row,) = history.take(is_last=True)
    assert (row["batches"], row["records"], row["producer_epoch"]) == (4, 8, 0)
    assert (row["base_sequence"], row["last_sequence"]) == (0, 7)
    assert (row["base_offset"], row["last_offset"]) == (0, 31)
    assert (row["first_timestamp"], row["last_timestamp"]) == (NOW_MS + 1, NOW_MS + 31)


def test_a_gap_and_a_batch_that_is_stored_twice_are_damage(history: ProducerHistory) -> None:
    for offset, sequence in ((0, 0), (2, 2), (4, 2), (6, 8)):
        history.batch(header(offset, sequence), None)
    rows = history.take(is_last=True)
    assert [(row["kind"], row["base_offset"]) for row in rows] == [
        ("batches", 0),
        ("damage", 4),
        ("batches", 4),
        ("damage", 6),
        ("batches", 6),
    ]
    assert "the batch of offset 2 is stored a second time at 4" in rows[1]["text"]
    assert "the next is 4" in rows[3]["text"]


def test_a_new_epoch_says_who_is_fenced(history: ProducerHistory) -> None:
    history.batch(header(0, 0), None)
    history.batch(header(2, 0, epoch=1), None)
    history.batch(header(4, 2, epoch=0), None)
    rows = history.take(is_last=True)
    assert [row["kind"] for row in rows] == ["batches", "epoch", "batches", "damage", "batches"]
    assert rows[1]["text"] == "epoch 1 follows epoch 0, whose batches are refused from here on"
    assert "sent epoch 0, the current is 1" in rows[3]["text"]


def test_each_transaction_ends_with_its_outcome(history: ProducerHistory) -> None:
    history.batch(header(0, 0, is_transactional=True), None)
    history.batch(marker(2), EndTransactionMarker(is_commit=True, coordinator_epoch=0))
    history.batch(header(3, 2, is_transactional=True), None)
    history.batch(marker(5), EndTransactionMarker(is_commit=False, coordinator_epoch=0))
    assert shown(history) == [("batches", 0, 1), ("commit", 2, 0), ("batches", 3, 1), ("abort", 5, 0)]


def test_what_is_missing_after_a_loss_is_no_new_finding(history: ProducerHistory) -> None:
    history.batch(header(0, 0), None)
    history.note_loss(Hole(2, 6), "lost")
    history.batch(header(6, 6), None)
    assert shown(history) == [("batches", 0, 1), ("damage", 2, 0), ("batches", 6, 1)]
