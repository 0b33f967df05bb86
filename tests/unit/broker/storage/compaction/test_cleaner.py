"""What a clean keeps of a log, rule by rule, and that the log is as good as before for everyone else."""

from array import array
from collections.abc import Sequence
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
from tidelog.broker.storage import readable_log
from tidelog.broker.storage.compaction.cleaner import LogClean, Pacing
from tidelog.broker.storage.integrity import CorruptSegmentError
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.broker.storage.segment import Segment
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


def test_a_read_whose_segment_is_cleaned_before_it_begins_reads_what_replaced_it(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        append(log, keyed([(b"k", b"%d" % number)]))
    settle(log)
    found_by = readable_log.holding

    def late(segments: Sequence[Segment], offset: int) -> Segment:
        found = found_by(segments, offset)
        monkeypatch.undo()
        clean(log)
        return found

    monkeypatch.setattr(readable_log, "holding", late)
    (view,) = log.read(Read(0, 1 << 20, log.end_offset)).records
    assert [each.value for each in decode_batch(view)] == [b"19"]


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
