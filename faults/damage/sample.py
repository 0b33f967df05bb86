"""Data folders to damage: written by a real broker, stopped in three ways, with every batch in them known.

Owns the content of a sample: several segments per partition, three producers, transactions of a fourth,
snapshots, checkpoints, some records deleted by request. Invariants: a batch is in `Sample.batches` once it
was acknowledged, with its bytes as they are in the file, and a marker in `Sample.markers`; nothing else was
sent.
"""

import asyncio
import random
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from faults.checker import Mark
from faults.marks import record_of
from faults.process import BrokerProcess, BrokerProcessError
from faults.wire import Wire, records_of
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import RecordBatchBuilder, iter_batches
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import NO_SEQUENCE

TOPICS: Final[Mapping[str, int]] = {"steady": 6, "trimmed": 6, "transactional": 2, "compacted": 4}
TRIMMED: Final = "trimmed"
"""Of this topic's partitions the first records are deleted by request."""
TRANSACTIONAL: Final = "transactional"
"""Each batch of this topic is one of a transaction over all its partitions."""
COMPACTED: Final = "compacted"
"""Between the batches of this topic lie some that a clean removes."""
CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    COMPACTED: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
}
PRODUCERS: Final = 3
SETTINGS: Final[Mapping[str, object]] = {
    "log.segment.bytes": 4096,
    "log.index.interval.bytes": 600,
    "log.cleaner.backoff.ms": 20,
    "log.retention.ms": -1,
    "log.retention.check.interval.ms": 50,
    "log.flush.offset.checkpoint.interval.ms": 100,
    "auto.create.topics.enable": "false",
}
_ROUNDS: Final = 24
_TRIM_SECONDS: Final = 20.0
_TRIM_PAUSE_S: Final = 0.1
_PATIENCE_SECONDS: Final = 60.0
_PAUSE_S: Final = 0.01
_SUPERSEDED_BYTES: Final = 500
_BOOT_ID: Final = ".boot_id"
_OF_CLEANS: Final = ("cleaner-offset-checkpoint", "cleaned-offset-checkpoint")

TopicPartition = tuple[str, int]


class Stop(StrEnum):
    """How the broker of a sample ended."""

    CLEAN = "stopped"
    KILLED = "killed"
    OTHER_BOOT = "killed, the machine started again since"


class SentBatch(NamedTuple):
    """A batch that was acknowledged. `data` is what was sent; the broker writes its offset into it."""

    offset: int
    record_count: int
    max_timestamp: int
    producer_id: int
    base_sequence: int
    data: bytes
    is_aborted: bool = False

    @property
    def end_offset(self) -> int:
        return self.offset + self.record_count

    @property
    def content(self) -> bytes:
        """What never changes: the bytes after offset, length and leader epoch."""
        return self.data[16:]


@dataclass
class Sample:
    """A data folder, and what must be in it."""

    folder: Path
    stop: Stop
    batches: dict[TopicPartition, list[SentBatch]] = field(default_factory=dict)
    markers: dict[TopicPartition, list[SentBatch]] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    """Where each log starts."""
    superseded: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Offsets that a clean may remove."""
    producer_ids: set[int] = field(default_factory=set)
    """All that were ever given."""

    def copy_to(self, folder: Path) -> Path:
        """A folder with the same content, to be damaged."""
        shutil.rmtree(folder, ignore_errors=True)
        return Path(shutil.copytree(self.folder, folder))


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
        while not (_segments_are_gone(sample) and _is_cleaned(sample)) and time.monotonic() < deadline:
            # Segments go once two snapshots cover their producers, and a snapshot wants news.
            await writing.write_a_batch_everywhere()
            await asyncio.sleep(_TRIM_PAUSE_S)
        await writing.write_a_batch_everywhere()
        await writing.find_markers()
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
        self._transactional: dict[str, object] = {}

    async def begin(self) -> None:
        for name, partitions in TOPICS.items():
            _expect_none(await self._wire.create_topic(name, partitions, CONFIGS.get(name)), f"create {name}")
            for partition in range(partitions):
                self._sample.batches[name, partition] = []
                self._sample.starts[name, partition] = 0
        for _ in range(PRODUCERS):
            code, producer_id = await self._wire.new_producer_id()
            _expect_none(code, "InitProducerId")
            self._producer_ids.append(producer_id)
        await self._ask(ApiKey.FIND_COORDINATOR, 3, {"key": TRANSACTIONAL, "key_type": 1})
        wanted = {"transactional_id": TRANSACTIONAL, "transaction_timeout_ms": 60_000}
        given = await self._ask(ApiKey.INIT_PRODUCER_ID, 4, wanted)
        self._producer_ids.append(given.producer_id)
        self._transactional = {
            "transactional_id": TRANSACTIONAL,
            "producer_id": given.producer_id,
            "producer_epoch": given.producer_epoch,
        }
        self._sample.producer_ids.update(self._producer_ids)

    async def _ask(self, key: ApiKey, version: int, values: Mapping[str, object]) -> Any:
        """The answer without an error; the coordinator may need some time."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answer = await self._wire.ask(key, version, values)
            code = _code_of(answer)
            if not ErrorCode(code).retriable or time.monotonic() > deadline:
                _expect_none(code, key.name)
                return answer
            await asyncio.sleep(_PAUSE_S)

    async def write_a_batch_everywhere(self) -> None:
        """One batch to each partition, of a producer by chance, and a transaction."""
        await self._write_a_transaction()
        await self._write_what_a_clean_removes()
        for topic, partitions in TOPICS.items():
            if topic == TRANSACTIONAL:
                continue
            made = {partition: self._batch((topic, partition)) for partition in range(partitions)}
            results = await self._wire.append(topic, {index: batch.data for index, batch in made.items()})
            for partition, batch in made.items():
                _expect_none(results[partition].error_code, f"produce to {topic}-{partition}")
                stored = batch._replace(offset=results[partition].base_offset)
                self._sample.batches[topic, partition].append(stored)

    async def _write_what_a_clean_removes(self) -> None:
        """One batch of the same key to each partition. Its timestamp finds no batch by time."""
        builder = RecordBatchBuilder()
        builder.append(0, b"again", b"x" * _SUPERSEDED_BYTES)
        indexes = range(TOPICS[COMPACTED])
        results = await self._wire.append(COMPACTED, dict.fromkeys(indexes, bytes(builder.build())))
        for index in indexes:
            _expect_none(results[index].error_code, f"produce to {COMPACTED}-{index}")
            self._sample.superseded.setdefault((COMPACTED, index), set()).add(results[index].base_offset)

    async def _write_a_transaction(self) -> None:
        indexes = range(TOPICS[TRANSACTIONAL])
        named = {f"v3_and_below_{name}": value for name, value in self._transactional.items()}
        topics = [{"name": TRANSACTIONAL, "partitions": list(indexes)}]
        await self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, {**named, "v3_and_below_topics": topics})
        is_commit = self._rng.choice((True, False))
        made = {index: self._batch((TRANSACTIONAL, index), PRODUCERS) for index in indexes}
        data = {index: batch.data for index, batch in made.items()}
        results = await self._wire.append(TRANSACTIONAL, data, transactional_id=TRANSACTIONAL)
        for index, batch in made.items():
            _expect_none(results[index].error_code, f"produce to {TRANSACTIONAL}-{index}")
            stored = batch._replace(offset=results[index].base_offset, is_aborted=not is_commit)
            self._sample.batches[TRANSACTIONAL, index].append(stored)
        await self._ask(ApiKey.END_TXN, 3, {**self._transactional, "committed": is_commit})

    async def find_markers(self) -> None:
        """Note the markers, once the last transaction has one in each partition."""
        for index in range(TOPICS[TRANSACTIONAL]):
            key, offset = (TRANSACTIONAL, index), 0
            markers: list[SentBatch] = []
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while len(markers) < len(self._sample.batches[key]):
                if time.monotonic() > deadline:
                    raise BrokerProcessError(f"{key} has {len(markers)} markers only")
                data = records_of(await self._wire.read(*key, offset))
                for position, header in iter_batches(data):
                    content = data[position : position + header.size_bytes]
                    offset = header.last_offset + 1
                    if header.is_control:
                        named = (header.base_offset, 1, header.max_timestamp, header.producer_id)
                        markers.append(SentBatch(*named, NO_SEQUENCE, content))
            self._sample.markers[key] = markers

    def _batch(self, key: TopicPartition, writer: int | None = None) -> SentBatch:
        if writer is None:
            writer = self._rng.randrange(PRODUCERS)
        count = self._rng.randint(1, 4)
        first = self._sequences.get((key, writer), 0)
        self._sequences[key, writer] = first + count
        return batch_of(
            *(self._producer_ids[writer], writer, key[1], first, count, self._now_ms + first),
            is_transactional=writer == PRODUCERS,
        )

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
    producer_id: int,
    writer: int,
    partition: int,
    first_sequence: int,
    count: int,
    timestamp_ms: int,
    *,
    is_transactional: bool = False,
) -> SentBatch:
    """A batch whose records say who they are; its counters are its sequence numbers."""
    builder = RecordBatchBuilder()
    for number in range(count):
        key, value = record_of(Mark(writer, partition, first_sequence + number))
        builder.append(timestamp_ms + number, key, value)
    data = bytes(
        builder.build(
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=first_sequence,
            is_transactional=is_transactional,
        )
    )
    ((_, header),) = iter_batches(data)
    return SentBatch(-1, count, header.max_timestamp, producer_id, first_sequence, data)


def _code_of(answer: Any) -> int:
    """The error code of an answer; of partitions that were added, the first one that is one."""
    topics = getattr(answer, "results_by_topic_v3_and_below", None)
    if topics is None:
        return int(answer.error_code)
    codes = [each.partition_error_code for topic in topics for each in topic.results_by_partition]
    return int(next(filter(None, codes), 0))


def _expect_none(code: int, what: str) -> None:
    if code:
        raise BrokerProcessError(f"{what} was answered with error {code} on a good disk")


def _segments_are_gone(sample: Sample) -> bool:
    """Whether retention has taken the first segment of every trimmed partition."""
    folders = [sample.folder / f"{TRIMMED}-{partition}" for partition in range(TOPICS[TRIMMED])]
    return not any((folder / f"{0:020d}.log").exists() for folder in folders)


def _is_cleaned(sample: Sample) -> bool:
    """Whether a clean has changed each compacted partition."""
    folders = [sample.folder / f"{COMPACTED}-{partition}" for partition in range(TOPICS[COMPACTED])]
    return all((folder / name).exists() for folder in folders for name in _OF_CLEANS)
