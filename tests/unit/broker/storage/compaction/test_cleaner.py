"""What a clean keeps of a log, rule by rule, and that the log is as good as before for everyone else."""

from array import array
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from tests.unit.broker.storage.support import (
    NOW_MS,
    FaultyDisk,
    append,
    append_own,
    clean,
    cover,
    flush,
    keyed,
    marker,
    open_log,
    state,
    stored,
)
from tidelog.broker.storage.compaction.cleaner import LogClean, Pacing
from tidelog.broker.storage.integrity import CorruptSegmentError
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.broker.storage.verification.findings import Finding, Findings, Severity
from tidelog.broker.storage.verification.partition import PartitionCheck, PartitionFacts
from tidelog.protocol.records import decode_batch, iter_batches

DAY_MS = 86_400_000
COMPACT = LogConfig(cleanup_policy=("compact",), delete_retention_ms=DAY_MS, index_interval_bytes=100)


def settle(log: PartitionLog, *, rolls: bool = True) -> PartitionLog:
    """All is durable in closed segments."""
    if rolls:
        log.roll(NOW_MS)
    flush(log)
    return log


def append_in_transaction(log: PartitionLog, key: bytes, value: bytes | None, producer_id: int) -> None:
    data = keyed([(key, value)], producer_id, is_transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW_MS, permit=lambda header: None)


def contents(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        result = log.read(Read(offset, 1, log.end_offset))
        for view in result.records:
            for position, _ in iter_batches(view):
                found += [(each.offset, each.key, each.value) for each in decode_batch(view, position)]
        offset = result.next_offset
    return found


def damage(folder: Path, end_offset: int) -> list[Finding]:
    found: list[Finding] = []
    facts = PartitionFacts(True, end_offset, 0, 0, None, COMPACT.index_interval_bytes, False)
    PartitionCheck(FaultyDisk(), folder, facts, Findings(found.append), lambda size: None).run()
    return [each for each in found if each.severity is Severity.DAMAGE]


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path, config=COMPACT)


def test_of_each_key_the_last_record_stays_where_it_was(tmp_path: Path) -> None:
    """Records without a key are from a time when the topic was not compacted."""
    log = open_log(tmp_path)
    for value in (b"1", b"2", b"3"):
        append(log, keyed([(b"a", value), (b"b" + value, value), (None, b"no key")]))
        log.roll(NOW_MS)
    append(log, keyed([(b"a", b"active")]))
    log.reconfigure(COMPACT)
    clean(settle(log, rolls=False))
    assert contents(log) == [
        (1, b"b1", b"1"),
        (4, b"b2", b"2"),
        (6, b"a", b"3"),
        (7, b"b3", b"3"),
        (9, b"a", b"active"),
    ]
    assert log.segment_count == 2
    assert not log.holes


def test_a_tombstone_stays_for_its_retention_after_the_clean_that_kept_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=COMPACT)
    append(log, keyed([(b"a", b"1"), (b"a", None), (b"b", b"1")]))
    now_ms = NOW_MS + 5 * DAY_MS
    clean(settle(log), now_ms=now_ms)
    assert contents(log) == [(1, b"a", None), (2, b"b", b"1")]
    for later_ms, is_left in ((DAY_MS - 1, True), (DAY_MS, False)):
        append(log, keyed([(b"other", b"1")]))
        clean(settle(log), now_ms=now_ms + later_ms)
        assert ((1, b"a", None) in contents(log)) is is_left
    assert log.offset_for_timestamp(NOW_MS) == (2, NOW_MS + 2, 0)


def test_a_tombstone_with_the_longest_retention_stays(tmp_path: Path) -> None:
    """As does a marker. Their delete horizon would be after the last moment that a batch can name."""
    log = open_log(tmp_path, config=replace(COMPACT, delete_retention_ms=2**63 - 1))
    for epoch in range(2):
        commit(log, b"a", 1, epoch)
    append(log, keyed([(b"a", None), (b"b", b"1")]))
    clean(settle(log))
    append(log, keyed([(b"b", b"2")]))
    clean(settle(log), now_ms=NOW_MS + 1000 * DAY_MS)
    assert (4, b"a", None) in contents(log)
    assert markers_of(log) == [(1, 1), (1, 3)]


@pytest.mark.parametrize("codec", [0, 2])
def test_producers_are_as_before_and_their_last_batches_stay_without_records(
    tmp_path: Path, codec: int
) -> None:
    log = open_log(tmp_path, config=COMPACT)
    for producer_id in (1, 2, 3):
        for number in range(7):
            append(log, keyed([(b"k", b"v")] * 2, producer_id, 0, number * 2))
    append(log, keyed([(b"k", b"last")]))
    expected = state(settle(log))
    clean(log)
    assert contents(log) == [(42, b"k", b"last")]
    assert [(header.producer_id, header.last_sequence, header.record_count) for header in stored(log)] == [
        (1, 13, 0),
        (2, 13, 0),
        (3, 13, 0),
        (-1, -1, 1),
    ]
    assert state(log) == expected
    assert log.close(clean=True)
    assert not damage(tmp_path, 43)
    again = open_log(tmp_path, config=COMPACT, recovery_point=0)
    assert state(again) == expected
    for number in range(2, 7):
        sent = keyed([(b"k", b"v")] * 2, 2, 0, number * 2)
        assert append(again, sent)[:2] == (14 + number * 2, 15 + number * 2)
    append(again, keyed([(b"k", b"v")], 2, 0, 14))


def test_a_full_map_takes_several_cleans(log: PartitionLog) -> None:
    for value in (b"1", b"2"):
        append(log, keyed([(b"%d" % number, value) for number in range(20)]))
    settle(log)
    ends = []
    while (stats := clean(log, map_bytes=24 * 12)) is not None:
        ends.append(stats.end_offset)
        assert stats.map_keys <= 8
    assert ends == [8, 16, 24, 32, 40]
    assert contents(log) == [(20 + number, b"%d" % number, b"2") for number in range(20)]


def test_nothing_at_or_behind_an_open_transaction_is_cleaned(log: PartitionLog) -> None:
    for _ in range(2):
        append(log, keyed([(b"k", b"v")]))
        log.roll(NOW_MS)
    assert clean(settle(log), stable_offset=1) is not None
    assert len(contents(log)) == 2
    assert log.compaction.first_dirty_offset == 1


def test_only_a_committed_transaction_takes_the_place_of_older_records(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=COMPACT)
    for key in (b"committed", b"aborted"):
        append(log, keyed([(key, b"old")]))
    for producer_id, key in ((1, b"committed"), (2, b"aborted")):
        append_in_transaction(log, key, b"new", producer_id)
    log.roll(NOW_MS)
    append_own(log, marker(1, commits=True))
    append_own(log, marker(2, commits=False))
    clean(settle(log))
    left = [(offset, key, value) for offset, key, value in contents(log) if value in (b"old", b"new")]
    assert left == [(1, b"aborted", b"old"), (2, b"committed", b"new")]
    assert [header.base_offset for header in stored(log) if header.is_control] == [4, 5]


def test_a_transactions_tombstone_is_removed_only_after_its_older_records(tmp_path: Path) -> None:
    """In the clean part outcomes are not known any more: without a horizon a tombstone stays."""
    log = open_log(tmp_path, config=COMPACT)
    append(log, keyed([(b"k", b"old")]))
    append_in_transaction(log, b"k", None, 1)
    append_own(log, marker(1, commits=True))
    for later_ms in (0, DAY_MS, 3 * DAY_MS):
        append(log, keyed([(b"other", b"1")]))
        clean(settle(log), now_ms=NOW_MS + later_ms)
        values = {key: value for _, key, value in contents(log)}
        assert b"k" not in values or values[b"k"] is None
    assert b"k" not in values


def commit(
    log: PartitionLog,
    key: bytes,
    producer_id: int,
    epoch: int = 0,
    *,
    commits: bool = True,
    rolls: bool = False,
) -> None:
    """`rolls`: the marker comes into another segment than the records."""
    data = keyed([(key, b"v")], producer_id, epoch, is_transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW_MS, permit=lambda header: None)
    if rolls:
        log.roll(NOW_MS)
    append_own(log, marker(producer_id, epoch, commits=commits))


def markers_of(log: PartitionLog) -> list[tuple[int, int]]:
    return [(header.producer_id, header.base_offset) for header in stored(log) if header.is_control]


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("commits", [True, False])
def test_markers_do_not_grow_without_bound(tmp_path: Path, commits: bool, rolls: bool) -> None:
    """Each round has ten transactions that take the place of the ones before, or are aborted."""
    log, marker_counts = open_log(tmp_path, config=COMPACT), []
    for day in range(7):
        for number in range(10):
            commit(log, b"k", 1, day * 10 + number, commits=commits, rolls=rolls)
        expected = state(settle(log))
        assert clean(log, now_ms=NOW_MS + day * (DAY_MS + 1)) is not None
        marker_counts.append(len(markers_of(log)))
        assert log.segment_count <= (25 if rolls else 5)
    # The last batch of a file stays until the next clean joins it with others.
    assert marker_counts[-3:] == [11 if commits else 13 - rolls] * 3
    assert [key for _, key, _ in contents(log) if key == b"k"] == [b"k"] * commits
    assert state(log) == expected
    log.close(clean=True)
    assert not damage(tmp_path, 140)
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    again = open_log(tmp_path, config=COMPACT, recovery_point=0)
    assert state(again) == expected
    assert not len(again.transactions)


def test_a_marker_stays_for_its_retention_after_the_last_batch_of_its_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=COMPACT)
    commit(log, b"a", 1, 0)
    commit(log, b"b", 1, 1)
    for ms in (0, 2 * DAY_MS):
        append(log, keyed([(b"other", b"1")]))
        clean(settle(log), now_ms=NOW_MS + ms)
        assert markers_of(log) == [(1, 1), (1, 3)]
    commit(log, b"a", 1, 2)
    for ms, is_left in ((3 * DAY_MS, True), (4 * DAY_MS - 1, True), (4 * DAY_MS, False)):
        append(log, keyed([(b"other", b"1")]))
        clean(settle(log), now_ms=NOW_MS + ms)
        assert ((1, 1) in markers_of(log)) is is_left
    assert len(markers_of(log)) == 2


def test_the_newest_marker_of_each_producer_stays(log: PartitionLog) -> None:
    commit(log, b"k", 1, 0, commits=False)
    commit(log, b"k", 1, 1)
    commit(log, b"k", 2, 0, commits=False)
    for ms, left in ((0, [(1, 1), (1, 3), (2, 5)]), (2 * DAY_MS, [(1, 3), (2, 5)])):
        append(log, keyed([(b"k", b"1")]))
        clean(settle(log), now_ms=NOW_MS + ms)
        assert markers_of(log) == left


def test_an_aborted_transaction_leaves_the_index_before_its_marker_leaves_the_log(tmp_path: Path) -> None:
    """A consumer that does not see the end would hide all that the producer wrote since."""
    log = open_log(tmp_path, config=COMPACT)
    commit(log, b"a", 1, 0, commits=False)
    commit(log, b"b", 1, 1)
    commit(log, b"a", 2, 0, commits=False)
    log.roll(NOW_MS)
    for ms, aborted in ((0, [(1, 0), (2, 4)]), (DAY_MS - 1, [(1, 0), (2, 4)]), (DAY_MS, [(2, 4)])):
        append(log, keyed([(b"other", b"1")]))
        clean(settle(log), now_ms=NOW_MS + ms)
        assert log.aborted_transactions(0, log.end_offset) == aborted
        assert ((1, 1) in markers_of(log)) is ((1, 0) in aborted)
    log.close(clean=False)
    again = open_log(tmp_path, config=COMPACT, recovery_point=log.recovery_point)
    assert again.aborted_transactions(0, again.end_offset) == aborted
    assert not again.recovery.rebuilt_indexes


def test_a_producer_that_is_forgotten_leaves_no_marker(log: PartitionLog) -> None:
    for producer_id in (1, 2):
        commit(log, b"k", producer_id)
    append(log, keyed([(b"k", b"1")]))
    settle(log)
    log.producers.expire(NOW_MS + 100 * DAY_MS)
    for ms in (0, 2 * DAY_MS):
        append(log, keyed([(b"k", b"1")]))
        clean(settle(log), now_ms=NOW_MS + ms)
    assert not markers_of(log)


def test_a_reader_in_a_thread_keeps_what_it_began_with(log: PartitionLog) -> None:
    for number in range(20):
        append(log, keyed([(b"k", b"%d" % number)]))
    settle(log)
    before = log._segments.segments[0]
    walk = before.walk(0)
    next(walk)
    assert before.log.acquire()
    clean(log)
    assert [place.last_offset for place in walk] == list(range(1, 20))
    before.log.release()
    assert contents(log) == [(19, b"k", b"19")]


def test_a_damaged_batch_ends_the_clean_and_nothing_changes(tmp_path: Path, log: PartitionLog) -> None:
    for number in range(4):
        append(log, keyed([(b"k", b"%d" % number)]))
    settle(log)
    path = tmp_path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptSegmentError, match="CRC"):
        clean(log)
    assert path.read_bytes() == data
    assert not list(tmp_path.glob("*.cleaned"))


def test_segments_are_joined_up_to_their_size(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=1000, index_interval_bytes=100)
    log = open_log(tmp_path, config=config)
    for number in range(40):
        append(log, keyed([(b"k%d" % (number % 4), b"v" * 50)]))
    settle(log)
    for _ in range(3):
        log.compaction.save_first_dirty(0)
        clean(log)
    assert log.segment_count == 2
    assert [offset for offset, _, _ in contents(log)] == [36, 37, 38, 39]
    log.close(clean=True)
    assert not damage(tmp_path, 40)


def test_what_a_clean_finds_clean_is_not_written_again(log: PartitionLog) -> None:
    append(log, keyed([(b"a", b"1"), (b"b", b"1")]))
    settle(log)
    before = log._segments.segments
    clean(log)
    assert log._segments.segments == before
    assert log.compaction.first_dirty_offset == 2


def test_a_clean_whose_segments_were_all_deleted_leaves_the_first_dirty_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=COMPACT)
    for _ in range(2):
        append(log, keyed([(b"k", b"v")]))
        found = log.compaction.cleanable(COMPACT, settle(log).end_offset, NOW_MS)
        cover(log, found)
        log.compaction.save_first_dirty(1)
    log.delete_records_before(2)
    task = log.compaction.begin(COMPACT, found, 2, NOW_MS, 1 << 20)
    work = LogClean(task, Pacing(float("inf"), Event()), array("q"), array("q"))
    work.build_map()
    assert work.stats.end_offset == 1


def test_appends_after_a_truncation_are_dirty(tmp_path: Path, log: PartitionLog) -> None:
    append(log, keyed([(b"a", b"1"), (b"a", b"2")]))
    clean(settle(log))
    log.compaction.save_first_dirty(9)
    log.close(clean=True)
    assert open_log(tmp_path, config=COMPACT, clean=True).compaction.first_dirty_offset == 0


@pytest.mark.parametrize("content", [None, b"", b"0\n1\n1\n"])
@pytest.mark.parametrize("is_crash", [True, False])
def test_a_cleaned_log_loses_nothing_with_its_cleaned_offset(
    tmp_path: Path, content: bytes | None, is_crash: bool
) -> None:
    """All before the first dirty offset was cleaned, so gaps are no damage there."""
    log = open_log(tmp_path, config=COMPACT)
    for number in range(20):
        append(log, keyed([(b"a%d" % (number % 5), b"%d" % number), (b"b", b"%d" % number)]))
    clean(settle(log))
    expected = contents(log)
    log.close(clean=not is_crash)
    path = tmp_path / "cleaned-offset-checkpoint"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    again = open_log(tmp_path, config=COMPACT, clean=not is_crash, recovery_point=0 if is_crash else 1 << 40)
    assert contents(again) == expected
    assert not damage(tmp_path, 40) or content == b""
