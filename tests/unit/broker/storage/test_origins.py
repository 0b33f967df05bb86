"""Who appends: a coordinator's batch is checked for its epochs alone, and changes producers as a marker."""

from pathlib import Path
from struct import pack

import pytest

from tests.unit.broker.storage.support import (
    NOW_MS,
    append,
    append_from_leader,
    append_own,
    append_transactional,
    batch,
    flush,
    marker,
    open_log,
    outcome,
    state,
)
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.broker.storage.truncation import apply_cut, find_cut
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import RecordBatchBuilder, decode_batch

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
    records = [record for part in log.read(Read(3, 200, 5)).records for record in decode_batch(part)]
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


def own_batch(producer_id: int, epoch: int, sequence: int = -1, *, transactional: bool = True) -> bytes:
    """Records that a coordinator writes in a producer's transaction, as TxnOffsetCommit does."""
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, b"key", b"offset")
    return bytes(
        builder.build(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
    )


@pytest.mark.parametrize("clean", [False, True])
def test_a_coordinators_records_open_a_transaction_and_leave_the_sequences_as_they_are(
    tmp_path: Path, clean: bool
) -> None:
    log = open_log(tmp_path)
    append(log, batch(PRODUCER, 1, 0, 2))
    append_own(log, own_batch(PRODUCER, 1))
    append_own(log, own_batch(PRODUCER, 1))
    append_own(log, own_batch(PRODUCER + 1, 5))
    flush(log)
    expected = state(log)
    assert expected[PRODUCER].current_txn_start_offset == 2
    assert expected[PRODUCER + 1].current_txn_start_offset == 4
    log.close(clean)
    again = open_log(tmp_path, clean=clean)
    assert (state(again), again.transactions.first_unstable) == (expected, 2)
    append_own(again, marker(PRODUCER, 1, commits=False))
    append_own(again, marker(PRODUCER + 1, 5))
    assert again.aborted_transactions(0, again.end_offset) == [(PRODUCER, 2)]
    assert not is_next(again, 1, 3)
    assert is_next(again, 1, 2)


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (own_batch(PRODUCER, 3), ErrorCode.INVALID_PRODUCER_EPOCH),
        (own_batch(PRODUCER, 4, 1), ErrorCode.INVALID_RECORD),
        (own_batch(PRODUCER, 4, transactional=False), ErrorCode.INVALID_RECORD),
        (own_batch(-1, -1), ErrorCode.INVALID_RECORD),
    ],
    ids=["epoch", "sequence", "no-transaction", "no-producer"],
)
def test_a_coordinators_records_of_a_producer_have_its_epoch_and_no_sequence(
    tmp_path: Path, refused: bytes, code: ErrorCode
) -> None:
    log = open_log(tmp_path)
    append(log, batch(PRODUCER, 4, 0))
    assert outcome(append_own, log, refused) is code
    assert log.end_offset == 1


def test_a_follower_knows_the_transactions_that_its_leader_knows(tmp_path: Path) -> None:
    leader, follower = open_log(tmp_path / "leader"), open_log(tmp_path / "follower")
    append_transactional(leader, PRODUCER, 0, 2)
    append_transactional(leader, PRODUCER + 1, 0)
    append_own(leader, marker(PRODUCER, 0, commits=False))
    append_transactional(leader, PRODUCER, 2)
    offset = 0
    while offset < leader.end_offset:
        found = leader.read(Read(offset, 1, leader.end_offset))
        append_from_leader(follower, bytes(found.records[0]))
        offset = found.next_offset
    assert state(follower) == state(leader)
    for log in (leader, follower):
        flush(log)
        log.transactions.settle(log.flushed_end_offset)
        assert (log.transactions.first_unstable, len(log.transactions)) == (2, 2)
        assert log.aborted_transactions(0, log.end_offset) == [(PRODUCER, 0)]
