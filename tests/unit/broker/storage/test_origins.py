"""Who appends: a coordinator's batch is checked for its epochs alone, and changes producers as a marker."""

from pathlib import Path

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
from tidelog.broker.storage.partition_log import Read
from tidelog.broker.storage.truncation import apply_cut, find_cut
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import RecordBatchBuilder

PRODUCER = 7


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
