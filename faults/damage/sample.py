"""Data folders to damage: written by a real broker, stopped in three ways, and every batch in them known.

Owns what lies in a sample: several segments a partition, three producers, snapshots, checkpoints, some
records deleted by request. Invariants: a batch is in `Sample.batches` once it was acknowledged, with its
bytes as they are in the file; nothing else was sent.
"""

import asyncio
import random
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from faults.checker import Mark
from faults.marks import record_of
from faults.process import BrokerProcess, BrokerProcessError
from faults.wire import Wire
from tidelog.protocol.records import RecordBatchBuilder, iter_batches

TOPICS: Final[Mapping[str, int]] = {"steady": 6, "trimmed": 6}
TRIMMED: Final = "trimmed"
"""Of this topic's partitions the first records are deleted by request."""
PRODUCERS: Final = 3
SETTINGS: Final[Mapping[str, object]] = {
    "log.segment.bytes": 4096,
    "log.index.interval.bytes": 600,
    "log.retention.ms": -1,
    "log.retention.check.interval.ms": 50,
    "log.flush.offset.checkpoint.interval.ms": 100,
    "auto.create.topics.enable": "false",
}
_ROUNDS: Final = 24
_TRIM_SECONDS: Final = 20.0
_TRIM_PAUSE_S: Final = 0.1
_BOOT_ID: Final = ".boot_id"

TopicPartition = tuple[str, int]


class Stop(StrEnum):
    """How the broker of a sample ended."""

    CLEAN = "stopped"
    KILLED = "killed"
    OTHER_BOOT = "killed, the machine started anew since"


class SentBatch(NamedTuple):
    """A batch that was acknowledged. `data` is what was sent; the broker writes its offset into it."""

    offset: int
    record_count: int
    max_timestamp: int
    producer_id: int
    base_sequence: int
    data: bytes

    @property
    def end_offset(self) -> int:
        return self.offset + self.record_count

    @property
    def content(self) -> bytes:
        """What never changes: the bytes behind offset, length and leader epoch."""
        return self.data[16:]


@dataclass
class Sample:
    """A data folder, and what must be in it."""

    folder: Path
    stop: Stop
    batches: dict[TopicPartition, list[SentBatch]] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    """Where each log starts."""
    producer_ids: set[int] = field(default_factory=set)
    """All that were ever given."""

    def copy_to(self, folder: Path) -> Path:
        """A folder with the same content, to be damaged."""
        shutil.rmtree(folder, ignore_errors=True)
        return Path(shutil.copytree(self.folder, folder))

    def end(self, key: TopicPartition) -> int:
        return self.batches[key][-1].end_offset


async def make_sample(folder: Path, stop: Stop, rng: random.Random) -> Sample:
    """Write one. BrokerProcessError when the broker does not do as it should on a good disk."""
    sample = Sample(folder, stop)
    async with BrokerProcess(folder, settings=SETTINGS) as broker, Wire.connected(broker.port) as wire:
        writing = _Writing(wire, sample, rng)
        await writing.begin()
        for _ in range(_ROUNDS):
            await writing.write_a_batch_everywhere()
        await writing.trim()
        deadline = time.monotonic() + _TRIM_SECONDS
        while not _segments_are_gone(sample) and time.monotonic() < deadline:
            # Segments go once two snapshots cover their producers, and a snapshot wants news.
            await writing.write_a_batch_everywhere()
            await asyncio.sleep(_TRIM_PAUSE_S)
        await writing.write_a_batch_everywhere()
        if stop is Stop.CLEAN:
            if exit_code := await broker.terminate():
                raise BrokerProcessError(f"the broker ended with exit code {exit_code} after SIGTERM")
        else:
            await broker.kill_9()
    if stop is Stop.OTHER_BOOT:
        (folder / _BOOT_ID).write_text(str(uuid4()))
    return sample


class _Writing:
    """The rounds of batches in which a sample is written."""

    def __init__(self, wire: Wire, sample: Sample, rng: random.Random) -> None:
        self._wire = wire
        self._sample = sample
        self._rng = rng
        self._producer_ids: list[int] = []
        self._sequences: dict[tuple[TopicPartition, int], int] = {}
        self._now_ms = time.time_ns() // 1_000_000

    async def begin(self) -> None:
        for name, partitions in TOPICS.items():
            _expect_none(await self._wire.create_topic(name, partitions), f"create {name}")
            for partition in range(partitions):
                self._sample.batches[name, partition] = []
                self._sample.starts[name, partition] = 0
        for _ in range(PRODUCERS):
            code, producer_id = await self._wire.new_producer_id()
            _expect_none(code, "InitProducerId")
            self._producer_ids.append(producer_id)
        self._sample.producer_ids.update(self._producer_ids)

    async def write_a_batch_everywhere(self) -> None:
        """One batch to each partition, of a producer by chance."""
        for topic, partitions in TOPICS.items():
            made = {partition: self._batch((topic, partition)) for partition in range(partitions)}
            results = await self._wire.append(topic, {index: batch.data for index, batch in made.items()})
            for partition, batch in made.items():
                _expect_none(results[partition].error_code, f"produce to {topic}-{partition}")
                stored = batch._replace(offset=results[partition].base_offset)
                self._sample.batches[topic, partition].append(stored)

    def _batch(self, key: TopicPartition) -> SentBatch:
        writer = self._rng.randrange(PRODUCERS)
        count = self._rng.randint(1, 4)
        first = self._sequences.get((key, writer), 0)
        self._sequences[key, writer] = first + count
        return batch_of(self._producer_ids[writer], writer, key[1], first, count, self._now_ms + first)

    async def trim(self) -> None:
        """Delete the first records of a topic; retention takes the segments that they leave empty."""
        before = {
            partition: self._rng.choice(self._sample.batches[TRIMMED, partition][_ROUNDS // 2 :]).offset
            for partition in range(TOPICS[TRIMMED])
        }
        for code in await self._wire.delete_records(TRIMMED, before):
            _expect_none(code, "DeleteRecords")
        self._sample.starts |= {(TRIMMED, partition): offset for partition, offset in before.items()}


def batch_of(
    producer_id: int, writer: int, partition: int, first_sequence: int, count: int, timestamp_ms: int
) -> SentBatch:
    """A batch whose records say who they are; its counters are its sequence numbers."""
    builder = RecordBatchBuilder()
    for number in range(count):
        key, value = record_of(Mark(writer, partition, first_sequence + number))
        builder.append(timestamp_ms + number, key, value)
    data = bytes(builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=first_sequence))
    ((_, header),) = iter_batches(data)
    return SentBatch(-1, count, header.max_timestamp, producer_id, first_sequence, data)


def _expect_none(code: int, what: str) -> None:
    if code:
        raise BrokerProcessError(f"{what} was answered with error {code} on a good disk")


def _segments_are_gone(sample: Sample) -> bool:
    """Whether retention has taken the first segment of every trimmed partition."""
    folders = [sample.folder / f"{TRIMMED}-{partition}" for partition in range(TOPICS[TRIMMED])]
    return not any((folder / f"{0:020d}.log").exists() for folder in folders)
