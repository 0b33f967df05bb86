"""What is stored, read in three ways: by a consumer at the end, from the segment files, and by an early
consumer.

Owns the readers. They return facts for `faults.checker` and judge only whether bytes can be read. The files
are read by `protocol` alone, without the broker's code, because that code is under test.

`read_files` blocks and needs a stopped broker.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Final

from faults.checker import Finding, Kind, Stored
from faults.marks import mark_of
from tidelog.client import BrokerUnavailableError, ClientError, Consumer, ConsumerRecord, TopicPartition
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import BatchHeader, batch_crc_is_valid, decode_batch, iter_batches

_POLL_MS = 200
_RETRY_S = 0.05
_REQUEST_MS = 10_000

Logs = dict[int, list[Stored]]
Identify = Callable[[object, object], Hashable]
"""The identity of the record with this key and value; None if no writer makes such a record."""
COMMITTED: Final = "read_committed"
UNCOMMITTED: Final = "read_uncommitted"


async def read_all(
    bootstrap_servers: str,
    topic: str,
    partitions: int,
    timeout_s: float,
    identify: Identify = mark_of,
    isolation_level: str = UNCOMMITTED,
) -> Logs:
    """Every record of every partition up to its present end. Raises ClientError, TimeoutError."""
    logs: Logs = {partition: [] for partition in range(partitions)}
    async with asyncio.timeout(timeout_s):
        async for found in read_to_end(bootstrap_servers, topic, partitions, isolation_level):
            _take(logs, found, identify)
    return logs


async def read_to_end(
    bootstrap_servers: str, topic: str, partitions: int, isolation_level: str = UNCOMMITTED
) -> AsyncIterator[Mapping[TopicPartition, Sequence[ConsumerRecord]]]:
    """The records of every partition up to its present end, some at a time. Raises ClientError."""
    keys = [TopicPartition(topic, partition) for partition in range(partitions)]
    async with Consumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", isolation_level=isolation_level
    ) as consumer:
        consumer.assign(keys)
        ends = await consumer.end_offsets(keys)
        # A marker may be last, so the last record does not show the end.
        while [key for key in keys if await consumer.position(key) < ends[key]]:
            yield await consumer.getmany(timeout_ms=_POLL_MS)


def _take(logs: Logs, found: Mapping[TopicPartition, Sequence[ConsumerRecord]], identify: Identify) -> None:
    for key, records in found.items():
        logs[key.partition] += [Stored(each.offset, identify(each.key, each.value)) for each in records]


class Follower:
    """A consumer that reads along through all faults; `logs` is what it was given, in its order."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        identify: Identify = mark_of,
        isolation_level: str = UNCOMMITTED,
        client_rack: str | None = None,
    ) -> None:
        self.logs: Logs = {partition: [] for partition in range(partitions)}
        self._client_rack = client_rack
        self.errors: dict[str, int] = {}
        self._bootstrap_servers = bootstrap_servers
        self._identify = identify
        self._isolation_level = isolation_level
        self._keys = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._reading = asyncio.create_task(self._read())

    async def stop(self, at_end_of: Logs | None = None) -> None:
        """Stop; with `at_end_of` only once it has read as far. ClientError and others if it broke."""
        if self._reading is None:
            return
        while at_end_of is not None and not self._reading.done():
            if all(len(self.logs[partition]) >= len(log) for partition, log in at_end_of.items()):
                break
            await asyncio.sleep(_RETRY_S)
        if self._reading.done():
            self._reading.result()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        consumer = await self._started()
        try:
            while True:
                try:
                    found = await consumer.getmany(timeout_ms=_POLL_MS)
                except ClientError as error:
                    await self._note(error)
                    continue
                _take(self.logs, found, self._identify)
        finally:
            await consumer.stop()

    async def _started(self) -> Consumer:
        """A consumer whose start the network did not prevent."""
        while True:
            consumer = Consumer(
                bootstrap_servers=self._bootstrap_servers,
                auto_offset_reset="earliest",
                isolation_level=self._isolation_level,
                request_timeout_ms=_REQUEST_MS,
                client_rack=self._client_rack,
            )
            consumer.assign(self._keys)
            try:
                await consumer.start()
                return consumer
            except BrokerUnavailableError as error:
                await self._note(error)

    async def _note(self, error: ClientError) -> None:
        name = type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1
        await asyncio.sleep(_RETRY_S)


class FileReading:
    """What the segment files of one partition hold."""

    def __init__(self) -> None:
        self.records: list[Stored] = []
        self.batches: list[BatchHeader] = []
        self.findings: list[Finding] = []
        self.segments = 0


def segment_files(data_dir: Path, topic: str, partition: int) -> Sequence[Path]:
    """The partition's segments in the order of their offsets."""
    return sorted((data_dir / f"{topic}-{partition}").glob("*.log"))


def read_files(data_dir: Path, topic: str, partition: int) -> FileReading:
    """All batches of all segments, with every CRC checked and no byte left over. Blocking."""
    reading = FileReading()
    for path in segment_files(data_dir, topic, partition):
        reading.segments += 1
        data = path.read_bytes()
        end = 0
        try:
            for position, header in iter_batches(data):
                if not batch_crc_is_valid(data, header, position):
                    raise ProtocolError(f"batch at byte {position}: wrong CRC")
                records = decode_batch(data, position, check_crc=False)
                reading.records += [Stored(each.offset, mark_of(each.key, each.value)) for each in records]
                reading.batches.append(header)
                end = position + header.size_bytes
            if end != len(data):
                raise ProtocolError(f"{len(data) - end} bytes after the last batch are not a batch")
        except ProtocolError as error:
            reading.findings.append(Finding(Kind.UNREADABLE, f"{path.parent.name}/{path.name}: {error}"))
    return reading
