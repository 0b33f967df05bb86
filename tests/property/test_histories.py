"""Random lives of one log: whatever restarts, deletions and damages it meets, it ends as a full replay would.

A life is appends, rolls, retention, DeleteRecords, flushes and checkpoints, ended by a clean stop, a kill -9,
a power cut that takes what was not synced, or a failed fdatasync; then perhaps the newest snapshot or an
index is damaged, and the next life begins. The model is every header that the log ever held, deleted ones
included.
"""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.broker.storage.power import PowerDisk
from tests.unit.broker.storage.support import NEVER_ISSUED, NOW_MS, append, batch, open_log, stored
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.producer_state import ProducerRules
from tidelog.broker.storage.producer_table import ProducerEntry
from tidelog.broker.storage.snapshot import snapshot_path, snapshots
from tidelog.protocol.records import BatchHeader, read_batch_header

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=150, retention_bytes=1200)
PRODUCERS = 6

sends = st.tuples(
    st.just("send"),
    st.integers(-1, PRODUCERS - 1),
    st.sampled_from(["next", "next", "next", "next", "again", "bump"]),
    st.integers(1, 3),
)
steps = st.one_of(
    sends,
    sends,
    sends,
    sends,
    sends,
    st.sampled_from([("flush",), ("flush",), ("checkpoint",), ("checkpoint",), ("retention",), ("roll",)]),
    st.tuples(st.just("delete"), st.floats(0.5, 1)),
    st.tuples(
        st.sampled_from(["stop", "kill", "kill", "power", "power", "failed_sync"]),
        st.sampled_from(["nothing", "nothing", "flip", "cut", "unlink", "index"]),
    ),
)


class Lives:
    """A log over several lives, beside the model."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.chance = chance
        self.disk = PowerDisk()
        self.model: list[BatchHeader] = []
        self.last: dict[int, bytes] = {}
        self.log = open_log(folder, config=CONFIG, disk=self.disk)
        self.damaged = 0

    def play(self, step: tuple) -> None:  # type: ignore[type-arg]
        match step:
            case ("send", producer_id, how, count):
                self.send(producer_id, how, count)
            case ("flush",):
                self.flush()
            case ("checkpoint",):
                self.checkpoint()
            case ("retention",):
                self.log.apply_retention(NOW_MS)
            case ("roll",):
                self.log.roll(NOW_MS)
            case ("delete", share):
                self.log.delete_records_before(int(self.log.flushed_end_offset * share))
            case (end, damage):
                self.end(end, damage)
                self.check()

    def send(self, producer_id: int, how: str, count: int) -> None:
        if how == "again" and producer_id in self.last:
            assert append(self.log, self.last[producer_id]).duplicate
            return
        known = next((entry for entry in self.expected() if entry.producer_id == producer_id), None)
        epoch = known.producer_epoch + (how == "bump") if known else 0
        sequence = known.last_sequence + 1 if known and how != "bump" else 0
        data = batch(producer_id, epoch, sequence, count)
        result = append(self.log, data)
        assert not result.duplicate
        self.model.append(read_batch_header(data)._replace(base_offset=result.base_offset))
        if producer_id >= 0:
            self.last[producer_id] = data

    def flush(self) -> None:
        work = self.log.begin_flush()
        if work is not None:
            work.run()
            self.log.finish_flush(work)

    def checkpoint(self) -> None:
        work = self.log.begin_checkpoint()
        if work is not None:
            work.run()
            self.log.finish_checkpoint(work)
        for path in self.log.take_deleted_files():
            self.disk.unlink(path)

    def end(self, how: str, damage: str) -> None:
        log = self.log
        clean, start, durable = how == "stop", log.start_offset, log.flushed_end_offset
        if how == "failed_sync":
            self.fail_to_sync()
            durable = log.flushed_end_offset
        log.close(clean=clean)
        if how == "power":
            self.disk.power_cut(self.chance)
        self.damage(damage)
        self.log = self.open(clean, log.recovery_point, start)
        if how != "power":
            assert self.log.end_offset == log.end_offset
        assert self.log.end_offset >= durable
        self.forget_beyond(self.log.end_offset)

    def fail_to_sync(self) -> None:
        """The partition goes offline; restarted it may count as durable only what the platters hold."""
        self.disk.fails_to_sync = True
        work = self.log.begin_flush()
        if work is not None:
            try:
                work.run()
            except OSError as error:
                self.log.mark_failed(error)
        self.disk.fails_to_sync = False

    def open(self, clean: bool, recovery_point: int, start_offset: int) -> PartitionLog:
        return open_log(
            self.folder,
            config=CONFIG,
            disk=self.disk,
            clean=clean,
            recovery_point=recovery_point,
            start_offset=start_offset,
        )

    def damage(self, how: str) -> None:
        found = snapshots(self.disk, self.folder)
        if how == "index":
            for path in self.folder.glob("*index"):
                path.write_bytes(path.read_bytes()[: self.chance.randint(0, 30)])
        elif how != "nothing" and found:
            path = snapshot_path(self.folder, *found[-1])
            data = bytearray(path.read_bytes())
            data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
            if how == "flip":
                path.write_bytes(data)
            elif how == "cut":
                path.write_bytes(data[: self.chance.randrange(len(data))])
            else:
                path.unlink()

    def forget_beyond(self, end_offset: int) -> None:
        """A power cut took what nobody was told is durable."""
        self.model = [header for header in self.model if header.last_offset < end_offset]
        kept = {(h.producer_id, h.producer_epoch, h.base_sequence) for h in self.model}
        self.last = {
            producer_id: data
            for producer_id, data in self.last.items()
            if (producer_id, (h := read_batch_header(data)).producer_epoch, h.base_sequence) in kept
        }

    def expected(self) -> list[ProducerEntry]:
        machine = ProducerStates(ProducerRules(), lambda: NEVER_ISSUED)
        for header in self.model:
            machine.apply(header, header.base_offset, 0)
        return list(machine.entries())

    def check(self) -> None:
        log = self.log
        assert [entry._replace(last_append_ms=0) for entry in log.producers.entries()] == self.expected()
        # A log without producers deletes segments with one snapshot, which may be the damaged one.
        assert log.recovery.producers_unknown_before == -1 or not self.expected()
        found = [(h.base_offset, h.producer_id, h.producer_epoch, h.base_sequence) for h in stored(log)]
        assert found == [
            (h.base_offset, h.producer_id, h.producer_epoch, h.base_sequence)
            for h in self.model
            if h.last_offset >= log.start_offset
        ]


_DAMAGED_TWICE = [
    *(("send", 0, "next", 1), ("roll",), ("send", 0, "bump", 1), ("flush",), ("delete", 1.0)),
    *(("checkpoint",), ("stop", "flip"), ("kill", "flip")),
]


@example(_DAMAGED_TWICE, random.Random(0))
@given(st.lists(steps, min_size=10, max_size=80), st.randoms(use_true_random=False))
def test_every_history_ends_in_the_state_of_a_full_replay(
    history: list[tuple],  # type: ignore[type-arg]
    chance: random.Random,
) -> None:
    with TemporaryDirectory() as name:
        lives = Lives(Path(name) / "topic-0", chance)
        for step in history:
            lives.play(step)
        lives.end("kill", "nothing")
        lives.check()
        # What the restarted log counts as durable is so: the power may go at once.
        lives.end("power", "nothing")
        lives.check()
        lives.log.close(clean=False)
