"""The consumer: it reads the records of assigned partitions, in offset order within each.

Owns: the public interface. `assignment` chooses the partition to read next, `fetcher` fetches ahead.
Invariants:
- a position moves only in the step that returns the record. A read that is cancelled or times out moves
  nothing. No record is skipped or returned twice;
- within a partition records come in offset order. Partitions take turns: one batch per turn if records are
  read one by one, else `max_records` or all that was fetched;
- an error of one partition is raised after the records fetched before it were read. It is raised again
  whenever no other partition has records, until a seek. The other partitions stay readable.
All calls must come from one event loop.
Source: aiokafka's AIOKafkaConsumer for names. There are no groups: the application assigns partitions.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from time import monotonic
from types import TracebackType
from typing import Any, Self, Unpack

from tidelog.client.assignment import Assignment
from tidelog.client.cluster import Cluster
from tidelog.client.cluster_config import ClusterConfig, take_cluster
from tidelog.client.consumer_config import RESET_TIMESTAMPS, ConsumerConfig, ConsumerSettings
from tidelog.client.conversion import Deserializer, converted
from tidelog.client.errors import ClientClosedError, NoOffsetError
from tidelog.client.fetcher import Fetcher
from tidelog.client.offset_lookup import EARLIEST, LATEST, edge_offsets, look_up_offsets
from tidelog.client.partition_reader import PartitionReader
from tidelog.client.signatures import shows_settings
from tidelog.client.types import ConsumerRecord, OffsetAndTimestamp, TopicPartition

__all__ = ["Consumer"]

_ALL = 1 << 30
_CLIENT_ID = "tidelog-consumer"
_NONE = (None, None)


@shows_settings(ClusterConfig, ConsumerConfig, client_id=_CLIENT_ID)
class Consumer:
    """`async with Consumer("topic", bootstrap_servers="host:port") as consumer:`, `async for record in
    consumer:`

    If topics are given, all their partitions are assigned at the start; else call `assign`. `cluster` holds
    the connection settings as one value; keywords override it. Sizes are in bytes, times in milliseconds.
    `ClusterConfig` and `ConsumerConfig` declare the settings.
    """

    def __init__(
        self,
        *topics: str,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        own: dict[str, Any] = {**settings}
        self._topics = topics
        self._cluster = Cluster(take_cluster(own, client_id=_CLIENT_ID))
        self._config = ConsumerConfig(**own)
        self._deserializers = key_deserializer, value_deserializer
        self._assignment = Assignment()
        self._readers = self._assignment.readers
        self._waiters: list[asyncio.Future[None]] = []
        self._has_news = False
        self._fetcher: Fetcher | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Connect, and assign the partitions of the given topics. Raises BrokerUnavailableError or
        UnknownTopicError."""
        if self._is_closed:
            raise ClientClosedError("a consumer cannot be started again")
        if self._fetcher is not None:
            return
        await self._cluster.start()
        try:
            infos = [await self._cluster.topic(name) for name in self._topics]
        except BaseException:
            await self._cluster.close()
            raise
        self._fetcher = Fetcher(self._config, self._cluster, self._readers, self._on_data)
        if infos:
            self.assign(
                [TopicPartition(info.name, each.partition) for info in infos for each in info.partitions]
            )
        elif self._readers:
            self._watch()

    async def stop(self) -> None:
        """Close. Waiting reads raise ClientClosedError, iterations end. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._on_data()
        if self._fetcher is not None:
            await self._fetcher.close()
        await self._cluster.close()

    close = stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # Assignment and positions

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these. Partitions that stay assigned keep their position and their fetched records."""
        wanted = [TopicPartition(*key) for key in partitions]
        self._assignment.replace(self._readers.get(key) or self._new_reader(key) for key in wanted)
        self._watch()

    def _new_reader(self, key: TopicPartition) -> PartitionReader:
        reader = PartitionReader(key, check_crc=self._config.check_crcs)
        policy = RESET_TIMESTAMPS[self._config.auto_offset_reset]
        if policy is None:
            reader.fail(NoOffsetError(f"{key.topic}-{key.partition} has no position"))
        else:
            reader.reset(policy)
        return reader

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        return set(self._readers)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`. Raises ValueError if it is negative or the partition is not assigned."""
        if offset < 0:
            raise ValueError(f"offset is {offset}, expected 0 or more")
        self._assignment.reader(partition).seek(offset)
        self._changed()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record of these partitions, or of all assigned ones."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue at the end of these partitions, or of all assigned ones: only new records are read."""
        self._reset(partitions, LATEST)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to read. Raises UnknownTopicError and others, and NoOffsetError if
        auto_offset_reset is "none" and no position was set."""
        reader = self._assignment.reader(partition)
        while reader.position is None:
            self._require_open()
            if reader.error is not None:
                raise reader.error
            await self._wait(None)
        return reader.position

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop reading and fetching these partitions. Records that were fetched already are kept."""
        for key in partitions:
            self._assignment.reader(key).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`."""
        for key in partitions:
            self._assignment.reader(key).is_paused = False
        self._on_data()
        self._changed()

    def paused(self) -> set[TopicPartition]:
        return {key for key, reader in self._readers.items() if reader.is_paused}

    def highwater(self, partition: TopicPartition) -> int | None:
        """The partition's high watermark as of the last fetch, None before the first."""
        mark = self._assignment.reader(partition).high_watermark
        return None if mark < 0 else mark

    # Offsets of any partition, assigned or not

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each log holds."""
        self._require_open()
        return await edge_offsets(self._cluster, partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that the next record of each will get."""
        self._require_open()
        return await edge_offsets(self._cluster, partitions, LATEST)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each timestamp (milliseconds); None if all records are older."""
        self._require_open()
        if any(timestamp < 0 for timestamp in timestamps.values()):
            raise ValueError("timestamps must be 0 or more")
        found = await look_up_offsets(self._cluster, timestamps)
        return {key: place if place.offset >= 0 else None for key, place in found.items()}

    def metrics(self) -> dict[str, float]:
        """The metrics of this client by Kafka's names. `client.metrics` can also report them regularly."""
        return self._cluster.metrics.snapshot(monotonic())

    async def partitions_for_topic(self, topic: str) -> set[int]:
        """The topic's partitions. Raises UnknownTopicError."""
        self._require_open()
        return {each.partition for each in (await self._cluster.topic(topic)).partitions}

    # Reading

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """The next record of these or all assigned partitions. Waits until one is available.

        Raises the error of a partition (OffsetOutOfRangeError, CorruptRecordError, UnknownTopicError, ...) or
        ClientClosedError.
        """
        current = self._assignment.current
        # The fast path, for nearly every record: an open batch has another one.
        if current is not None and not (self._has_news or partitions) and self._deserializers == _NONE:
            record = current.next_record()
            if record is not None:
                return record
        while True:
            self._require_open()
            if self._has_news:
                self._has_news = False
                self._assignment.raise_trouble(partitions, only_new=True)
            taken = self._take(1, partitions)
            if taken is not None:
                return self._converted(*taken)[0]
            self._assignment.raise_trouble(partitions, only_new=False)
            await self._wait(None)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The records that were fetched, at most `max_records` (default: `max_poll_records`, else all).

        Waits up to `timeout_ms` for the first record; the result is empty if none came. Raises as `getone`
        does, but only if it has no records to return.
        """
        left = max_records or self._config.max_poll_records or _ALL
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            self._require_open()
            found: dict[TopicPartition, list[ConsumerRecord]] = {}
            try:
                while left > 0 and (taken := self._take(left, partitions)) is not None:
                    records = self._converted(*taken)
                    left -= len(records)
                    if (earlier := found.setdefault(taken[0].key, records)) is not records:
                        earlier += records
            except BaseException:
                # A deserializer raised. No record was returned, so the positions must not move.
                for key, kept in found.items():
                    self._assignment.reader(key).seek(kept[0].offset)
                raise
            if found:
                return found
            self._assignment.raise_trouble(partitions, only_new=False)
            remaining = deadline - loop.time()
            if remaining <= 0:
                return {}
            await self._wait(remaining)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        try:
            return await self.getone()
        except ClientClosedError:
            raise StopAsyncIteration from None

    def _take(
        self, limit: int, partitions: tuple[TopicPartition, ...]
    ) -> tuple[PartitionReader, list[ConsumerRecord]] | None:
        taken = self._assignment.take(limit, partitions)
        if taken is not None and self._fetcher is not None:
            self._fetcher.on_read()
        return taken

    def _converted(self, reader: PartitionReader, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        try:
            return converted(records, *self._deserializers)
        except BaseException:
            reader.seek(records[0].offset)
            self._changed()
            raise

    def _reset(self, partitions: tuple[TopicPartition, ...], timestamp: int) -> None:
        for reader in [self._assignment.reader(key) for key in partitions] or list(self._readers.values()):
            reader.reset(timestamp)
        self._changed()

    def _watch(self) -> None:
        self._cluster.watch_topics({key.topic for key in self._readers})
        if self._fetcher is not None:
            if any(self._cluster.image.leader(key) < 0 for key in self._readers):
                self._cluster.request_refresh()
            self._changed()

    def _changed(self) -> None:
        if self._fetcher is not None:
            self._fetcher.wake()

    def _on_data(self) -> None:
        self._has_news = True
        for waiter in self._waiters:
            _wake(waiter)

    async def _wait(self, seconds: float | None) -> None:
        """Wait until a reader has new records or an error, or until the time has passed."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        timer = None if seconds is None else loop.call_later(seconds, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
            if timer is not None:
                timer.cancel()

    def _require_open(self) -> None:
        if self._fetcher is None or self._is_closed:
            raise ClientClosedError("the consumer is not open")


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
