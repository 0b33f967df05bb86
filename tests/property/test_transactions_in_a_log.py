"""Random histories of transactions on one log, over restarts, power cuts, truncation and deletion: the last
stable offset and the aborted transactions are those of a model of a few lines.

A power cut takes from the files what was not synced, in pieces. The model keeps the batches that the log
still holds.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.broker.storage.power import PowerDisk
from tests.unit.broker.storage.support import (
    append,
    append_own,
    append_transactional,
    batch,
    checkpoint,
    flush,
    marker,
    open_log,
    outcome,
)
from tests.unit.broker.storage.verification.test_transactions import found_in
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.log_types import AppendResult, Read
from tidelog.broker.storage.truncation import apply_cut, find_cut
from tidelog.protocol.errors import ErrorCode

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)
NONE = 1 << 62


class Event(NamedTuple):
    """One batch: `kind` is data of a transaction, plain data, commit or abort."""

    kind: str
    producer_id: int
    offset: int
    end: int


@dataclass
class Model:
    """What a log of these batches says, found by reading all of them."""

    events: list[Event] = field(default_factory=list)

    def transactions(self) -> tuple[list[tuple[int, int, int]], dict[int, int], list[tuple[int, int]]]:
        """Aborted (producer, first, marker), open (producer -> first), ended (first, marker)."""
        is_open: dict[int, int] = {}
        aborted, ended = [], []
        for event in self.events:
            if event.kind == "data":
                is_open.setdefault(event.producer_id, event.offset)
            elif event.kind != "plain" and event.producer_id in is_open:
                first = is_open.pop(event.producer_id)
                ended.append((first, event.offset))
                if event.kind == "abort":
                    aborted.append((event.producer_id, first, event.offset))
        return aborted, is_open, ended

    def last_stable(self, start: int, high_watermark: int) -> int:
        _, is_open, ended = self.transactions()
        unstable = [*is_open.values(), *(first for first, marker in ended if marker >= high_watermark)]
        return min(high_watermark, max(min(unstable, default=NONE), start))

    def aborted_in(self, offset: int, upper: int) -> set[tuple[int, int]]:
        aborted, _, _ = self.transactions()
        return {(producer, first) for producer, first, end in aborted if end >= offset and first < upper}


@dataclass
class Life:
    """A log, its model, and the disk below both."""

    folder: Path
    disk: PowerDisk = field(default_factory=PowerDisk)
    model: Model = field(default_factory=Model)
    sequences: dict[int, int] = field(default_factory=dict)
    stable: int = 0

    def __post_init__(self) -> None:
        self.log = open_log(self.folder, config=CONFIG, disk=self.disk)

    def play(self, step: tuple) -> None:  # type: ignore[type-arg]
        match step:
            case ("data" | "plain" as kind, producer_id, count):
                self.send(kind, producer_id, count)
            case ("commit" | "abort" as kind, producer_id):
                offset = append_own(self.log, marker(producer_id, commits=kind == "commit")).base_offset
                self.model.events.append(Event(kind, producer_id, offset, offset + 1))
            case ("again", producer_id):
                self.send_again(producer_id)
            case ("flush",):
                flush(self.log)
            case ("checkpoint",):
                checkpoint(self.log)
            case ("snapshot",):
                self.log.take_snapshot()
            case ("delete", share):
                self.log.delete_records_before(int(self.log.flushed_end_offset * share))
            case ("restart", clean):
                self.restart(clean=clean)
            case ("cut", seed):
                self.disk.power_cut(random.Random(seed))
                self.restart(clean=False)
            case ("truncate", share):
                self.truncate(share)

    def send(self, kind: str, producer_id: int, count: int) -> None:
        _, is_open, _ = self.model.transactions()
        sequence = self.sequences.get(producer_id, 0)
        if kind == "plain":
            data = batch(producer_id, 0, sequence, count)
            if producer_id in is_open:
                assert outcome(append, self.log, data) is ErrorCode.INVALID_TXN_STATE
                return
            offset = append(self.log, data).base_offset
        else:
            offset = append_transactional(self.log, producer_id, sequence, count).base_offset
        self.sequences[producer_id] = sequence + count
        self.model.events.append(Event(kind, producer_id, offset, offset + count))

    def send_again(self, producer_id: int) -> None:
        """The last batch of a transaction: what an ended one has, nobody is told to be stored."""
        events = [each for each in self.model.events if each.producer_id == producer_id]
        batches = [each for each in events if each.kind in ("data", "plain")]
        if not batches or batches[-1].kind == "plain":
            return
        count = batches[-1].end - batches[-1].offset
        sequence = self.sequences[producer_id] - count
        found = outcome(append_transactional, self.log, producer_id, sequence, count)
        if events[-1].kind == "data":
            assert isinstance(found, AppendResult)
            assert found.base_offset == batches[-1].offset
        else:
            assert found is ErrorCode.UNKNOWN_PRODUCER_ID

    def restart(self, *, clean: bool, point: int | None = None) -> None:
        log = self.log
        log.close(clean)
        self.log = open_log(
            self.folder,
            config=CONFIG,
            disk=self.disk,
            clean=clean,
            recovery_point=log.recovery_point if point is None else point,
            start_offset=log.start_offset,
        )
        self.forget_from(self.log.end_offset)

    def truncate(self, share: float) -> None:
        low = self.log.start_offset
        offset = low + int((self.log.end_offset - low) * share)
        self.log.close(clean=False)
        found = find_cut(self.disk, self.folder, offset)
        apply_cut(self.disk, found)
        self.restart(clean=False, point=min(self.log.recovery_point, found.end_offset))
        self.stable = 0

    def forget_from(self, end_offset: int) -> None:
        self.model.events = [event for event in self.model.events if event.end <= end_offset]
        for producer_id in self.sequences:
            self.sequences[producer_id] = sum(
                event.end - event.offset
                for event in self.model.events
                if event.producer_id == producer_id and event.kind in ("data", "plain")
            )

    def check(self, chance: random.Random) -> None:
        log, model = self.log, self.model
        high_watermark = log.flushed_end_offset
        log.transactions.settle(high_watermark)
        stable = min(high_watermark, max(log.transactions.first_unstable, log.start_offset))
        assert stable == model.last_stable(log.start_offset, high_watermark)
        assert stable >= self.stable, "the last stable offset went back"
        self.stable = stable
        _, is_open, _ = model.transactions()
        assert {
            entry.producer_id: entry.current_txn_start_offset
            for entry in log.producers.entries()
            if entry.current_txn_start_offset >= 0
        } == is_open
        offset = chance.randint(log.start_offset, log.end_offset)
        found = log.read(Read(offset, chance.randint(1, 2000), log.end_offset))
        if found.records:
            answer = log.aborted_transactions(offset, found.next_offset)
            assert len(set(answer)) == len(answer)
            assert set(answer) == model.aborted_in(offset, found.next_offset)


producers = st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.sampled_from(["data", "data", "plain"]), producers, st.integers(1, 3)),
    st.tuples(st.sampled_from(["commit", "abort", "abort"]), producers),
    st.tuples(st.just("again"), producers),
    st.sampled_from([("flush",), ("flush",), ("checkpoint",), ("snapshot",)]),
    st.tuples(st.just("restart"), st.booleans()),
    st.tuples(st.just("cut"), st.integers(0, 1 << 16)),
    st.tuples(st.sampled_from(["delete", "truncate"]), st.floats(0, 1)),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(steps, min_size=10, max_size=60), st.integers(0, 1 << 16))
def test_stable_ends_and_aborted_transactions_are_those_of_the_model(history: list[tuple], seed: int) -> None:  # type: ignore[type-arg]
    with TemporaryDirectory() as name:
        life, chance = Life(Path(name) / "topic-0"), random.Random(seed)
        for step in history:
            life.play(step)
            life.check(chance)
        life.log.close(clean=True)
        assert not [line for line in found_in(life.folder) if line.startswith("damage")]
