"""Who appends: a coordinator's batch is checked for its epochs alone, and changes producers as a marker."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from tests.unit.broker.storage.support import (
    append,
    append_own,
    batch,
    flush,
    marker,
    open_log,
    outcome,
    state,
)
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.broker.storage.truncation import apply_cut, find_cut
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import decode_batch

PRODUCER = 7


def is_next(log: PartitionLog, epoch: int, sequence: int) -> bool:
    """Whether the producer may send this sequence next; appends it then."""
    return (
        outcome(append, log, batch(PRODUCER, epoch, sequence)) is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )


def test_a_coordinators_records_lie_at_the_end_of_the_log_and_know_no_producer(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(PRODUCER, 0, 0, 3))
    before = state(log)
    assert append_own(log, batch(count=2, value=b"offsets"))[:2] == (3, 4)
    assert append(log, batch(PRODUCER, 0, 3)).base_offset == 5
    records = [record for part in log.read(3, 200, upper_offset=5).records for record in decode_batch(part)]
    assert [(record.offset, record.value) for record in records] == [(3, b"offsets"), (4, b"offsets")]
    assert before.keys() == state(log).keys()


@pytest.mark.parametrize(("epoch", "kept"), [(0, True), (1, False)], ids=["the-same-epoch", "a-newer-epoch"])
def test_a_marker_keeps_the_batches_of_its_epoch_and_forgets_those_of_an_older_one(
    tmp_path: Path, epoch: int, kept: bool
) -> None:
    log = open_log(tmp_path)
    sent = batch(PRODUCER, 0, 0, 3)
    append(log, sent)
    assert append_own(log, marker(PRODUCER, epoch, 5))[:2] == (3, 3)
    entry = state(log)[PRODUCER]
    assert (entry.producer_epoch, entry.coordinator_epoch, len(entry.batches)) == (epoch, 5, int(kept))
    if kept:
        assert append(log, sent).duplicate
    else:
        assert outcome(append, log, sent) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not is_next(log, epoch, 4)
    assert is_next(log, epoch, 3 if kept else 0)


def test_a_producer_known_by_a_marker_alone_begins_at_sequence_0(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append_own(log, marker(PRODUCER, 2))
    assert not is_next(log, 2, 1)
    assert outcome(append, log, batch(PRODUCER, 1, 0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert is_next(log, 2, 0)


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (marker(PRODUCER, 3, 9), ErrorCode.INVALID_PRODUCER_EPOCH),
        (marker(PRODUCER, 4, 8), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (marker(PRODUCER, 5, 8), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (marker(PRODUCER, 4, 9, key=b"\0"), ErrorCode.INVALID_RECORD),
        (marker(PRODUCER, 4, 9, key=pack(">hh", 0, 2)), ErrorCode.INVALID_RECORD),
        (marker(-1), ErrorCode.INVALID_RECORD),
        (batch(PRODUCER, 4, 1), ErrorCode.INVALID_RECORD),
    ],
    ids=[
        "epoch",
        "coordinator",
        "newer-epoch",
        "no-kind",
        "unknown-kind",
        "no-producer",
        "plain-of-producer",
    ],
)
def test_what_a_coordinator_may_not_write_changes_nothing(
    tmp_path: Path, refused: bytes, code: ErrorCode
) -> None:
    log = open_log(tmp_path)
    append(log, batch(PRODUCER, 4, 0))
    append_own(log, marker(PRODUCER, 4, 9))
    before = state(log), log.end_offset, log.size_bytes
    assert outcome(append_own, log, refused) is code
    assert (state(log), log.end_offset, log.size_bytes) == before


def test_a_client_may_not_write_a_marker(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(PRODUCER, 0, 0))
    assert outcome(append, log, marker(PRODUCER)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("with_snapshot", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_what_markers_changed_is_known_after_a_restart(
    tmp_path: Path, clean: bool, with_snapshot: bool
) -> None:
    log = open_log(tmp_path)
    append(log, batch(PRODUCER, 0, 0, 2))
    append_own(log, marker(PRODUCER, 0, 3))
    append(log, batch(PRODUCER, 0, 2))
    if with_snapshot:
        log.take_snapshot()
    append_own(log, marker(PRODUCER, 1, 4))
    append_own(log, marker(PRODUCER + 1, 6, 4))
    flush(log)
    expected = state(log)
    log.close(clean)
    again = open_log(tmp_path, clean=clean)
    assert state(again) == expected
    assert not is_next(again, 1, 1)
    assert is_next(again, 1, 0)


def test_a_marker_that_a_truncation_took_is_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(PRODUCER, 0, 0, 2))
    expected = state(log)
    append_own(log, marker(PRODUCER, 1, 3))
    flush(log)
    disk = log._segments._disk
    log.close(clean=False)
    apply_cut(disk, find_cut(disk, tmp_path, 2))
    assert state(open_log(tmp_path)) == expected
