"""Gaps within a segment are legal where a log was cleaned, and damage where it was not."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.compaction import cleaned
from tests.unit.broker.storage.support import (
    NOW_MS,
    FaultyDisk,
    append,
    append_from_leader,
    batch,
    checkpoint,
    flush,
    marker,
    open_log,
    outcome,
    state,
    stored,
)
from tidelog.broker.storage.checkpoints import CLEANED_OFFSET
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.own_batches import EpochsUnknownError
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.broker.storage.truncation import apply_cut, find_cut
from tidelog.broker.storage.verification.findings import Finding, Findings, Severity
from tidelog.broker.storage.verification.partition import PartitionCheck, PartitionFacts
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import LOG_OVERHEAD, decode_batch, iter_batches, pack_prefix, read_batch_header
from tidelog.protocol.records.filtering import placeholder

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=150)
PRODUCER = 7
BATCHES, RECORDS = 12, 3


def stream(folder: Path) -> list[bytes]:
    """The batches of a leader's log, each with its offsets: 12 of 3 records, one millisecond apart."""
    log = open_log(folder)
    for number in range(BATCHES):
        append(log, batch(PRODUCER, 0, number * RECORDS, RECORDS, timestamp=NOW_MS + number * RECORDS))
    batches = []
    for view in log.read(Read(0, 1 << 20, log.end_offset)).records:
        batches += [bytes(view[at : at + found.size_bytes]) for at, found in iter_batches(view)]
    log.close(clean=False)
    return batches


@pytest.fixture
def compacted(tmp_path: Path) -> list[bytes]:
    """Of that stream: whole batches, batches without some or all of their records, and gaps between them."""
    batches = stream(tmp_path / "leader")
    kept = {0: (1,), 3: (0, 1, 2), 4: (), 7: (0, 2), 8: (2,), 11: (1,)}
    return [cleaned(batches[number], deltas) for number, deltas in kept.items()]


STARTS = {0: 3, 9: 12, 12: 15, 21: 24, 24: 27, 33: 36}
"""Where the batches that are left begin, and where they end."""
OFFSETS = [1, 9, 10, 11, 21, 23, 26, 34]


def follow(folder: Path, batches: Sequence[bytes], config: LogConfig = SMALL) -> PartitionLog:
    log = open_log(folder, config=config)
    for data in batches:
        append_from_leader(log, data)
    return log


def reached(offset: int) -> int:
    """The end of the first batch that reaches `offset`."""
    return next(end for end in STARTS.values() if end > offset)


def check_reads(log: PartitionLog) -> None:
    """From each offset the next batch is read, each record is there, and times are found exactly."""
    for offset in range(log.start_offset, log.end_offset):
        log._positions.clear()
        assert log.read(Read(offset, 1, log.end_offset)).next_offset == reached(offset)
    assert {found.base_offset: found.last_offset + 1 for found in stored(log)} == STARTS
    assert list(records(log)) == OFFSETS
    for offset in OFFSETS:
        before = max((other for other in OFFSETS if other < offset), default=-1)
        for time in range(before + 1, offset + 1):
            assert log.offset_for_timestamp(NOW_MS + time) == (offset, NOW_MS + offset, 0)
    assert log.max_timestamp_offset() == (OFFSETS[-1], NOW_MS + OFFSETS[-1], 0)


def records(log: PartitionLog) -> Iterator[int]:
    offset = log.start_offset
    while offset < log.end_offset:
        result = log.read(Read(offset, 1, log.end_offset))
        for view in result.records:
            yield from (record.offset for record in decode_batch(view))
        offset = result.next_offset


def damage(folder: Path, *, is_clean: bool, recovery_point: int) -> list[Finding]:
    """What the offline verification calls damage."""
    found: list[Finding] = []
    facts = PartitionFacts(is_clean, recovery_point, 0, 0, None, SMALL.index_interval_bytes, False)
    disk = FaultyDisk()
    PartitionCheck(disk, folder, facts, Findings(found.append), lambda size: None).run()
    return [each for each in found if each.severity is Severity.DAMAGE]


@pytest.mark.parametrize("config", [SMALL, LogConfig()], ids=["many-segments", "one-segment"])
def test_a_leaders_offsets_and_gaps_stay_as_they_are(
    tmp_path: Path, compacted: list[bytes], config: LogConfig
) -> None:
    log = follow(tmp_path / "log", compacted, config)
    check_reads(log)
    assert not log.holes
    assert state(log)[PRODUCER].last_sequence == 35
    assert log.end_offset == 36


@pytest.mark.parametrize("config", [SMALL, LogConfig()], ids=["many-segments", "one-segment"])
@pytest.mark.parametrize("kept", ["clean", "checkpointed", "flushed", "without-indexes"])
def test_gaps_are_there_again_after_a_restart(
    tmp_path: Path, compacted: list[bytes], config: LogConfig, kept: str
) -> None:
    folder = tmp_path / "log"
    log = follow(folder, compacted, config)
    flush(log)
    if kept == "checkpointed":
        checkpoint(log)
    expected = state(log)
    is_clean, point = kept == "clean", log.recovery_point
    assert log.close(is_clean) is is_clean
    if kept == "without-indexes":
        for path in folder.glob("*index"):
            path.unlink()
    point = 36 if is_clean else point
    assert not damage(folder, is_clean=is_clean, recovery_point=point)
    again = open_log(folder, config=config, clean=is_clean, recovery_point=point)
    check_reads(again)
    assert state(again) == expected
    assert not again.recovery.is_damaged
    assert not again.recovery.truncated_bytes
    again.close(clean=False)


def test_a_gap_is_known_before_a_flush_says_what_lies_behind_it_is_durable(tmp_path: Path) -> None:
    batches = stream(tmp_path / "leader")
    folder = tmp_path / "log"
    log = follow(folder, batches[:2])
    flush(log)
    assert not (folder / CLEANED_OFFSET).exists()
    append_from_leader(log, batches[3])
    work = log.begin_flush()
    assert work is not None
    work.run()
    assert (folder / CLEANED_OFFSET).read_text() == "0\n1\n9\n"


@pytest.mark.parametrize("config", [SMALL, LogConfig()], ids=["many-segments", "one-segment"])
def test_a_gap_that_no_flush_stored_ends_a_followers_log_and_is_damage_without_a_copy(
    tmp_path: Path, compacted: list[bytes], config: LogConfig
) -> None:
    durable, lost = compacted[:2], compacted[2:]
    for folder, has_copies in ((tmp_path / "follower", True), (tmp_path / "alone", False)):
        log = follow(folder, durable, config)
        flush(log)
        checkpoint(log)
        point = log.recovery_point
        for data in lost[:2]:
            append_from_leader(log, data)
        log.roll(NOW_MS)
        for data in lost[2:]:
            append_from_leader(log, data)
        log.close(clean=False)
        again = open_log(folder, config=config, recovery_point=point, has_copies=has_copies)
        assert again.end_offset == again.recovery.truncated_at_offset == 15
        assert again.recovery.is_damaged is not has_copies
        assert bool(list(folder.glob("*.damaged"))) is not has_copies
        for data in lost[1:]:
            append_from_leader(again, data)
        check_reads(again)


def test_where_the_log_was_not_cleaned_a_gap_is_damage(tmp_path: Path, compacted: list[bytes]) -> None:
    """The same bytes, one batch of them missing: behind the cleaned offset it is told, before it is not."""
    for victim, is_told in ((9, False), (42, True)):
        folder = tmp_path / str(victim)
        log = follow(folder, compacted, LogConfig())
        for number in range(5):
            append(log, batch(count=3, timestamp=NOW_MS + number))
        flush(log)
        log.close(clean=True)
        without(folder / f"{0:020d}.log", victim)
        told = damage(folder, is_clean=True, recovery_point=51)
        assert bool([each for each in told if each.problem == "the base offset does not follow"]) is is_told
        again = open_log(folder, clean=False, recovery_point=36)
        assert again.end_offset == (42 if is_told else 51)
        assert bool(again.recovery.truncated_bytes) is is_told
        again.close(clean=False)


def without(path: Path, base_offset: int) -> None:
    """Cut one batch out of a segment file, and drop its indexes."""
    data = path.read_bytes()
    ((at, size),) = [(at, b.size_bytes) for at, b in iter_batches(data) if b.base_offset == base_offset]
    path.write_bytes(data[:at] + data[at + size :])
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink(missing_ok=True)


def test_an_offset_that_goes_back_is_damage_also_where_the_log_was_cleaned(
    tmp_path: Path, compacted: list[bytes]
) -> None:
    folder = tmp_path / "log"
    log = follow(folder, compacted, LogConfig())
    flush(log)
    log.close(clean=False)
    path = folder / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    at = next(at for at, found in iter_batches(bytes(data)) if found.base_offset == 21)
    data[at : at + 8] = (14).to_bytes(8, "big")
    path.write_bytes(data)
    again = open_log(folder)
    assert (again.end_offset, again.recovery.truncated_at_offset) == (15, 15)
    again.close(clean=False)


def test_a_checkpoint_of_gaps_that_is_damaged_costs_no_record(tmp_path: Path, compacted: list[bytes]) -> None:
    folder = tmp_path / "log"
    log = follow(folder, compacted)
    flush(log)
    log.close(clean=False)
    (folder / CLEANED_OFFSET).write_text("0\n1\nmany\n")
    told = damage(folder, is_clean=False, recovery_point=0)
    assert [each.file for each in told] == [f"log/{CLEANED_OFFSET}"]
    again = open_log(folder, config=SMALL)
    check_reads(again)
    assert again.recovery.is_damaged
    append(again, batch())
    flush(again)
    assert (folder / CLEANED_OFFSET).read_text() == "0\n1\n36\n"
    again.close(clean=False)


def test_what_follows_a_truncation_has_no_gaps_again(tmp_path: Path, compacted: list[bytes]) -> None:
    folder = tmp_path / "log"
    log = follow(folder, compacted)
    flush(log)
    disk = log._segments._disk
    log.close(clean=False)
    apply_cut(disk, find_cut(disk, folder, 22))
    again = open_log(folder, config=SMALL)
    assert again.end_offset == 15
    append(again, batch())
    flush(again)
    assert (folder / CLEANED_OFFSET).read_text() == "0\n1\n15\n"
    again.close(clean=False)


def test_a_batch_that_compaction_took_is_still_a_duplicate(tmp_path: Path) -> None:
    batches = stream(tmp_path / "leader")
    folder = tmp_path / "log"
    log = follow(folder, batches)
    flush(log)
    log.close(clean=True)
    for path in folder.glob("*.log"):
        path.unlink()
    shutil.rmtree(tmp_path / "leader")
    # As a cleaner leaves it: the last batch empty, of the one before it one record, where a file ended one
    # that names no producer, the others gone.
    ended = placeholder(read_batch_header(batches[-3]))
    (folder / f"{0:020d}.log").write_bytes(ended + cleaned(batches[-2], (1,)) + cleaned(batches[-1], ()))
    (folder / CLEANED_OFFSET).write_text("0\n1\n36\n")
    for path in folder.glob("*index"):
        path.unlink()
    log = open_log(folder, clean=True, recovery_point=36)  # It makes the indexes again.
    log.roll(NOW_MS)
    log.close(clean=True)
    again = open_log(folder, clean=True, recovery_point=36)
    for number in range(BATCHES - 5, BATCHES):
        sent = batch(PRODUCER, 0, number * RECORDS, RECORDS, timestamp=NOW_MS + number * RECORDS)
        assert append(again, sent)[:2] == (number * RECORDS, number * RECORDS + 2)
    again.close(clean=False)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda data: data, id="again"),
        pytest.param(lambda data: (1 << 40).to_bytes(8, "big") + data[8:], id="too-far"),
        pytest.param(
            lambda data: (99).to_bytes(8, "big") + data[8:12] + (0).to_bytes(4, "big") + data[16:], id="epoch"
        ),
        pytest.param(lambda data: (99).to_bytes(8, "big") + data[8:-1] + b"x", id="crc"),
    ],
)
def test_what_cannot_follow_is_refused_and_changes_nothing(tmp_path: Path, wrong) -> None:  # type: ignore[no-untyped-def]
    data = stream(tmp_path / "leader")[0]
    log = open_log(tmp_path / "log")
    append_from_leader(log, data[:12] + (4).to_bytes(4, "big") + data[16:])
    before = state(log), log.end_offset, log.size_bytes
    assert outcome(append_from_leader, log, wrong(data)) in (
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
    )
    assert (state(log), log.end_offset, log.size_bytes) == before
    assert log.leader_epoch == 4


def test_epochs_that_a_gap_hides_begin_where_the_leader_says_also_after_a_crash(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append_from_leader(log, batch(count=2))
    hidden = bytearray(batch())
    hidden[:16] = pack_prefix(9, len(hidden) - LOG_OVERHEAD, 4)
    with pytest.raises(EpochsUnknownError):
        append_from_leader(log, hidden)
    log.cache_epochs([(3, 2), (4, 7)])
    assert log.end_offset_for_epoch(3) == (-1, -1)
    append_from_leader(log, hidden)
    expected = {2: (2, 2), 3: (3, 7), 4: (4, 10)}
    assert {epoch: log.end_offset_for_epoch(epoch) for epoch in expected} == expected
    flush(log)
    log.close(clean=False)
    again = open_log(tmp_path)
    assert {epoch: again.end_offset_for_epoch(epoch) for epoch in expected} == expected


def test_a_leaders_markers_change_producers_and_its_unknown_ones_do_not(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append_from_leader(log, marker(PRODUCER, 3, 2))
    unknown = marker(PRODUCER, 9, 9, key=b"\0\0\0\7")
    append_from_leader(log, (5).to_bytes(8, "big") + unknown[8:])
    assert [(entry.producer_epoch, entry.coordinator_epoch) for entry in state(log).values()] == [(3, 2)]
    flush(log)
    expected = state(log)
    log.close(clean=False)
    again = open_log(tmp_path)
    assert (state(again), again.end_offset) == (expected, 6)
