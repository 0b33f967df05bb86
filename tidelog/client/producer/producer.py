"""The producer: it takes records and returns deliveries, which give the metadata of stored records.

Owns: the public interface, the choice of a batch for each record, and the start and end of its parts.
Invariants:
- records of one partition are stored in the order in which their `send` calls took them, and exactly once,
  unless their delivery raises. `DeliveryUncertainError`: they may be stored. Any other error: they are not;
- `send` waits only for free memory or for a topic's first metadata. If `send` is cancelled or raises, nothing
  is sent. Once `send` has returned, no cancellation takes the record back;
- a record costs no task and no future.
Any number of tasks may use a producer, but all on one event loop.
Source: aiokafka's AIOKafkaProducer for names, KIP-679 for defaults.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic, time, time_ns
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, overload

from tidelog.client.arguments import function_or_none, timeout_seconds, whole_number
from tidelog.client.asked_apis import ASKED_APIS
from tidelog.client.errors import RecordTooLargeError, SessionError
from tidelog.client.keywords import shows_settings, take_cluster
from tidelog.client.producer.accumulator import Accumulator, PartitionQueue
from tidelog.client.producer.buffer_memory import BufferMemory
from tidelog.client.producer.config import ProducerConfig, ProducerSettings
from tidelog.client.producer.delivery import BatchDelivery, Delivery
from tidelog.client.producer.record_batch import (
    BatchBuilder,
    Serializer,
    bytes_or_none,
    checked_headers,
    int_or_none,
)
from tidelog.client.producer.routes import Partitioner, Route
from tidelog.client.producer.sender import Sender
from tidelog.client.producer.session import ProducerSession
from tidelog.client.producer.transaction_state import TransactionState
from tidelog.client.telemetry import TelemetryPusher
from tidelog.client.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    RecordMetadata,
    SentKT,
    SentVT,
    group_metadata,
    offsets_to_commit,
)
from tidelog.protocol.records import BATCH_HEADER_SIZE, FIELD_SIZES, RecordBatchBuilder
from tidelog.protocol.types import Buffer, TopicPartition
from tidelog.wire.cluster import Cluster, checked_topic_name
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.errors import ClientClosedError, ClientError
from tidelog.wire.events import logger

if TYPE_CHECKING:
    from tidelog.client.producer.session_keeper import SessionKeeper
    from tidelog.client.producer.transactions import Transactions

Headers = Sequence[tuple[str, bytes | None]]
_CLIENT_ID = "tidelog-producer"
# More than any batch may have.
_TOO_LARGE = 1 << 31


@shows_settings(ClusterConfig, ProducerConfig, client_id=_CLIENT_ID)
class Producer(Generic[SentKT, SentVT]):
    """An idempotent producer. `async with Producer(bootstrap_servers="host:port") as producer: ...`

    `partitioner` is called as (key, all partitions, partitions with a leader). The default chooses the same
    partition for a key as the Java client. It sends records without a key in batches, each to another
    partition. The types of keys and values are those that the serializers take, without them bytes.
    Serializers are called for None too. `cluster` holds the connection settings as one value; keywords
    override it. Sizes are in bytes, times in milliseconds. Raises ConfigError for settings that contradict
    each other.
    """

    @overload
    def __init__(
        self: "Producer[Buffer | None, Buffer | None]",
        *,
        key_serializer: None = None,
        value_serializer: None = None,
        partitioner: Partitioner | None = None,
        session: ProducerSession | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: "Producer[Buffer | None, SentVT]",
        *,
        key_serializer: None = None,
        value_serializer: Serializer[SentVT],
        partitioner: Partitioner | None = None,
        session: ProducerSession | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: "Producer[SentKT, Buffer | None]",
        *,
        key_serializer: Serializer[SentKT],
        value_serializer: None = None,
        partitioner: Partitioner | None = None,
        session: ProducerSession | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self,
        *,
        key_serializer: Serializer[SentKT],
        value_serializer: Serializer[SentVT],
        partitioner: Partitioner | None = None,
        session: ProducerSession | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...

    def __init__(
        self,
        *,
        key_serializer: Serializer[SentKT] | None = None,
        value_serializer: Serializer[SentVT] | None = None,
        partitioner: Partitioner | None = None,
        session: ProducerSession | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        own: dict[str, Any] = {**settings}
        cluster = take_cluster(own, ProducerConfig, client_id=_CLIENT_ID)
        self._config = config = ProducerConfig(**own)
        if session is not None:
            if not isinstance(session, ProducerSession):
                raise TypeError(f"session: expected ProducerSession.from_dict(...), got {session!r:.200}")
            self._config.require_idempotence("a session")
            self._refuse_transactions()
        self._saved = session
        self._session: SessionKeeper | None = None
        self._accumulator = Accumulator(
            max_batch_size=min(config.max_batch_size, config.max_request_size),
            linger_ms=config.linger_ms,
            buffer_memory=config.buffer_memory,
            delivery_timeout_ms=config.delivery_timeout_ms,
        )
        self._buffer_memory = BufferMemory(self._accumulator)
        self._cluster = Cluster(
            cluster, ASKED_APIS, metrics=self._buffer_memory.metrics, allow_auto_create_topics=True
        )
        attributes = {"transactional_id": config.transactional_id}
        self._telemetry = TelemetryPusher(self._cluster, self, "producer", attributes)
        self._key_serializer = function_or_none(key_serializer, "key_serializer")
        self._value_serializer = function_or_none(value_serializer, "value_serializer")
        self._partitioner = function_or_none(partitioner, "partitioner")
        self._rng = random.Random()
        self._routes: dict[str, Route] = {}
        # The same routes; always empty if a serializer or a partitioner must be called for each record.
        is_plain = (key_serializer, value_serializer, partitioner) == (None, None, None)
        self._is_plain = is_plain
        self._plain_routes = self._routes if is_plain and config.transactional_id is None else {}
        self._transactions: Transactions | None = None
        self._sender: Sender | None = None
        self._starts = asyncio.Lock()
        self._is_closed = False

    async def start(self) -> None:
        """Connect, and take over the transactional id if there is one. Raises BrokerUnavailableError when no
        broker answers within request_timeout_ms: then it can be called again. Or raises another
        ClientError."""
        async with self._starts:
            if self._is_closed:
                raise ClientClosedError("a producer cannot be started again")
            if self._sender is None:
                await self._cluster.start()
                await self._begin()

    async def _begin(self) -> None:
        transaction_id = self._config.transactional_id
        state = None if transaction_id is None else TransactionState(transaction_id)
        self._sender = sender = Sender(
            self._config, self._cluster, self._accumulator, self._buffer_memory, state
        )
        sender.outcomes.report_lost_with(self)
        if self._saved is not None:
            self._session = self._keeper(sender)
        self._cluster.add_listener(self._on_cluster_change)
        if self._config.enable_metrics_push:
            self._telemetry.start()
        if state is not None:
            self._transactions = self._transactions_of(state, sender)
            try:
                await self._transactions.initialize()
            except BaseException:
                await self.stop()
                raise

    async def stop(self, timeout_ms: int | None = None) -> None:
        """Send the remaining records, then close. An open transaction is aborted, a prepared one stays
        prepared.

        A record that is not stored after `timeout_ms` (default: its delivery timeout) is given up, and its
        delivery raises. A second call does nothing.
        """
        if self._is_closed:
            return
        self._cluster.require_loop()
        patience = None if timeout_ms is None else timeout_seconds(timeout_ms)
        self._is_closed = True
        # From here on no record may be appended. The fast path needs a route, so it ends too.
        self._routes.clear()
        self._buffer_memory.fail(ClientClosedError("the producer was closed"))
        try:
            if self._sender is not None:
                async with asyncio.timeout(patience):
                    if self._transactions is not None:
                        await self._transactions.abort_if_open()
                    await self._sender.flush()
        except TimeoutError:
            pass
        except ClientError as error:
            # The broker aborts the transaction after its timeout.
            logger.warning("transaction_left_open", error=str(error))
        finally:
            if self._transactions is not None:
                self._transactions.close()
            if self._sender is not None:
                self._sender.close()
            await self._telemetry.stop()
            await self._cluster.close()

    close = stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def send(
        self,
        topic: str,
        value: SentVT | None = None,
        key: SentKT | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        """Take a record for sending and return a `Delivery`, which gives its metadata when awaited.

        Waits only while `buffer_memory` is full or the topic is not known yet. `value` and `key` are bytes or
        None, after their serializers. `timestamp_ms` defaults to now. Raises RecordTooLargeError,
        UnknownTopicError, ClientClosedError, ValueError or TypeError; nothing is sent then.
        """
        # The fast path, for nearly every record: an open batch takes it.
        try:
            route = self._plain_routes.get(topic)
        except TypeError:
            checked_topic_name(topic)
            raise
        # For mypy, a type variable is not narrowed by these tests of the types.
        if route is not None and type(value) is bytes and (key is None or type(key) is bytes):
            if partition is not None:
                try:
                    queue = route.queues[partition] if 0 <= partition < len(route.queues) else None
                except TypeError:
                    queue = None  # What is wrong is explained below.
            elif key is None:
                queue = route.sticky
            else:
                queue = route.by_key[key]  # type: ignore[index]
            if queue is not None and (batch := queue.open) is not None:
                builder = batch.builder
                keys = builder.run_keys
                # The same as `append`, without the call.
                if timestamp_ms is None and (key is None) is (keys is None) and not headers:
                    try:
                        body = builder.run_fixed_size + FIELD_SIZES[len(value)]
                        if key is not None:
                            body += FIELD_SIZES[len(key)]  # type: ignore[arg-type]
                        size = builder.size_bytes + FIELD_SIZES[body]
                    except IndexError:
                        size = _TOO_LARGE
                    index = builder.record_count
                    if (
                        size <= builder.max_size_bytes
                        and index < builder.run_end
                        and (
                            builder.run_from_s <= time() < builder.run_until_s
                            or builder.restamp(time_ns() // 1_000_000)
                        )
                    ):
                        if keys is not None and key is not None:
                            keys.append(key)  # type: ignore[arg-type]
                        builder.run_values.append(value)
                        builder.size_bytes = size
                        builder.record_count = index + 1
                        delivery = Delivery()
                        delivery._batch = batch
                        delivery._index = index
                        delivery._timestamp_ms = builder.last_timestamp
                        return delivery
                stamp = time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
                try:
                    count = builder.append(stamp, key, value, headers or ())  # type: ignore[arg-type]
                except (TypeError, ValueError, AttributeError):
                    count = 0  # What is wrong is found and explained below.
                if count:
                    return Delivery.of(batch, count - 1, stamp)
        return await self._send_slowly(topic, value, key, partition, timestamp_ms, headers)

    async def send_and_wait(
        self,
        topic: str,
        value: SentVT | None = None,
        key: SentKT | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is stored. Raises as `send` does, or the DeliveryError."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def flush(self) -> None:
        """Wait until every record sent so far is stored or given up. Batches do not linger meanwhile."""
        await self._require_open().flush()

    async def begin_transaction(self) -> None:
        """Begin a transaction. Raises TransactionStateError if one is open, or ClientError."""
        self._require_open()
        await self._require_transactions().begin()

    async def prepare(self) -> PreparedTransaction:
        """Send the remaining records, and take no more: the transaction waits, without a timeout, until it is
        committed or aborted.

        This producer can end it, or another process, given the result: `Admin.transactions.commit_prepared`
        or `abort`. Closing the producer leaves it prepared. Needs `transaction_two_phase_commit_enable`.
        Raises as `commit_transaction`. Source: KIP-939.
        """
        transactions = self._require_transactions()
        self._require_open()
        if not self._config.transaction_two_phase_commit_enable:
            raise ValueError("prepare() needs transaction_two_phase_commit_enable=True")
        identity = await transactions.prepare()
        return PreparedTransaction(transactions.state.transactional_id, *identity)

    async def commit_transaction(self) -> None:
        """Send the remaining records, then commit: readers of committed records see all of them, or none.

        Raises TransactionAbortableError if the transaction failed: then call `abort_transaction`. Raises
        RequestTimeoutError if the broker did not confirm in time: then call it again. Any other ClientError
        is fatal: ProducerFencedError if another producer has taken over.
        """
        transactions = self._require_transactions()
        self._require_open()
        await transactions.commit()

    async def abort_transaction(self) -> None:
        """Abort: readers of committed records see none of its records, and its offsets are not committed.
        Deliveries that are not acknowledged yet raise TransactionAbortedError. Raises ClientError."""
        transactions = self._require_transactions()
        self._require_open()
        await transactions.abort()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """`async with producer.transaction():` commits at the end. An exception aborts it, and is raised."""
        await self.begin_transaction()
        transactions = self._require_transactions()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            await transactions.abort_if_open()
            raise

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata],
        group_id: str | ConsumerGroupMetadata,
    ) -> None:
        """Commit these offsets of the group if and only if the transaction commits.

        Each offset is that of the next record to read. `group_id` is `consumer.group_metadata()`, so that a
        member that lost its partitions cannot commit, or only the id of the group. Raises
        TransactionAbortableError, whose cause is CommitFailedError, if the group refuses the member.
        """
        transactions = self._require_transactions()
        self._require_open()
        await transactions.commit_offsets(offsets_to_commit(offsets), group_metadata(group_id))

    def metrics(self) -> dict[str, float]:
        """The metrics of this client by Kafka's names. `client.metrics` can also report them regularly."""
        return self._cluster.metrics.snapshot(monotonic())

    async def partitions_for(self, topic: str) -> set[int]:
        """The topic's partitions. Raises as `send` does for the topic."""
        self._require_open()
        return {each.partition for each in (await self._cluster.topic(topic)).partitions}

    async def topic_id(self, topic: str) -> str:
        """The id of the topic: another topic of the same name has another. Raises as `partitions_for`."""
        self._require_open()
        return str((await self._cluster.topic(topic)).topic_id)

    async def session(self) -> ProducerSession:
        """The session after all records that were sent before this call, for `Producer(session=...)`.

        Returns when all those records are stored. The application can then save its own position (as it was
        at the call) together with the session. The first call begins the session. Save its result before the
        first record is sent. From then on each sequence number names one record. The first record that
        cannot be stored ends the producer, so each partition holds a prefix of what was sent to it.

        Another process that resumes the session sends the same records again from the saved position, in the
        same order within each partition; batches may differ. Records that the log already holds are skipped,
        and their deliveries give offset -1. Each record needs a key or a partition, because without them its
        partition is random. Raises SessionError if records were sent without a session before, ValueError
        without idempotence, or the error that ended the producer.
        """
        sender = self._require_open()
        if self._session is None:
            self._config.require_idempotence("a session")
            self._refuse_transactions()
            if self._routes:
                raise SessionError("a session has to begin before the first record is sent")
            self._session = self._keeper(sender)
            identity = await sender.identity()
            return self._session.snapshot(identity)
        taken = self._session.snapshot(await sender.identity())
        await sender.flush()
        sender.outcomes.raise_fatal()
        return taken

    def create_batch(self) -> BatchBuilder:
        """An empty batch, which the application fills and sends with `send_batch`."""
        return BatchBuilder(self._config.max_batch_size, self._key_serializer, self._value_serializer)

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> Delivery:
        """Send `batch` as one batch. The delivery waits for all its records and gives the first's metadata.

        Waits and raises as `send` does. Raises ValueError for an empty batch or one that was sent before. In
        a session, records already stored are skipped.
        """
        sender = self._require_sending()
        number = self._transactions.state.number if self._transactions is not None else None
        partition = whole_number(partition, "partition", low=None)
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
            sender = self._require_sending(number)
            if self._session is None:
                break
        self._require_sending(number)
        taken = batch.take()
        made = self._accumulator.add_batch(queue, taken, sender.now_ms())
        sender.outcomes.expect(made)
        sender.wake()
        return BatchDelivery.of_records([Delivery.of(made, 0, batch.first_timestamp_ms)])

    async def _is_replayed(self, queue: PartitionQueue, session: "SessionKeeper") -> bool:
        """Whether the log already holds the partition's next record. Asks the broker if that is unknown."""
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
        """`send` for every case: opens batches, waits for free memory and for metadata."""
        sender = self._require_sending()
        number = self._transactions.state.number if self._transactions is not None else None
        if not is_raw:
            key = key if self._key_serializer is None else self._key_serializer(key)
            value = value if self._value_serializer is None else self._value_serializer(value)
        partition = int_or_none(partition, "partition")
        timestamp_ms = int_or_none(timestamp_ms, "timestamp_ms")
        raw_key = bytes_or_none(key, "key")
        fields = (raw_key, bytes_or_none(value, "value"), checked_headers(headers or ()))
        size_bytes = BATCH_HEADER_SIZE + RecordBatchBuilder.record_size_bound(*fields)
        self._check_size(size_bytes)
        route = self._routes.get(topic) or await self._open_route(topic)
        if partition is not None and partition >= len(route.queues):
            await self._cluster.refresh()
        self._require_sending(number)
        queue = route.choose(raw_key) if partition is None else route.named(partition)
        may_move = partition is None and raw_key is None and self._partitioner is None
        if self._session is not None and may_move and len(route.queues) > 1:
            raise ValueError(f"in a session each record of topic {topic!r} needs a key or a partition")
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
                # The event loop runs other tasks here. A producer that never waits would block them else.
                await self._buffer_memory.pause()
                self._require_sending(number)
                continue
            if not self._buffer_memory.is_free(size_bytes):
                await self._buffer_memory.wait(size_bytes)
                self._require_sending(number)
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
                f"the record needs about {size_bytes} bytes, but (max_request_size, buffer_memory) = {limits}"
            )

    def _transactions_of(self, state: TransactionState, sender: Sender) -> "Transactions":
        from tidelog.client.producer.transactions import Transactions

        def opened() -> None:
            self._plain_routes = self._routes if self._is_plain else {}

        def closed() -> None:
            self._plain_routes = {}

        return Transactions(state, self._config, self._cluster, sender, on_open=opened, on_closed=closed)

    def _require_transactions(self) -> "Transactions":
        if self._config.transactional_id is None:
            raise ValueError("a transaction needs Producer(transactional_id=...)")
        if self._transactions is None:
            raise ClientClosedError("the producer is not open")
        return self._transactions

    def _refuse_transactions(self) -> None:
        if self._config.transactional_id is not None:
            raise ValueError("a session and transactional_id exclude each other: choose one of them")

    def _keeper(self, sender: Sender) -> "SessionKeeper":
        from tidelog.client.producer.session_keeper import SessionKeeper

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
                # This queue is never open, so a record without key and partition is refused on the slow path.
                route.sticky = PartitionQueue(route.queues[0].key)
        return route

    def _on_cluster_change(self) -> None:
        for name, route in self._routes.items():
            info = self._cluster.image.topics.get(name)
            if info is not None and info.partitions:
                if self._session is not None:
                    # Keep the number of partitions: with more of them keys would move to others, and a topic
                    # with fewer is another topic of the same name.
                    count = len(route.queues)
                    info = info._replace(partitions=info.partitions[:count])
                    if len(info.partitions) < count:
                        continue
                route.update(info, self._accumulator)

    def _require_sending(self, transaction: int | None = None) -> Sender:
        """Also raises unless records can be taken, for the transaction of this number if it is given."""
        sender = self._require_open()
        if self._transactions is not None:
            self._transactions.state.require_transaction(transaction)
        return sender

    def _require_open(self) -> Sender:
        sender = self._sender
        if sender is None or self._is_closed:
            raise ClientClosedError("the producer is not open")
        self._cluster.require_loop()
        sender.outcomes.raise_fatal()
        return sender
