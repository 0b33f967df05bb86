"""Numbers of a log that contradict each other take it offline, and nothing is written behind them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.broker.storage.support import append, batch, flush, open_log, outcome, state
from tidelog.broker.replicas.progress import Progress
from tidelog.broker.storage.invariants import InvariantError
from tidelog.broker.storage.local_segment import LocalSegment
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.open_transactions import OpenTransactions
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.protocol.errors import ErrorCode

PRODUCER = 7


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Five segments; two batches are not durable yet."""
    log = open_log(tmp_path, config=LogConfig(segment_bytes=200))
    for sequence in range(8):
        append(log, batch(PRODUCER, 0, sequence))
    flush(log)
    for sequence in range(8, 10):
        append(log, batch(PRODUCER, 0, sequence))
    return log


def lose_a_segment(log: PartitionLog) -> None:
    segments = log._segments.segments
    log._segments.segments = segments[:1] + segments[2:]


def move(name: str, by: int) -> Callable[[PartitionLog], None]:
    return lambda log: setattr(log, name, getattr(log, name) + by)


def lose_a_batch(log: PartitionLog) -> None:
    """The log ends earlier, and so does its file, but not its producers."""
    log.end_offset -= 1
    size, end_offset = log._segments.active.tail
    log._segments.active.tail = (size, end_offset - 1)


def open_a_transaction(log: PartitionLog) -> None:
    """Where the log holds no record."""
    log.transactions.begin(PRODUCER + 1, log.end_offset)


@pytest.mark.parametrize(("start", "before"), [(0, 5), (10, 3)], ids=["back", "ahead-of-the-high-watermark"])
def test_the_last_stable_offset_never_goes_back_nor_passes_the_high_watermark(
    start: int, before: int
) -> None:
    transactions = OpenTransactions()
    transactions.begin(PRODUCER, before)
    progress = Progress(9, transactions, 9)
    progress.check(0)
    transactions.first_unstable = 3
    with pytest.raises(InvariantError) as caught:
        progress.check(start)
    assert caught.value.numbers["last_stable_before"] == before


@pytest.mark.parametrize(
    ("breaks", "numbers"),
    [
        (move("start_offset", 9), {"start_offset": 9, "flushed_end_offset": 8, "end_offset": 10}),
        (move("end_offset", 1), {"end_offset": 11, "last_file_end_offset": 10}),
        (move("end_offset", -3), {"end_offset": 7, "flushed_end_offset": 8}),
        (lose_a_batch, {"producer_id": PRODUCER, "last_offset": 9, "end_offset": 9}),
        (lose_a_segment, {"end_offset": 2, "next_base_offset": 4}),
        (open_a_transaction, {"open_transactions": 1, "first_unstable_offset": 10, "end_offset": 10}),
    ],
    ids=["start", "end-ahead", "end-behind", "producers-ahead", "segment", "transactions-ahead"],
)
def test_a_checkpoint_does_not_begin_on_numbers_that_contradict_each_other(
    log: PartitionLog, breaks: Callable[[PartitionLog], None], numbers: dict[str, int]
) -> None:
    breaks(log)
    with pytest.raises(InvariantError) as caught:
        log.begin_checkpoint()
    assert numbers.items() <= caught.value.numbers.items()
    assert all(f"{name} {number}" in str(caught.value) for name, number in numbers.items())


@pytest.mark.parametrize("breaks", [move("start_offset", 11), move("end_offset", 1), move("end_offset", -3)])
def test_a_flush_does_not_end_on_them(log: PartitionLog, breaks: Callable[[PartitionLog], None]) -> None:
    work = log.begin_flush()
    assert work is not None
    work.run()
    breaks(log)
    with pytest.raises(InvariantError):
        log.finish_flush(work)


def test_a_flush_does_not_begin_on_them(log: PartitionLog) -> None:
    log.start_offset = 9
    with pytest.raises(InvariantError):
        log.begin_flush()


def test_a_leader_epoch_that_goes_back_is_not_written(log: PartitionLog) -> None:
    """A start after a crash would take the batch for damage, and cut the log before it."""
    append(log, batch(PRODUCER, 0, 10), leader_epoch=5)
    size = log.size_bytes
    assert outcome(append, log, batch(PRODUCER, 0, 11), leader_epoch=4) is ErrorCode.KAFKA_STORAGE_ERROR
    assert isinstance(log.failure, InvariantError)
    assert log.failure.numbers == {"written": 5, "now": 4}
    assert (log.size_bytes, log.end_offset, state(log)[PRODUCER].last_sequence) == (size, 11, 10)


@pytest.mark.parametrize(("place", "name"), [(LocalSegment, "note"), (ProducerStates, "apply")])
def test_a_fault_between_the_write_and_its_state_takes_the_log_offline(
    tmp_path: Path, log: PartitionLog, monkeypatch: pytest.MonkeyPatch, place: type, name: str
) -> None:
    """Else the next batch would get the same offset, or its producer would be taken for another."""

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(place, name, fails)
    assert outcome(append, log, batch(PRODUCER, 0, 10)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert isinstance(log.failure, ZeroDivisionError)
    assert outcome(append, log, batch()) is ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    log.close(clean=False)
    again = open_log(tmp_path, recovery_point=8)
    assert again.end_offset == 11
    assert state(again)[PRODUCER].last_sequence == 10


def test_a_shortened_file_is_not_durable(log: PartitionLog) -> None:
    work = log.begin_flush()
    assert work is not None
    path = log._segments.active.path
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(OSError, match=r"became shorter .* offsets up to 10 take \d+"):
        work.run()
