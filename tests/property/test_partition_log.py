"""Random histories of one log, cut off anywhere: what is left equals a full replay and holds all promised."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from tests.compaction import cleaned
from tests.unit.broker.storage.support import (
    NEVER_ISSUED,
    NOW_MS,
    append,
    append_from_leader,
    append_own,
    batch,
    checkpoint,
    flush,
    marker,
    open_log,
    state,
    stored,
)
from tidelog.broker.storage.checkpoints import CLEANED_OFFSET
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.producer_state import ProducerRules
from tidelog.protocol.errors import ApiError
from tidelog.protocol.records import LOG_OVERHEAD, iter_batches, pack_prefix, read_marker

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)

sends = st.tuples(
    st.just("send"),
    st.integers(-1, 3),
    st.sampled_from(["next", "next", "next", "next", "again", "bump", "gap"]),
    st.integers(1, 3),
    st.integers(-30, 30),
)
steps = st.one_of(
    sends,
    sends,
    sends,
    sends,
    st.sampled_from([("flush",), ("checkpoint",), ("snapshot",), ("roll",)]),
    st.tuples(st.just("delete"), st.floats(0, 1)),
    st.tuples(st.just("mark"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("follow"), st.integers(-1, 3), st.integers(0, 4), st.sets(st.integers(0, 2))),
)


@dataclass
class History:
    """Plays steps on a log and notes what was acknowledged as durable."""

    log: PartitionLog
    next: dict[int, tuple[int, int]] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)
    last: dict[int, bytes] = field(default_factory=dict)
    markers: int = 0
    """How many were written, each by a coordinator of a newer epoch."""
    follows: bool = False
    """Whether it holds batches of a leader."""

    def play(self, step: tuple) -> None:  # type: ignore[type-arg]
        log = self.log
        match step:
            case ("flush",):
                flush(log)
            case ("checkpoint",):
                checkpoint(log)
            case ("snapshot",):
                log.take_snapshot()
            case ("roll",):
                log.roll(NOW_MS)
            case ("delete", share):
                log.delete_records_before(int(log.flushed_end_offset * share))
            case ("mark", producer_id, bumps):
                self.mark(producer_id, bumps)
            case ("follow", producer_id, gap, kept):
                self.follow(producer_id, gap, kept)
            case ("send", producer_id, how, count, shift):
                self.send(producer_id, how, count, NOW_MS + shift)

    def follow(self, producer_id: int, gap: int, kept: set[int]) -> None:
        """A leader whose log was compacted gives a batch of three records, of which these are left."""
        epoch, sequence = self.next.get(producer_id, (0, 0))
        data = bytearray(cleaned(batch(producer_id, epoch, sequence, 3), kept))
        data[:16] = pack_prefix(self.log.end_offset + gap, len(data) - LOG_OVERHEAD, 0)
        if gap and self.log.leader_epoch < 0:
            self.log.cache_epochs([(0, 0)])
        append_from_leader(self.log, bytes(data))
        self.next[producer_id] = (epoch, sequence + 3)
        self.last.pop(producer_id, None)
        self.follows = True

    def mark(self, producer_id: int, bumps: bool) -> None:
        """A coordinator ends a transaction of a producer, perhaps in a newer epoch of it."""
        epoch, sequence = self.next.get(producer_id, (0, 0))
        if bumps:
            epoch, sequence = epoch + 1, 0
            self.last.pop(producer_id, None)
        append_own(self.log, marker(producer_id, epoch, self.markers))
        self.markers += 1
        self.next[producer_id] = (epoch, sequence)

    def send(self, producer_id: int, how: str, count: int, timestamp: int) -> None:
        epoch, sequence = self.next.get(producer_id, (0, 0))
        if how == "bump":
            epoch, sequence = epoch + 1, 0
        data = batch(producer_id, epoch, sequence + (how == "gap"), count, timestamp=timestamp)
        if how == "again" and producer_id in self.last:
            result = append(self.log, self.last[producer_id])
            assert result.duplicate or producer_id < 0
            return
        try:
            append(self.log, data)
        except ApiError:
            assert how == "gap"
            return
        self.next[producer_id] = (epoch, sequence + count)
        self.last[producer_id] = data


def replayed(log: PartitionLog) -> object:
    """Producer state by the plainest way: every header from the start of the log."""
    machine = ProducerStates(ProducerRules(), lambda: NEVER_ISSUED)
    data = contents(log, log.end_offset)
    for position, found in iter_batches(data):
        if found.is_control:
            machine.apply_marker(found, read_marker(data, position), found.base_offset, 0)
        else:
            machine.apply(found, found.base_offset, 0)
    return {entry.producer_id: entry._replace(last_append_ms=0) for entry in machine.entries()}


def contents(log: PartitionLog, upper: int) -> bytes:
    """All bytes of the log's batches below `upper`, but for the leader epochs."""
    data, offset = bytearray(), log.start_offset
    while offset < upper:
        result = log.read(Read(offset, 1 << 20, upper))
        for records in result.records:
            for position, found in iter_batches(records):
                data += records[position : position + found.size_bytes]
                # Outside the CRC, and unlike the offset not known otherwise: a larger one cannot be told.
                data[-found.size_bytes + 12 : -found.size_bytes + 16] = bytes(4)
        offset = result.next_offset
    return bytes(data)


@given(st.lists(steps, max_size=60), st.booleans())
def test_a_restart_gives_the_same_log_and_the_same_producers(history: list[tuple], clean: bool) -> None:  # type: ignore[type-arg]
    with TemporaryDirectory() as name:
        play = History(open_log(Path(name), config=CONFIG))
        for step in history:
            play.play(step)
        log = play.log
        if play.follows:
            flush(log)  # What is not durable yet, a follower fetches again.
        before = state(log), contents(log, log.end_offset), log.end_offset
        start = log.start_offset
        assert log.close(clean=clean) is clean
        again = open_log(
            Path(name), config=CONFIG, clean=clean, recovery_point=log.recovery_point, start_offset=start
        )
        assert (state(again), contents(again, again.end_offset), again.end_offset) == before
        if start == 0:
            assert state(again) == replayed(again)
        again.close(clean=False)


@given(st.lists(steps.filter(lambda step: step[0] != "delete"), min_size=5, max_size=50), st.data())
def test_a_crash_at_any_byte_loses_nothing_that_was_flushed_and_invents_nothing(
    history: list[tuple],  # type: ignore[type-arg]
    data: st.DataObject,
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name) / "topic-0"
        play = History(open_log(folder, config=CONFIG))
        for step in history:
            play.play(step)
        log = play.log
        durable, point = log.flushed_end_offset, log.recovery_point
        promised, everything = contents(log, durable), contents(log, log.end_offset)
        positions = {segment.path: segment for segment in log._segments.segments}
        log.close(clean=False)
        damage(folder, durable, positions, data)
        again = open_log(folder, config=CONFIG, recovery_point=point)
        kept = contents(again, again.end_offset)
        assert kept.startswith(promised)
        assert everything.startswith(kept)
        assert state(again) == replayed(again)
        assert again.flushed_end_offset == again.end_offset
        check_look_ups(again)
        twin = Path(name) / "twin"
        twin.mkdir()
        for path in (*folder.glob("*.log"), *folder.glob(CLEANED_OFFSET)):
            shutil.copy(path, twin)
        full = open_log(twin, config=CONFIG)
        assert state(full) == state(again)
        full.close(clean=False)
        again.close(clean=False)


def damage(folder: Path, durable: int, segments: dict, data: st.DataObject) -> None:  # type: ignore[type-arg]
    """Do to the bytes behind the last flush what a power cut may do, and to index files too."""
    for path, segment in segments.items():
        if segment.end_offset <= durable:
            continue
        size = segment.size_bytes
        place = segment_position(folder, path, durable)
        kind = data.draw(st.sampled_from(["cut", "tear", "zero", "garbage"]), label=path.name)
        at = data.draw(st.integers(place, size), label="at")
        content = bytearray(path.read_bytes())
        if kind == "cut":
            del content[at:]
        elif at < size:
            end = data.draw(st.integers(at + 1, size), label="end")
            filler = b"\xa5" if kind == "garbage" else b"\0"
            content[at:end] = filler * (end - at) if kind != "tear" else content[at:end][::-1]
        path.write_bytes(content)
        break
    for path in sorted(folder.glob("*index")):
        if data.draw(st.integers(0, 5), label=path.name) == 0:
            path.write_bytes(path.read_bytes()[: data.draw(st.integers(0, 40), label="kept")])


def segment_position(folder: Path, path: Path, durable: int) -> int:
    """Where `durable` begins in a segment file; 0 when all of it lies behind."""
    for position, found in iter_batches(path.read_bytes()):
        if found.base_offset >= durable:
            return position
    return path.stat().st_size


def check_look_ups(log: PartitionLog) -> None:
    found = stored(log)
    for header in found:
        log._positions.clear()
        for offset in (header.base_offset, header.last_offset):
            result = log.read(Read(offset, 1, log.end_offset))
            assert result.next_offset == header.last_offset + 1
    found = [header for header in found if header.record_count]
    latest = log.max_timestamp_offset()
    if found:
        assert latest is not None
        assert latest.timestamp == max(header.max_timestamp for header in found)
        for target in {header.max_timestamp for header in found}:
            expected = next(h for h in found if h.max_timestamp >= target)
            by_time = log.offset_for_timestamp(target)
            assert by_time is not None
            assert expected.base_offset <= by_time.offset <= expected.last_offset
