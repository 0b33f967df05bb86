"""A log that starts over with a leader's producers knows what the leader knows, once it has the same log."""

import errno
from contextlib import suppress
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
    state,
)
from tests.unit.broker.storage.test_truncation import CONFIG, TOPIC_ID, CountedDisk, opened
from tidelog.broker.storage.manager import LogManager
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.broker.storage.producers_before import producers_before
from tidelog.broker.storage.snapshot import encode_snapshot


def fill(log: PartitionLog) -> None:
    """Producers that wrote few batches and many, changed their epochs, aborted, committed and did neither."""
    sent = dict.fromkeys((10, 11, 12, 13), 0)
    for number in range(30):
        producer_id = (10, 11, 10, 12, 10)[number % 5]
        append(log, batch(producer_id, 0, sent[producer_id], 2))
        sent[producer_id] += 2
        if number in (4, 6, 20):
            append_transactional(log, 13, sent[13])
            sent[13] += 1
        if number in (8, 22):
            append_own(log, marker(13, commits=number == 22))
        if number == 12:
            append_own(log, marker(15, 3))
        if number == 25:
            append_transactional(log, 14, 0)
    append_own(log, marker(12, 1))
    append(log, batch(12, 1, 0))
    append(log, batch(16, 0, 0))
    flush(log)


def read_from(log: PartitionLog, offset: int) -> list[tuple[int, bytes]]:
    """Each batch from there on, and where it begins."""
    found = []
    while offset < log.end_offset:
        read = log.read(Read(offset, 1, log.end_offset))
        found.append((offset, bytes(read.records[0])))
        offset = read.next_offset
    return found


def started_over(follower: LogManager, source: PartitionLog, offset: int) -> PartitionLog:
    before = producers_before(source.producers.view(), offset)
    return follower.start_over("topic", 0, encode_snapshot(before, offset, source.folder), NOW_MS)


def test_from_each_batch_on_the_rest_of_the_log_makes_the_leaders_producers(tmp_path: Path) -> None:
    leader, follower = (opened(tmp_path / name, CountedDisk()) for name in ("leader", "follower"))
    source = leader.logs["topic", 0]
    fill(source)
    for offset in [offset for offset, _ in read_from(source, 0)] + [source.end_offset]:
        log = started_over(follower, source, offset)
        assert (log.start_offset, log.end_offset, log.leader_epoch) == (offset, offset, -1)
        for _, data in read_from(source, offset):
            append_from_leader(log, data)
        flush(log)
        assert state(log) == state(source), offset
        assert log.transactions.oldest() == source.transactions.oldest()
    assert not log.recovery.is_damaged
    assert follower.close()
    again = opened(tmp_path / "follower", CountedDisk())
    assert state(again.logs["topic", 0]) == state(source)
    again.close()
    leader.close()


def test_a_snapshot_that_is_damaged_changes_nothing(tmp_path: Path) -> None:
    leader = opened(tmp_path / "leader", CountedDisk())
    source = leader.logs["topic", 0]
    fill(source)
    snapshot = encode_snapshot(source.producers.view(), 10, source.folder)
    for data in (snapshot[:-1] + b"x", b""):
        with pytest.raises(ValueError, match=r"expected|too few"):
            leader.start_over("topic", 0, data, NOW_MS)
    assert leader.logs["topic", 0] is source
    assert append(source, batch()).base_offset == source.end_offset - 1
    leader.close()


def test_after_a_crash_in_the_middle_a_log_starts_over_again_unless_it_has_the_leaders_producers(
    tmp_path: Path,
) -> None:
    leader = opened(tmp_path / "leader", CountedDisk())
    source = leader.logs["topic", 0]
    fill(source)
    leaders = started_over(opened(tmp_path / "whole", CountedDisk()), source, 40)
    step, has_failed = 0, True
    while has_failed:
        disk = CountedDisk()
        follower = opened(tmp_path / str(step), disk)
        fill(follower.logs["topic", 0])
        disk.left, has_failed = step, False
        try:
            started_over(follower, source, 40)
        except OSError:
            has_failed = True
        disk.left = -1
        follower.close(clean=False)
        follower = opened(tmp_path / str(step), CountedDisk())
        log = follower.logs["topic", 0]
        assert not log.recovery.holes
        is_as_before = log.end_offset > log.start_offset or log.start_offset == 0
        assert is_as_before or state(log) == state(leaders), step
        assert started_over(follower, source, 30).end_offset == 30
        follower.close()
        step += 1
    assert step > 3
    leader.close()


def test_one_for_which_space_lacks_is_open_again_and_starts_over_later(tmp_path: Path) -> None:
    leader = opened(tmp_path / "leader", CountedDisk())
    source = leader.logs["topic", 0]
    fill(source)
    counter = CountedDisk()
    leaders = started_over(opened(tmp_path / "whole", counter), source, 40)
    for step in range(2 * counter.changes):
        disk = CountedDisk(errno.ENOSPC)
        follower = opened(tmp_path / str(step), disk)
        log = follower.logs["topic", 0]
        fill(log)
        before = log.delete_records_before(5)
        disk.left = step
        with suppress(OSError):  # What comes after the log is open again, it does without.
            started_over(follower, source, 40)
        disk.left = -1
        if not follower.lacking:
            log = follower.logs["topic", 0]
            assert log.start_offset == log.end_offset or log.start_offset >= before, step
        follower.open_all([("topic", TOPIC_ID, 0, CONFIG)], NOW_MS)
        assert state(started_over(follower, source, 40)) == state(leaders), step
        follower.close()
    leader.close()
