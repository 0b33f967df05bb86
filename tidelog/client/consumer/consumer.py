"""The consumer: it reads the records of its partitions, in offset order within each.

Owns: the public interface. Invariants:
- a position moves only in the step that returns the record. A read that is cancelled or times out moves
  nothing. No record is skipped or returned twice;
- within a partition records come in offset order. Partitions take turns: one batch, or up to 64 KiB of small
  ones, per turn if records are read one by one, else `max_records` or all that was fetched;
- records count as finished when the next ones are asked for. Automatic commits cover finished records only;
- an error of one partition is raised after the records fetched before it were read. It is raised again
  whenever no other partition has records, until a seek or a permission. The others stay readable.
All calls must come from one event loop. Source: aiokafka's AIOKafkaConsumer for names, Kafka's KafkaConsumer
for the meaning of groups.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

from tidelog.client.arguments import function_or_none, read_limits, whole_number
from tidelog.client.asked_apis import ASKED_APIS
from tidelog.client.consumer.assignment import Assignment
from tidelog.client.consumer.config import RESET_TIMESTAMPS, ConsumerConfig, ConsumerSettings
from tidelog.client.consumer.conversion import Deserializer, converted, prepared
from tidelog.client.consumer.fetcher import Fetcher
from tidelog.client.consumer.partition_reader import PartitionReader
from tidelog.client.consumer.progress import Progress
from tidelog.client.consumer.waiters import Done, Waiters
from tidelog.client.errors import NoOffsetError, RecordDeserializationError
from tidelog.client.groups.subscription import TopicSubscription
from tidelog.client.keywords import shows_settings, take_cluster
from tidelog.client.metrics import ClientMetrics
from tidelog.client.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    edge_offsets,
    look_up_times,
)
from tidelog.client.telemetry import TelemetryPusher
from tidelog.client.types import (
    KT,
    VT,
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordColumns,
    offsets_to_commit,
    topic_partition,
    topic_partitions,
)
from tidelog.protocol.types import TopicPartition
from tidelog.wire.cluster import Cluster
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.errors import (
    AuthorizationError,
    ClientClosedError,
    ClientError,
    RequestTimeoutError,
    UnknownTopicError,
)

if TYPE_CHECKING:
    from tidelog.client.consumer.group import Group
    from tidelog.client.consumer.positions import CommittedPositions

_ALL = 1 << 30
_CLIENT_ID = "tidelog-consumer"


@shows_settings(ClusterConfig, ConsumerConfig, client_id=_CLIENT_ID)
class Consumer(Generic[KT, VT]):
    """`async with Consumer("topic", bootstrap_servers="host:port", group_id="group") as consumer:`,
    `async for record in consumer:`

    With a `group_id`, the group's consumers share the topics' partitions. Without one, this consumer reads
    all of them. If no topics are given, call `subscribe` or `assign`. The types of keys and values are those
    that the deserializers return, without them `bytes | None`. `cluster` holds the connection
    settings as one value; keywords override it. Sizes are in bytes, times in milliseconds. `ClusterConfig`
    and `ConsumerConfig` declare the settings.
    """

    def __init__(
        self,
        *topics: str,
        key_deserializer: Deserializer[KT] | None = None,
        value_deserializer: Deserializer[VT] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        own: dict[str, Any] = {**settings}
        cluster = take_cluster(own, ConsumerConfig, client_id=_CLIENT_ID)
        self._cluster = Cluster(cluster, ASKED_APIS, metrics=ClientMetrics())
        self._config = ConsumerConfig(**own)
        for_keys = function_or_none(key_deserializer, "key_deserializer")
        self._deserializers = for_keys, function_or_none(value_deserializer, "value_deserializer")
        self._has_deserializers = self._deserializers != (None, None)
        attributes = {
            "group_id": self._config.group_id,
            "group_instance_id": self._config.group_instance_id,
            "client_rack": self._config.client_rack,
        }
        self._telemetry = TelemetryPusher(self._cluster, self, "consumer", attributes)
        self._subscription = TopicSubscription.of(topics, None) if topics else None
        # Topics of the subscription that did not exist at some time.
        self._awaited: set[str] = set()
        self._listener: object | None = None
        self._assignment = Assignment()
        self._readers = self._assignment.readers
        self._progress = Progress()
        self._waiters = Waiters()
        self._has_news = False
        # Neither subscribed nor assigned so far.
        self._is_unused = not topics
        # By `assign`. While a group still gives up its earlier subscription, it ignores this.
        self._is_assigned_by_hand = False
        self._fetcher: Fetcher | None = None
        self._group: Group | None = None
        self._positions: CommittedPositions | None = None
        self._starts = asyncio.Lock()
        # While it ends, nothing is read, but a callback can still commit.
        self._is_ending = False
        self._is_closed = False

    async def start(self) -> None:
        """Connect. Without a group, assign the partitions of the given topics; one that does not exist yet is
        read from its first record on when it exists. Raises BrokerUnavailableError or, without a group,
        TopicAuthorizationFailedError. After an error it can be called again."""
        async with self._starts:
            if self._is_ending:
                raise ClientClosedError("a consumer cannot be started again")
            if self._fetcher is None:
                await self._begin()

    async def _begin(self) -> None:
        await self._cluster.start()
        alone = self._subscription if self._config.group_id is None else None
        try:
            for name in (None if alone is None else alone.names) or ():
                with suppress(UnknownTopicError):
                    await self._cluster.topic(name)
        except BaseException:
            await self._cluster.close()
            raise
        self._fetcher = Fetcher(self._config, self._cluster, self._readers, self._on_data)
        if self._config.group_id is not None:
            self._start_group()
        self._cluster.on_failure = self._on_data
        self._cluster.add_listener(self._changed)
        self._cluster.add_listener(self._follow_metadata)
        if self._config.enable_metrics_push:
            self._telemetry.start()
        self._subscribe()
        if self._readers:
            self._watch()

    async def stop(self) -> None:
        """Close. Waiting reads raise ClientClosedError, iterations end. A second call does nothing.

        With automatic commits, all returned records are committed. But if an exception is being handled
        (`async with`, `finally`, `except`), the last returned ones are not: they may be unfinished. If the
        coordinator does not answer, this takes up to request_timeout_ms.
        """
        if self._is_ending:
            return
        self._cluster.require_loop()
        self._is_ending = True
        self._on_data()
        self._finish_unless_failing()
        try:
            if self._group is not None and self._positions is not None:
                await self._positions.close()
                await self._group.close()
        finally:
            self._is_closed = True
            self._on_data()
            try:
                if self._fetcher is not None:
                    await self._fetcher.close()
            finally:
                await self._telemetry.stop()
                await self._cluster.close()

    close = stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # Subscription and assignment

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: object | None = None,
    ) -> None:
        """Read these topics, or all whose names match `pattern` from the beginning, also later ones.

        Replaces the last subscription. `listener` is a `ConsumerRebalanceListener`, or has its methods.
        Raises ValueError if not one of topics and pattern is given, or if partitions were assigned by
        `assign`: call `unsubscribe` first.
        """
        subscription = TopicSubscription.of(topics, pattern)
        if self._readers and self._is_assigned_by_hand:
            raise ValueError("partitions are assigned by assign(); call unsubscribe() first")
        self._subscription, self._listener = subscription, listener
        self._is_assigned_by_hand = self._is_unused = False
        self._subscribe()

    def unsubscribe(self) -> None:
        """Read nothing. A member leaves its group in the background: it commits what it would commit at
        `stop`, and runs the callback."""
        self._finish_unless_failing()
        is_shared = self._group is not None and not self._is_assigned_by_hand
        self._subscription, self._is_assigned_by_hand = None, False
        if is_shared:
            self._subscribe()
        else:
            self._assignment.replace(())
            self._watch()

    def subscription(self) -> frozenset[str]:
        """The topics that were subscribed to, or that match the pattern now."""
        return frozenset() if self._subscription is None else self._subscription.topics(self._cluster.image)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these. Partitions that stay assigned keep their position and their fetched records.

        With a `group_id`, positions begin at the group's committed offsets, but the consumer is no member.
        Raises ValueError if it has subscribed: call `unsubscribe` first.
        """
        if self._config.group_id is not None and self._subscription is not None:
            raise ValueError("the group assigns partitions of subscribed topics; call unsubscribe() first")
        self._read(topic_partitions(partitions))
        self._subscription, self._is_assigned_by_hand, self._is_unused = None, True, False
        self._watch()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        return {key for key, reader in self._readers.items() if not reader.is_suspended}

    # Positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`. Raises ValueError if it is negative or the partition is not assigned,
        TypeError."""
        self._assignment.reader(partition).seek(whole_number(offset, "offset"))
        self._on_place()

    def seek_to_beginning(self, *partitions: TopicPartition) -> Awaitable[None]:
        """Continue at the first record of these partitions, or of all assigned ones. The seek takes effect in
        the call: it may be awaited, as in aiokafka, but needs not be."""
        return self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> Awaitable[None]:
        """As `seek_to_beginning`, but at the end: only new records are read."""
        return self._reset(partitions, LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> Awaitable[None]:
        """As `seek_to_beginning`, but at the first record of that time or later, or at the end if there is
        none. Raises ValueError for a negative timestamp, TypeError."""
        return self._reset(partitions, whole_number(timestamp_ms, "timestamp_ms"))

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to read. Raises ValueError once the partition is not assigned,
        NoOffsetError if auto_offset_reset is "none" and no position was set, UnknownTopicError and others,
        RequestTimeoutError after request_timeout_ms."""
        limit_ms = self._cluster.config.request_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while (reader := self._assignment.reader(partition)).position is None:
                    self._require_open()
                    self._cluster.raise_failure()
                    if reader.error is not None:
                        raise reader.error.with_traceback(None)
                    if self._positions is not None:
                        self._positions.ask(reader)
                    await self._waiters.wait()
        except TimeoutError:
            what = f"the position of {partition[0]}-{partition[1]}"
            raise RequestTimeoutError(f"{what} was not found within {limit_ms} ms") from None
        return reader.position

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop reading and fetching these partitions. Records that were fetched already are kept."""
        for key in partitions:
            self._assignment.reader(key).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`."""
        for key in partitions:
            self._assignment.reader(key).is_paused = False
        self._on_place()

    def paused(self) -> set[TopicPartition]:
        """The partitions that `pause` stopped."""
        return {key for key, reader in self._readers.items() if reader.is_paused}

    def highwater(self, partition: TopicPartition) -> int | None:
        """The partition's high watermark as of the last fetch, None before the first."""
        return None if (mark := self._assignment.reader(partition).high_watermark) < 0 else mark

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each log holds."""
        self._require_open()
        return await edge_offsets(self._cluster, partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that the next record of each will get; with isolation_level=read_committed, that of the
        first record of a transaction that is open, if there is one."""
        self._require_open()
        return await edge_offsets(self._cluster, partitions, LATEST, self._config.isolation_code)

    async def tiered_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int | None]]:
        """The first offset on the leader's disk, and the last one in remote storage, None if there is none
        (KIP-405, KIP-1005)."""
        self._require_open()
        keys = list(partitions)
        local = await edge_offsets(self._cluster, keys, EARLIEST_LOCAL)
        remote = await edge_offsets(self._cluster, keys, LATEST_TIERED)
        return {key: (local[key], remote[key] if remote[key] >= 0 else None) for key in keys}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each timestamp (milliseconds); None if all records are older."""
        self._require_open()
        return await look_up_times(self._cluster, timestamps, self._config.isolation_code)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partitions of a topic that this consumer reads or subscribed to; None for a topic that it does
        not know. Asks no broker: `Admin.describe_topics` and `Producer.partitions_for` do."""
        info = self._cluster.image.topics.get(topic)
        return {each.partition for each in info.partitions} if info is not None and info.partitions else None

    def lag(self, partition: TopicPartition) -> int | None:
        """Records from the position to the high watermark of the last fetch; None before the first fetch."""
        return self._assignment.reader(partition).lag

    # Committed offsets

    async def commit(
        self, offsets: Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata] | None = None
    ) -> None:
        """Commit these offsets, each that of the next record to read. None: all positions, so every record
        that was returned counts as finished.

        Raises ValueError without a group_id, CommitFailedError if a partition went to another member,
        RequestTimeoutError after request_timeout_ms, or another ClientError.
        """
        group = self._require_group()
        if offsets is None:
            offsets = {
                key: OffsetAndMetadata(reader.position, leader_epoch=reader.position_epoch)
                for key, reader in self._readers.items()
                if reader.position is not None
            }
        await group.commit(offsets_to_commit(offsets))

    async def committed(self, partition: TopicPartition) -> int | None:
        """The offset that the group committed, None for none. Raises ValueError without a group_id, and
        ClientError."""
        key = topic_partition(partition)
        committed = (await self._require_group().offsets.fetch([key])).get(key)
        return None if committed is None else committed.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member of the group, for `Producer.send_offsets_to_transaction`. Raises ValueError without a
        group_id, CommitFailedError if this consumer subscribed and is no member now."""
        return self._require_group().metadata()

    def metrics(self) -> dict[str, float]:
        """The metrics of this client by Kafka's names. `client.metrics` can also report them regularly."""
        lags = [self.lag(key) or 0 for key in self._readers]
        own: dict[str, float] = {"assigned-partitions": len(lags), "records-lag-max": max(lags, default=0)}
        if self._group is not None:
            own |= {"commit-total": self._group.commits, "rebalance-total": self._group.membership.rebalances}
        return self._cluster.metrics.snapshot(monotonic()) | own

    # Reading

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[KT, VT]:
        """The next record of these or all assigned partitions. Waits until one is available.

        Raises the error of a partition (OffsetOutOfRangeError, CorruptRecordError, UnknownTopicError, ...),
        RecordDeserializationError, what ended the group membership, ClientClosedError, ValueError (no topic).
        """
        if not partitions and (record := self._next_at_once()) is not None:
            return record
        while True:
            self._ask()
            if self._has_news:
                self._has_news = False
                self._assignment.raise_error(partitions, only_new=True)
            taken = self._assignment.take(1, partitions)
            self._on_read()
            if taken is None:
                await self._wait(partitions, None)
                continue
            try:
                record = self._converted(*taken)[0]
            except RecordDeserializationError as error:
                await prepared(error)
                continue
            self._progress.returned = record
            return record

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[KT, VT]]]:
        """The records that were fetched, at most `max_records` (default: `max_poll_records`, else all).

        Waits up to `timeout_ms` for the first record; the result is empty if none came. Raises as `getone`
        does, but only if it has no records to return.
        """
        seconds, left = read_limits(timeout_ms, max_records, self._config.max_poll_records or _ALL)
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            self._ask()
            found: dict[TopicPartition, list[ConsumerRecord[KT, VT]]] = {}
            try:
                while left > 0 and (taken := self._assignment.take(left, partitions)) is not None:
                    records = self._converted(*taken)
                    left -= len(records)
                    if (earlier := found.setdefault(taken[0].key, records)) is not records:
                        earlier += records
            except BaseException as error:
                # A deserializer raised. No record was returned, so the positions must not move.
                for key, kept in found.items():
                    self._assignment.reader(key).seek(kept[0].offset)
                if not isinstance(error, RecordDeserializationError):
                    raise
                await prepared(error)
                continue
            self._on_read()
            if found:
                self._progress.returned = {key: kept[0].offset for key, kept in found.items()}
                return found
            if not await self._wait(partitions, deadline):
                return {}

    async def getmany_columns(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[RecordColumns]]:
        """As `getmany`, but as columns, mostly one element per large batch or per 64 KiB of small ones: the
        fastest way to read.

        Deserializers are not applied: keys and values are bytes or None.
        """
        seconds, left = read_limits(timeout_ms, max_records, self._config.max_poll_records or _ALL)
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            self._ask()
            found: dict[TopicPartition, list[RecordColumns]] = {}
            while left > 0 and (taken := self._assignment.take_columns(left, partitions)) is not None:
                reader, columns = taken
                left -= sum(each.record_count for each in columns)
                found.setdefault(reader.key, []).extend(columns)
            self._on_read()
            if found:
                self._progress.returned = {key: kept[0].offsets[0] for key, kept in found.items()}
                return found
            if not await self._wait(partitions, deadline):
                return {}

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[KT, VT]]:
        return self

    async def __anext__(self) -> ConsumerRecord[KT, VT]:
        # Else each record would cost a second coroutine.
        if (record := self._next_at_once()) is not None:
            return record
        try:
            return await self.getone()
        except ClientClosedError:
            if not self._is_ending:
                raise
            raise StopAsyncIteration from None

    def _next_at_once(self) -> ConsumerRecord[KT, VT] | None:
        """The fast path, for nearly every record that is read alone: an open batch has another one."""
        current = self._assignment.current
        if current is None or self._has_news or self._has_deserializers:
            return None
        record: ConsumerRecord[Any, Any] | None = current.next_record()
        if record is not None:
            self._progress.returned = record
        return record

    def _ask(self) -> None:
        """The application wants records, so it has finished those that it had."""
        self._require_open()
        if self._is_ending:
            raise ClientClosedError("the consumer was closed")
        self._progress.finish()
        if self._group is not None:
            self._group.asked()
            self._group.raise_error()
        self._cluster.raise_failure()

    def _finish_unless_failing(self) -> None:
        """The application wants no more records. If it fails just now, it may not have finished the last."""
        if sys.exc_info()[0] is None:
            self._progress.finish()

    def _on_read(self) -> None:
        """Bytes may have been read, also if they held no record to return."""
        if self._fetcher is not None:
            self._fetcher.on_read()

    async def _wait(self, partitions: tuple[TopicPartition, ...], deadline: float | None) -> bool:
        """Raise the error of a partition, or wait for records. False if the deadline has passed."""
        if self._is_unused:
            raise ValueError("the consumer has no topics: give it some, or call subscribe() or assign()")
        self._assignment.raise_error(partitions, only_new=False)
        self._progress.waiting += 1
        try:
            return await self._waiters.wait(deadline)
        finally:
            self._progress.waiting -= 1

    def _converted(
        self, reader: PartitionReader, records: list[ConsumerRecord]
    ) -> list[ConsumerRecord[KT, VT]]:
        good: list[ConsumerRecord[KT, VT]] = []
        try:
            good = converted(records, *self._deserializers)
        finally:
            if len(good) < len(records):
                reader.seek(records[len(good)].offset)
                self._changed()
        return good

    # Readers

    def _start_group(self) -> None:
        # Most consumers of short-lived processes, such as Spark's workers, have no group.
        from tidelog.client.consumer.group import Group
        from tidelog.client.consumer.positions import CommittedPositions

        self._group = group = Group(
            self._config,
            self._cluster,
            self._readers,
            self._progress,
            read=self._read_shared,
            fetch_more=self._watch,
            on_data=self._on_data,
        )
        self._positions = CommittedPositions(
            self._cluster, group.offsets, self._readers, self._begin_by_policy, self._on_place
        )
        group.start()

    def _subscribe(self) -> None:
        """Apply the subscription, once the consumer has started."""
        if self._fetcher is None:
            return
        subscription = self._subscription
        if self._group is not None:
            self._group.listener = self._listener
            self._group.subscribe(subscription)
        elif subscription is not None:
            if subscription.names is None:
                self._cluster.watch_all_topics()
            else:
                self._cluster.watch_topics(subscription.names)
            self._follow_metadata()

    def _follow_metadata(self) -> None:
        """Without a group, a subscriber reads every partition."""
        if self._subscription is None:
            return
        self._awaited |= self._subscription.absent(self._cluster.image)
        if self._group is not None:
            return
        wanted = self._subscription.partitions(self._cluster.image, self._readers)
        self._assignment.refusal = self._subscription.refusal(self._cluster.image)
        if self._subscription.is_incomplete(self._cluster.image):
            self._cluster.request_refresh()
        self._on_data()
        if self._assignment.refusal is None and self._readers.keys() != set(wanted):
            self._read(wanted)
            self._watch()

    def _read(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these; those that were read before stay where they are."""
        self._assignment.replace([self._readers.get(key) or self._new_reader(key) for key in partitions])
        self._on_data()

    def _read_shared(self, partitions: Iterable[TopicPartition]) -> None:
        """The partitions that the group assigned."""
        if not self._is_assigned_by_hand:
            self._read(sorted(partitions))  # A set has no order of its own.

    def _new_reader(self, key: TopicPartition) -> PartitionReader:
        reader = PartitionReader(key, check_crc=self._config.check_crcs, on_failure=self._failed)
        if self._config.group_id is None:
            self._begin_by_policy(reader)
        return reader

    def _failed(self, reader: PartitionReader, error: ClientError) -> None:
        """Try again later what was forbidden, since it may be allowed then."""
        if isinstance(error, AuthorizationError):
            delay_s = self._cluster.config.retry_backoff_max_ms / 1000
            asyncio.get_running_loop().call_later(delay_s, self._retry, reader, error)

    def _retry(self, reader: PartitionReader, error: ClientError) -> None:
        if reader.retry(error):
            self._changed()

    def _begin_by_policy(self, reader: PartitionReader) -> None:
        policy = RESET_TIMESTAMPS[self._config.auto_offset_reset]
        if policy == LATEST and reader.key.topic in self._awaited:
            # All its records are later than the subscription.
            policy = EARLIEST
        if policy is None:
            reader.fail(NoOffsetError(f"{reader.key.topic}-{reader.key.partition} has no position"))
        else:
            reader.reset(policy)

    def _reset(self, partitions: tuple[TopicPartition, ...], timestamp: int) -> Done:
        for reader in [self._assignment.reader(key) for key in partitions] or list(self._readers.values()):
            reader.reset(timestamp)
        self._changed()
        return Done()

    def _watch(self) -> None:
        self._cluster.watch_topics({key.topic for key in self._readers})
        if self._fetcher is not None and any(self._cluster.image.leader(key) < 0 for key in self._readers):
            self._cluster.request_refresh()
        self._changed()

    def _changed(self) -> None:
        if self._fetcher is not None:
            self._fetcher.wake()
        if self._positions is not None and not self._is_ending:
            self._positions.wake()

    def _on_place(self) -> None:
        self._on_data()
        self._changed()

    def _on_data(self) -> None:
        self._has_news = True
        self._waiters.wake()

    def _require_open(self) -> None:
        if self._fetcher is None or self._is_closed:
            raise ClientClosedError("the consumer is not open")
        self._cluster.require_loop()

    def _require_group(self) -> "Group":
        self._require_open()
        if self._group is None:
            raise ValueError("offsets are committed for a group; give a group_id")
        return self._group
