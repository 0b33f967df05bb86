"""The producer: records in, promises of their metadata out.

Owns: the public interface, the choice of a batch for each record, and the life of all that works behind it.
Invariants:
- records of one partition are stored in the order in which their `send` calls took them, exactly once unless
  their delivery raises (`DeliveryUncertainError`: perhaps; any other error: not at all);
- `send` waits for room (or for a topic's first metadata) and for nothing else; a `send` that was cancelled or
  raised has sent nothing, one that returned is not taken back by cancelling anything;
- a record costs no task and no future.
All calls from one event loop, from any number of tasks.
Source: aiokafka's AIOKafkaProducer for names, KIP-679 for defaults.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from time import monotonic, time, time_ns
from types import TracebackType
from typing import Any, Self, Unpack

from tidelog.client.accumulator import Accumulator, PartitionQueue
from tidelog.client.buffer_memory import BufferMemory
from tidelog.client.cluster import Cluster
from tidelog.client.cluster_config import ClusterConfig, take_cluster
from tidelog.client.delivery import BatchDelivery, Delivery
from tidelog.client.errors import ClientClosedError, RecordTooLargeError, SessionError
from tidelog.client.producer_config import ProducerConfig, ProducerSettings
from tidelog.client.producer_session import ProducerSession
from tidelog.client.producer_session_keeper import SessionKeeper
from tidelog.client.record_batch import BatchBuilder, bytes_or_none
from tidelog.client.routes import Partitioner, Route
from tidelog.client.sender import Sender
from tidelog.client.signatures import shows_settings
from tidelog.client.types import RecordMetadata
from tidelog.protocol.records import BATCH_HEADER_SIZE, RecordBatchBuilder

__all__ = ["Producer"]

Serializer = Callable[[Any], bytes | None]
Headers = Sequence[tuple[str, bytes | None]]
_CLIENT_ID = "tidelog-producer"


@shows_settings(ClusterConfig, ProducerConfig, client_id=_CLIENT_ID)
class Producer:
    """An idempotent producer. `async with Producer(bootstrap_servers="host:port") as producer: ...`

    `partitioner` is called as (key, all partitions, partitions with a leader); the default sends keys where
    the Java client does and keyless records in batches to one partition after the other. Raises ValueError
    for settings that contradict each other. `cluster` is the way to the cluster as one value; settings of it
    that are given beside it go first. Sizes are bytes, times milliseconds. The settings and what they mean
    are declared in `ClusterConfig` and `ProducerConfig`.
    """

    def __init__(
        self,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | None = None,
        session: ProducerSession | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        own: dict[str, Any] = {**settings}
        cluster = take_cluster(own, client_id=_CLIENT_ID)
        self._config = config = ProducerConfig(**own)
        if session is not None:
            self._config.require_idempotence("a session")
        self._saved = session
        self._session: SessionKeeper | None = None
        self._cluster = Cluster(cluster, allow_auto_create_topics=True)
        self._accumulator = Accumulator(
            max_batch_size=min(config.max_batch_size, config.max_request_size),
            linger_ms=config.linger_ms,
            buffer_memory=config.buffer_memory,
            delivery_timeout_ms=config.delivery_timeout_ms,
        )
        self._buffer_memory = BufferMemory(self._accumulator)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        self._rng = random.Random()
        self._routes: dict[str, Route] = {}
        # The same, but always empty where there is something to call for each record.
        is_plain = (key_serializer, value_serializer, partitioner) == (None, None, None)
        self._plain_routes = self._routes if is_plain else {}
        self._sender: Sender | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Connect. Raises BrokerUnavailableError when no broker answers within request_timeout_ms."""
        if self._is_closed:
            raise ClientClosedError("a producer cannot be started again")
        if self._sender is None:
            await self._cluster.start()
            self._sender = Sender(self._config, self._cluster, self._accumulator, self._buffer_memory)
            if self._saved is not None:
                self._session = self._keeper(self._sender)
            self._cluster.add_listener(self._on_cluster_change)

    async def stop(self, timeout_ms: int | None = None) -> None:
        """Send what is left, then close.

        What is not stored after `timeout_ms` (default: its delivery timeout) is given up and its delivery
        raises. Harmless when closed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        # Nothing may be appended any more, also not on the fast path.
        self._routes.clear()
        self._buffer_memory.fail(ClientClosedError("the producer was closed"))
        try:
            if self._sender is not None:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await self._sender.flush()
        except TimeoutError:
            pass
        finally:
            if self._sender is not None:
                self._sender.close()
            await self._cluster.close()

    close = stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        """Take a record for sending and return a `Delivery`, which gives its metadata when awaited.

        Waits only while `buffer_memory` is full or the topic is not known yet. `value` and `key` are bytes or
        None, after their serializers. `timestamp_ms` defaults to now. Raises RecordTooLargeError,
        UnknownTopicError, ClientClosedError, ValueError or TypeError, and then has sent nothing.
        """
        # Nearly every record takes this way: a batch is open and takes it.
        route = self._plain_routes.get(topic)
        if route is not None and type(value) is bytes:
            if partition is not None:
                queue = route.queues[partition] if 0 <= partition < len(route.queues) else None
            elif key is None:
                queue = route.sticky
            else:
                queue = route.by_key.get(key) if type(key) is bytes else None
            if queue is not None and (batch := queue.open) is not None:
                builder = batch.builder
                is_plain = key is None and timestamp_ms is None and not headers
                # What `append` would do, without the call.
                if is_plain and builder.run_from_s <= time() < builder.run_until_s:
                    size = builder.size_bytes + builder.run_sizes[len(value)]
                    index = builder.record_count
                    if size <= builder.max_size_bytes and index < builder.run_end:
                        builder.run_values.append(value)
                        builder.size_bytes = size
                        builder.record_count = index + 1
                        delivery = Delivery()
                        delivery._batch = batch
                        delivery._index = index
                        delivery._timestamp_ms = builder.last_timestamp
                        return delivery
                stamp = time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
                if count := builder.append(stamp, key, value, headers or ()):
                    return Delivery.of(batch, count - 1, stamp)
        return await self._send_slowly(topic, value, key, partition, timestamp_ms, headers)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is stored. Raises as `send` does, or the DeliveryError."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def flush(self) -> None:
        """Wait until everything that was sent so far is stored or given up; linger_ms is not waited for."""
        await self._require_open().flush()

    def metrics(self) -> dict[str, float]:
        """What this client measured so far, by Kafka's names; see `client.metrics` for how to be told."""
        return self._cluster.metrics.snapshot(monotonic())

    async def partitions_for(self, topic: str) -> set[int]:
        """The topic's partitions. Raises as `send` does for the topic."""
        self._require_open()
        return {each.partition for each in (await self._cluster.topic(topic)).partitions}

    async def session(self) -> ProducerSession:
        """What `Producer(session=...)` needs to go on behind everything that was sent before this call.

        Returns when all of that is stored, so that the application can save its own position, as it was at
        the call, together with the session. The first call begins the session, and its result has to be
        saved before the first record: from then on each number names a record, and the first record that
        cannot be stored ends the producer, so that each partition holds a prefix of what was sent to it.

        Another process that resumes sends the same records again from the saved position, in the same order
        within each partition; batches may differ. Records that the log holds are skipped, and their
        deliveries give offset -1. Records need a key or a partition, for the way of others is chance.
        Raises SessionError after records were sent without a session, ValueError without idempotence, or
        the error that ended the producer.
        """
        sender = self._require_open()
        if self._session is None:
            self._config.require_idempotence("a session")
            if self._routes:
                raise SessionError("a session has to begin before the first record is sent")
            self._session = self._keeper(sender)
            identity = await sender.identity()
            return self._session.snapshot(identity)
        taken = self._session.snapshot(await sender.identity())
        await sender.flush()
        if sender.outcomes.fatal_error is not None:
            raise sender.outcomes.fatal_error
        return taken

    def create_batch(self) -> BatchBuilder:
        """A batch for the application to fill, and to send whole with `send_batch`."""
        return BatchBuilder(self._config.max_batch_size)

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> Delivery:
        """Send the records of `batch` in one piece; the delivery waits for all, and is the first record's.

        Waits and raises as `send` does; ValueError for an empty batch or one that was sent before. Keys and
        values are bytes, serializers are not applied. In a session the records that are stored are skipped.
        """
        sender = self._require_open()
        self._check_size(size_bytes := batch.size())
        route = self._routes.get(topic) or await self._open_route(topic)
        if partition >= len(route.queues):
            await self._cluster.refresh()
        queue = route.named(partition)
        while True:
            if self._session is not None and await self._is_replayed(queue, self._session):
                deliveries = [
                    await self._send_slowly(topic, value, key, partition, stamp, headers, is_raw=True)
                    for value, key, stamp, headers in batch.take_records()
                ]
                return BatchDelivery.of_records(deliveries)
            if self._buffer_memory.is_free(size_bytes):
                break
            await self._buffer_memory.wait(size_bytes)
            sender = self._require_open()
            if self._session is None:
                break
        taken = batch.take()
        made = self._accumulator.add_batch(queue, taken, sender.now_ms())
        sender.outcomes.expect(made)
        sender.wake()
        return BatchDelivery.of_records([Delivery.of(made, 0, batch.first_timestamp_ms)])

    async def _is_replayed(self, queue: PartitionQueue, session: SessionKeeper) -> bool:
        """Whether the log holds the partition's next record already; asks it where that is not known."""
        while session.must_prepare(queue.key, (now_ms := self._require_open().now_ms())):
            await session.prepare(queue.key, now_ms)
        return session.is_replaying(queue.key)

    async def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
        *,
        is_raw: bool = False,
    ) -> Delivery:
        """`send` for every case: opens batches, waits for room and for metadata."""
        sender = self._require_open()
        if not is_raw:
            key = key if self._key_serializer is None else self._key_serializer(key)
            value = value if self._value_serializer is None else self._value_serializer(value)
        raw_key = bytes_or_none(key, "key")
        fields = (raw_key, bytes_or_none(value, "value"), headers or ())
        size_bytes = BATCH_HEADER_SIZE + RecordBatchBuilder.record_size_bound(*fields)
        self._check_size(size_bytes)
        route = self._routes.get(topic) or await self._open_route(topic)
        if partition is not None and partition >= len(route.queues):
            await self._cluster.refresh()
        queue = route.choose(raw_key) if partition is None else route.named(partition)
        may_move = partition is None and raw_key is None and self._partitioner is None
        if self._session is not None and may_move and len(route.queues) > 1:
            raise ValueError(f"in a session a record of topic {topic!r} needs a key or a partition")
        while True:
            stamp = time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
            if may_move:
                queue = route.sticky
            batch = queue.open
            if batch is None and self._session is not None:
                await self._is_replayed(queue, self._session)
                if (skipped := self._session.skip(queue.key, stamp)) is not None:
                    return skipped
                batch = queue.open
            if batch is not None:
                if count := batch.builder.append(stamp, *fields):
                    return Delivery.of(batch, count - 1, stamp)
                if not self._buffer_memory.grow(queue, size_bytes):
                    queue.open = None
                    sender.wake()
                # A batch that needs more is where a producer that never waits lets all others work.
                await self._buffer_memory.pause(queue)
                self._require_open()
                continue
            if not self._buffer_memory.is_free(size_bytes):
                await self._buffer_memory.wait(size_bytes)
                self._require_open()
                if (route.sticky if may_move else queue).open is not None:
                    continue
            if may_move and len(route.queues) > 1:
                route.move_on()
                queue = route.sticky
                if queue.open is not None:
                    continue
            batch = self._accumulator.open_batch(queue, size_bytes, sender.now_ms(), stamp, *fields)
            sender.outcomes.expect(batch)
            sender.wake()
            return Delivery.of(batch, 0, stamp)

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._config.max_request_size or not self._accumulator.can_ever_hold(size_bytes):
            limits = self._config.max_request_size, self._config.buffer_memory
            raise RecordTooLargeError(
                f"about {size_bytes} bytes exceed (max_request_size, buffer_memory) = {limits}"
            )

    def _keeper(self, sender: Sender) -> SessionKeeper:
        return SessionKeeper(self._cluster, sender.state, self._accumulator, self._saved)

    async def _open_route(self, topic: str) -> Route:
        info = await self._cluster.topic(topic)
        self._require_open()
        route = self._routes.get(topic)
        if route is None:
            if self._session is not None:
                info = self._session.pin(info)
            route = self._routes[topic] = Route(info, self._accumulator, self._partitioner, self._rng)
            if self._session is not None and len(route.queues) > 1:
                # Never open, so that a record without a key or a partition is looked at, and refused.
                route.sticky = PartitionQueue(route.queues[0].key)
        return route

    def _on_cluster_change(self) -> None:
        for name, route in self._routes.items():
            info = self._cluster.image.topics.get(name)
            if info is not None and info.partitions:
                if self._session is not None:
                    # As many as there were: more would move keys, fewer exist only of another topic.
                    count = len(route.queues)
                    info = info._replace(partitions=info.partitions[:count])
                    if len(info.partitions) < count:
                        continue
                route.update(info, self._accumulator)

    def _require_open(self) -> Sender:
        sender = self._sender
        if sender is None or self._is_closed:
            raise ClientClosedError("the producer is not open")
        if sender.outcomes.fatal_error is not None:
            raise sender.outcomes.fatal_error
        return sender
