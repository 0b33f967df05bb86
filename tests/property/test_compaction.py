"""Random logs are cleaned again and again, and a process ends within: the real cleaner against a model."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ending_disk import MANY, EndingDisk, Killed
from tests.unit.broker.storage.support import (
    NOW_MS,
    append,
    clean,
    flush,
    keyed,
    open_log,
    state,
)
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import decode_batch, iter_batches

RETENTION_MS = 1_000
CONFIG = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=400,
    index_interval_bytes=100,
    delete_retention_ms=RETENTION_MS,
)
SMALLEST_MAP, LARGE_MAP = 24 * 4, 1 << 16

records = st.tuples(st.sampled_from([b"a", b"b", b"c", b"d" * 70]), st.sampled_from([b"1", b"22", None]))
sends = st.tuples(
    st.just("send"),
    st.lists(st.lists(records, min_size=1, max_size=4), min_size=4, max_size=12),
    st.integers(-1, 0),
    st.sampled_from([Compression.NONE, Compression.NONE, Compression.LZ4]),
)
cleans = st.tuples(st.just("clean"), st.sampled_from([SMALLEST_MAP, LARGE_MAP]))
others = st.one_of(st.tuples(st.just("wait"), st.sampled_from([1, RETENTION_MS])), st.just(("restart",)))


class Kept(NamedTuple):
    """A record that was appended."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes | None


class UnsyncedDisk(Disk):
    """Takes no time for syncs: here no power is cut."""

    def fdatasync(self, fd: int) -> None:
        pass

    def fsync_directory(self, path: Path) -> None:
        pass


@dataclass
class Model:
    """What a cleaned log holds, by the plainest way: lists of records, and when each tombstone may go."""

    batches: list[list[Kept]] = field(default_factory=list)
    horizons: dict[int, int] = field(default_factory=dict)

    def clean(self, first_dirty: int, end: int, segment_end: int, now_ms: int) -> None:
        """A clean whose map holds the offsets from `first_dirty` on, and before `end`."""
        newest = {kept.key: kept.offset for kept in self.records if first_dirty <= kept.offset < end}
        for number, batch in enumerate(self.batches):
            if not batch or batch[0].offset >= segment_end:
                continue
            is_over = self.horizons.get(number, now_ms + 1) <= now_ms
            batch[:] = [
                kept
                for kept in batch
                if kept.offset >= end
                or (newest.get(kept.key, -1) <= kept.offset and not (kept.value is None and is_over))
            ]
            has_tombstone = any(kept.value is None for kept in batch)
            if has_tombstone and number not in self.horizons and self.ends[number] <= end:
                self.horizons[number] = now_ms + RETENTION_MS

    ends: list[int] = field(default_factory=list)

    @property
    def records(self) -> list[Kept]:
        return [kept for batch in self.batches for kept in batch]


def contents(log: PartitionLog) -> list[Kept]:
    """All records, as a consumer reads them."""
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        result = log.read(Read(offset, 1 << 20, log.end_offset))
        for view in result.records:
            for position, _ in iter_batches(view):
                found += [
                    Kept(r.offset, r.timestamp, r.key or b"", r.value) for r in decode_batch(view, position)
                ]
        assert result.next_offset > offset
        offset = result.next_offset
    return found


@dataclass
class History:
    folder: Path
    log: PartitionLog
    now_ms: int = NOW_MS
    model: Model = field(default_factory=Model)
    all: list[Kept] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)

    def play(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("send", batches, producer_id, codec):
                for batch in batches:
                    self.send(batch, producer_id, codec)
            case ("clean", map_bytes):
                self.clean(map_bytes)
            case ("wait", ms):
                self.now_ms += ms
            case ("restart",):
                self.restart(is_clean=True)

    def send(self, batch: Sequence[tuple[bytes, bytes | None]], producer_id: int, codec: Compression) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(batch)
        data = keyed(batch, producer_id, 0, sequence, timestamp=self.now_ms, step_ms=70, compression=codec)
        first = append(self.log, data, now_ms=self.now_ms).base_offset
        kept = [Kept(first + n, self.now_ms + 70 * n, k, v) for n, (k, v) in enumerate(batch)]
        self.all += kept
        self.model.batches.append(kept)
        self.model.ends.append(self.log.end_offset)

    def clean(self, map_bytes: int) -> None:
        flush(self.log)
        first_dirty = self.log.compaction.first_dirty_offset
        segments = [each.end_offset for each in self.log._segments.segments]
        stats = clean(self.log, now_ms=self.now_ms, map_bytes=map_bytes)
        if stats is not None:
            reached = next(end for end in segments if end >= stats.end_offset)
            self.model.clean(first_dirty, stats.end_offset, reached, self.now_ms)

    def restart(self, *, is_clean: bool) -> None:
        point = self.log.recovery_point
        self.log.close(is_clean)
        self.log = open_log(
            self.folder,
            config=CONFIG,
            disk=UnsyncedDisk(),
            clean=is_clean,
            recovery_point=point,
            now_ms=self.now_ms,
            start_offset=0,
        )
        assert not self.log.recovery.is_damaged, self.log.recovery


@settings(max_examples=30)
@given(st.lists(st.one_of(sends, sends, cleans, others), min_size=3, max_size=12))
def test_what_a_clean_leaves_is_what_the_model_leaves(steps: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder:
        history = History(Path(folder), open_log(Path(folder), config=CONFIG, disk=UnsyncedDisk()))
        for step in [*steps, ("clean", LARGE_MAP), ("restart",)]:
            history.play(step)
            assert contents(history.log) == history.model.records
        history.log.close(clean=False)


class UnsyncedEndingDisk(EndingDisk, UnsyncedDisk):
    """Ends its process before a change, when told to."""


@settings(max_examples=30)
@given(
    st.lists(st.one_of(sends, cleans), min_size=3, max_size=6),
    st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from([SMALLEST_MAP, LARGE_MAP])), min_size=1, max_size=3
    ),
)
def test_a_process_that_ends_within_a_clean_loses_no_key_and_brings_none_back(
    steps: list[tuple[Any, ...]], ends: list[tuple[int, int]]
) -> None:
    with TemporaryDirectory() as folder:
        history = History(Path(folder), open_log(Path(folder), config=CONFIG, disk=UnsyncedDisk()))
        for step in steps:
            history.play(step)
        for left, map_bytes in ends:
            disk = UnsyncedEndingDisk()
            history.log.close(clean=True)
            history.log = open_log(Path(folder), config=CONFIG, disk=disk, clean=True, recovery_point=1 << 40)
            flush(history.log)
            expected, point = state(history.log), history.log.recovery_point
            disk.left = left
            with suppress(Killed):
                clean(history.log, now_ms=history.now_ms, map_bytes=map_bytes)
            disk.left = MANY
            history.log.close(clean=False)
            history.log = open_log(
                Path(folder), config=CONFIG, disk=UnsyncedDisk(), recovery_point=point, start_offset=0
            )
            assert not history.log.recovery.is_damaged, history.log.recovery
            assert state(history.log) == expected
            check(history)
            history.now_ms += RETENTION_MS
        history.clean(LARGE_MAP)
        check(history)
        history.log.close(clean=False)


def check(history: History) -> None:
    """Each key has its last value; a key that was deleted is gone, or ends with the tombstone."""
    found = contents(history.log)
    assert set(found) <= set(history.all)
    assert found == sorted(found)
    left = {kept.key: kept for kept in found}
    for key, last in {kept.key: kept for kept in history.all}.items():
        assert left.get(key) == last or (last.value is None and key not in left)
