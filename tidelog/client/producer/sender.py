"""The sender: it sends batches that are ready to the brokers and handles the answers.

Owns: the produce requests in flight and the timers. Invariants:
- no task per request: `_pump` runs after each change, sends every batch that may be sent, and returns;
- at most `max_in_flight_requests_per_connection` produce requests wait for an answer on a connection;
- a request holds at most one batch of a partition; batches of one partition are sent in sequence order;
- for each batch that `state` marks as sent, its result is reported to it exactly once;
- a batch waits no longer for a broker that another one has replaced as the leader, if sequences tell the new
  leader what is stored: that broker may hang. Its late answer is dropped.
Source: KIP-951 for leaders that answers name.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final
from weakref import WeakSet

from tidelog.client.producer.accumulator import Accumulator, PartitionQueue
from tidelog.client.producer.batch import Identity, ProducerBatch
from tidelog.client.producer.buffer_memory import BufferMemory
from tidelog.client.producer.config import ProducerConfig
from tidelog.client.producer.outcomes import Outcomes
from tidelog.client.producer.state import ProducerState
from tidelog.client.producer.transaction_state import TransactionState
from tidelog.protocol import message_types as types
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.hot import NO_LEADER, ProduceRequest, decode_produce_response, encode_produce_request
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Buffer, TopicPartition
from tidelog.wire.backoff import Backoff
from tidelog.wire.cluster import Cluster
from tidelog.wire.connection import Connection
from tidelog.wire.errors import (
    ClientError,
    ConnectionLostError,
    UnexpectedError,
    UnsupportedVersionError,
    broker_error,
)
from tidelog.wire.events import logger
from tidelog.wire.metadata import ClusterImage

_FIRST_VERSION_WITH_ZSTD: Final = 7
# From version 12 on, the broker adds the partition to the transaction (KIP-890).
_LAST_VERSION_THAT_ADDS_NO_PARTITION: Final = 11
_NO_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1
# Deadlines are checked this many times within delivery_timeout_ms, and at least once per second.
_EXPIRY_LOOKS: Final = 20
_MAX_EXPIRY_INTERVAL_MS: Final = 1_000


class _Request:
    """A produce request that waits for its answer."""

    __slots__ = ("batches", "connection", "image", "version")

    def __init__(
        self, connection: Connection, version: int, batches: list[ProducerBatch], image: ClusterImage
    ) -> None:
        self.connection = connection
        self.version = version
        self.batches = batches
        """The batches whose outcome it decides."""
        self.image = image
        """The metadata by which it was sent."""


class _Load:
    """The request that is being filled for one connection."""

    __slots__ = ("batches", "keys", "size_bytes")

    def __init__(self) -> None:
        self.batches: list[ProducerBatch] = []
        self.keys: set[TopicPartition] = set()
        self.size_bytes = 0

    def add(self, batch: ProducerBatch) -> None:
        self.batches.append(batch)
        self.keys.add(batch.key)
        self.size_bytes += batch.size_bytes


class Sender:
    """Sends one producer's batches; created within its loop. Times are milliseconds of the loop's clock."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        buffer_memory: BufferMemory,
        transaction: TransactionState | None = None,
    ) -> None:
        # None for a producer without a transactional id.
        self._transaction = transaction
        # Called while partitions wait until the transaction has them.
        self.on_partitions_wanted: Callable[[], None] | None = None
        self._settled: list[asyncio.Future[None]] = []
        self._config = config
        self._acks = config.acks_number
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._compression = config.compression
        self._cluster = cluster
        self._accumulator = accumulator
        self._buffer_memory = buffer_memory
        self._state = ProducerState(
            is_idempotent=config.enable_idempotence,
            max_in_flight=self._max_in_flight,
            # The coordinator gives a transactional producer its epochs.
            lease_ms=config.producer_id_lease_ms if transaction is None else None,
        )
        self._backoff = Backoff(cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms)
        self.outcomes = Outcomes(self._state, accumulator, buffer_memory, cluster.request_refresh)
        self._loop = asyncio.get_running_loop()
        self._in_flight: dict[Connection, int] = {}
        self._requests: dict[_Request, None] = {}
        self._image = cluster.image
        # Connections with requests that get no answer (acks=0), since the last `flush`.
        self._unanswered: WeakSet[Connection] = WeakSet()
        # Brokers that throttle this client (KIP-219), and when the throttling ends.
        self._throttled_until_ms: dict[Connection, int] = {}
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._next_expiry_ms = 0
        self._expiry_interval_ms = min(
            _MAX_EXPIRY_INTERVAL_MS, max(1, config.delivery_timeout_ms // _EXPIRY_LOOKS)
        )
        self._id_task: asyncio.Task[None] | None = None
        cluster.add_listener(self.wake)

    @property
    def state(self) -> ProducerState:
        """The state, which a session saves."""
        return self._state

    async def identity(self) -> Identity:
        """The producer id and epoch; requested from a broker first if needed. Raises the broker's error."""
        while (identity := self._state.identity) is None:
            self._start_obtaining()
            if self._id_task is not None:
                await asyncio.wait([self._id_task])
            self.outcomes.raise_fatal()
        return identity

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def wake(self) -> None:
        """Something changed: in the next step of the loop, send the batches that may be sent."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._pump)

    async def flush(self) -> None:
        """Wait until each present batch is resolved, and read by a broker. They do not linger meanwhile."""
        self._accumulator.hurry()
        self.wake()
        try:
            await self.outcomes.wait_for_all()
            await self._wait_for_readers()
        finally:
            self._accumulator.relax()

    async def _wait_for_readers(self) -> None:
        """With acks=0: wait until the brokers have read the requests, or their connections end. An answer to
        any request proves that all before it were read."""
        values: DictOf[types.MetadataRequest] = {"topics": [], "allow_auto_topic_creation": False}
        asked = [each.call(ApiKey.METADATA, values) for each in self._unanswered]
        self._unanswered.clear()
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, Exception) and not isinstance(answer, ClientError):
                raise answer

    async def settle(self) -> None:
        """Wait until no batch is in flight and every one is resolved, or the producer has failed."""
        while not self.outcomes.is_settled and self.outcomes.fatal_error is None:
            waiter = self._loop.create_future()
            self._settled.append(waiter)
            self.wake()
            await waiter

    def close(self) -> None:
        """Give up every batch that is not resolved, and stop."""
        self.outcomes.give_up_all("the producer was closed")
        if self._timer is not None:
            self._timer.cancel()
        if self._id_task is not None:
            self._id_task.cancel()

    def _pump(self) -> None:
        try:
            self._send_ready()
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Work of this producer ended by an error that nobody expects: whoever waits for it gets this."""
        logger.error("sender_failed", exc_info=error)
        self.outcomes.fail_unexpectedly(UnexpectedError.of(error))
        self._wake_settled()

    def _send_ready(self) -> None:
        self._is_scheduled = False
        if self.outcomes.is_settled:
            self._wake_settled()
            return
        if self._cluster.refusal is not None:
            # As in Kafka's clients, a failed authentication is permanent.
            self.outcomes.fail(self._cluster.refusal)
        now_ms = self.now_ms()
        if self._image is not self._cluster.image:
            self._image = self._cluster.image
            self._leave_old_leaders(now_ms)
        if now_ms >= self._next_expiry_ms:
            self.outcomes.expire(now_ms)
            self._next_expiry_ms = now_ms + self._expiry_interval_ms
        self._start_obtaining()
        if len(self._in_flight) >= len(self._cluster.image.nodes):
            # A broker that starts may name no broker at all.
            if min(self._in_flight.values(), default=0) >= self._max_in_flight:
                # The next answer wakes this again.
                self._set_timer(self._next_expiry_ms, now_ms)
                return
            if self._accumulator.awaits_more():
                # The brokers are busy, and their next requests get more records in the loop's next turn.
                self.wake()
                return
        # The first requests hold the retries.
        while loads := self._fill(now_ms):
            for connection, load in loads.items():
                self._transmit(connection, load.batches)
            if self._accumulator.is_empty:
                break
        if self.outcomes.is_settled:
            self._wake_settled()
            return
        self._arm(now_ms)
        transaction = self._transaction
        if transaction is not None and transaction.to_add and self.on_partitions_wanted is not None:
            self.on_partitions_wanted()

    def _leave_old_leaders(self, now_ms: int) -> None:
        """Send again what waits for a broker in whose place another one leads. Without sequences that could
        store it twice."""
        if not self._config.enable_idempotence:
            return
        for request in list(self._requests):
            for batch in [each for each in request.batches if self._is_replaced(each.key, request.image)]:
                request.batches.remove(batch)
                self.outcomes.act(self._state.on_lost(batch, now_ms), None)
            if not request.batches:
                self._ended(request)

    def _ended(self, request: _Request) -> None:
        """Its outcome does not matter any more, so it does not count for the limit of requests in flight."""
        if request in self._requests:
            del self._requests[request]
            waiting = self._in_flight.pop(request.connection) - 1
            if waiting:
                self._in_flight[request.connection] = waiting

    def _is_replaced(self, key: TopicPartition, image: ClusterImage) -> bool:
        """Whether another node leads the partition in a later epoch than in `image`."""
        now, then = self._cluster.image.partition(key), image.partition(key)
        if now is None or then is None or now.leader < 0:
            return False
        return now.leader != then.leader and now.leader_epoch > then.leader_epoch

    def _wake_settled(self) -> None:
        waiters, self._settled = self._settled, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _start_obtaining(self) -> None:
        is_hopeless = self.outcomes.fatal_error is not None
        if self._state.needs_producer_id and self._id_task is None and not is_hopeless:
            self._id_task = self._loop.create_task(self._obtain_producer_id())

    def _fill(self, now_ms: int) -> dict[Connection, _Load]:
        """At most one request per connection, with batches that may be sent now. They are marked as sent."""
        loads: dict[Connection, _Load] = {}
        routes: dict[int, Connection | None] = {}
        for key in self._state.unsettled_partitions():
            due_ms = self._state.retry_due_ms(key)
            if due_ms is None or due_ms > now_ms:
                continue
            connection = self._route(key, now_ms, routes)
            if connection is not None:
                batch = self._state.take_retry(key, connection, now_ms)
                if batch is not None:
                    loads.setdefault(connection, _Load()).add(batch)
        awaits_more = self._accumulator.awaits_more()
        for queue in self._accumulator.waiting_queues():
            self._fill_from(queue, loads, routes, now_ms, awaits_more=awaits_more)
        return loads

    def _fill_from(
        self,
        queue: PartitionQueue,
        loads: dict[Connection, _Load],
        routes: dict[int, Connection | None],
        now_ms: int,
        *,
        awaits_more: bool,
    ) -> None:
        ready_ms = self._accumulator.ready_at_ms(queue)
        if ready_ms is None or ready_ms > now_ms:
            return
        connection = self._route(queue.key, now_ms, routes)
        self._state.renew(queue.key, now_ms)
        if self._state.needs_producer_id:
            self._start_obtaining()
        if connection is None or not self._state.accepts_new(queue.key, connection):
            return
        if self._transaction is not None and not self._transaction.admits(queue.key):
            return
        if awaits_more and connection in self._in_flight and queue.batches[0] is queue.open:
            # The broker is busy, and the request gets more records in the loop's next turn.
            self.wake()
            return
        load = loads.get(connection)
        if load is None:
            load = loads[connection] = _Load()
        elif (
            queue.key in load.keys
            or load.size_bytes + queue.batches[0].size_bytes > self._config.max_request_size
        ):
            return
        load.add(self._state.take_new(self._accumulator.drain(queue), connection, now_ms))

    def _route(
        self, key: TopicPartition, now_ms: int, routes: dict[int, Connection | None]
    ) -> Connection | None:
        """The connection to the partition's leader, if one more request may be sent on it now. `routes` has
        those of the leaders that were looked up before."""
        leader = self._cluster.image.leader(key)
        if leader < 0:
            self._cluster.request_refresh(key.topic)
            return None
        if leader not in routes:
            routes[leader] = self._free_connection(leader, now_ms)
        return routes[leader]

    def _free_connection(self, leader: int, now_ms: int) -> Connection | None:
        connection = self._cluster.connection(leader)
        if connection is None or connection.is_congested:
            return None
        if self._throttled_until_ms.get(connection, now_ms) > now_ms:
            return None
        return connection if self._in_flight.get(connection, 0) < self._max_in_flight else None

    def _transmit(self, connection: Connection, batches: list[ProducerBatch]) -> None:
        topics: dict[str, list[tuple[int, Buffer | None]]] = {}
        transaction = self._transaction
        for batch in batches:
            data = batch.encode(self._compression, is_transactional=transaction is not None)
            self._accumulator.shrink(batch, len(data))
            self._buffer_memory.metrics.batch_sent(
                batch.record_count, len(data), batch.attempts, self._loop.time()
            )
            topics.setdefault(batch.key.topic, []).append((batch.key.partition, data))
        self._buffer_memory.notify()
        try:
            at_least = _FIRST_VERSION_WITH_ZSTD if self._compression is Compression.ZSTD else 0
            version, transactional_id = connection.version(ApiKey.PRODUCE, at_least), None
            if transaction is not None:
                transactional_id = transaction.transactional_id
                if not transaction.has_epoch_per_transaction:
                    version = min(version, _LAST_VERSION_THAT_ADDS_NO_PARTITION)
            timeout_ms = self._cluster.config.request_timeout_ms
            request = ProduceRequest(transactional_id, self._acks, timeout_ms, list(topics.items()))
            body = encode_produce_request(version, request)
            if self._acks == 0:
                connection.send_unanswered(ApiKey.PRODUCE, version, body)
                self._unanswered.add(connection)
            else:
                sent = _Request(connection, version, batches, self._cluster.image)
                connection.send(ApiKey.PRODUCE, version, body, partial(self._on_answer, sent))
                self._requests[sent] = None
                self._in_flight[connection] = self._in_flight.get(connection, 0) + 1
        except ConnectionLostError as error:
            for batch in batches:
                self.outcomes.act(self._state.on_not_sent(batch, self._retry_at_ms(batch)), error)
        except UnsupportedVersionError as error:
            for batch in batches:
                self._judge(batch, ErrorCode.UNSUPPORTED_VERSION, message=str(error))
        else:
            if self._acks == 0:
                for batch in batches:
                    self._judge(batch, ErrorCode.NONE)

    def _on_answer(self, request: _Request, body: memoryview | None, error: ClientError | None) -> None:
        if isinstance(error, UnexpectedError):
            self.failed(error)
        results = {}
        connection = request.connection
        if body is not None:
            # Decode first: malformed bytes end this call here, and the handler is called again with an error.
            response = decode_produce_response(request.version, body)
            if response.throttle_time_ms > 0:
                self._throttled_until_ms[connection] = self.now_ms() + response.throttle_time_ms
            leaders = {}
            for topic, partitions in response.topics:
                for result in partitions:
                    results[topic, result.index] = result
                    if result.current_leader != NO_LEADER:
                        leaders[TopicPartition(str(topic), result.index)] = result.current_leader
            if leaders:
                self._cluster.leaders_named(leaders, response.node_endpoints)
        self._ended(request)
        for batch in request.batches:
            answer = results.get(batch.key)
            if answer is None:
                self.outcomes.act(self._state.on_lost(batch, self._retry_at_ms(batch, request)), error)
            else:
                code, retry_at_ms = error_code(answer.error_code), 0
                if code is not ErrorCode.NONE:
                    retry_at_ms = self._retry_at_ms(batch, request)
                times = answer.base_offset, answer.log_append_time_ms
                self._judge(batch, code, *times, answer.error_message, retry_at_ms)
        self.wake()

    def _judge(
        self,
        batch: ProducerBatch,
        code: ErrorCode,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        message: str | None = None,
        retry_at_ms: int = 0,
    ) -> None:
        # The answer to a duplicate has a time even if records keep their own: the batch's max timestamp.
        if batch.attempts > 1 and log_append_time_ms == batch.builder.max_timestamp:
            log_append_time_ms = -1
        is_error = code is not ErrorCode.NONE
        verdict = self._state.on_answer(
            batch,
            code,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            message=message,
            retry_at_ms=retry_at_ms,
        )
        self.outcomes.act(verdict, broker_error(code, "the broker answered", message) if is_error else None)

    def _retry_at_ms(self, batch: ProducerBatch, request: _Request | None = None) -> int:
        if request is not None and self._is_replaced(batch.key, request.image):
            # Who leads is known already.
            return self.now_ms()
        return self.now_ms() + self._backoff.delay_ms(batch.attempts)

    def _arm(self, now_ms: int) -> None:
        """Call `_pump` again when the next batch has lingered, may be retried, or may have expired."""
        at_ms = self._next_expiry_ms
        for key in self._state.unsettled_partitions():
            due_ms = self._state.retry_due_ms(key)
            if due_ms is not None and now_ms < due_ms < at_ms:
                at_ms = due_ms
        for queue in self._accumulator.waiting_queues():
            ready_ms = self._accumulator.ready_at_ms(queue)
            if ready_ms is not None and now_ms < ready_ms < at_ms:
                at_ms = ready_ms
        for connection, until_ms in list(self._throttled_until_ms.items()):
            if until_ms <= now_ms or not connection.is_open:
                del self._throttled_until_ms[connection]
            else:
                at_ms = min(at_ms, until_ms)
        self._set_timer(at_ms, now_ms)

    def _set_timer(self, at_ms: int, now_ms: int) -> None:
        if self._timer is not None:
            if now_ms < self._timer_at_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = at_ms
        # One millisecond more, because now_ms is rounded down.
        self._timer = self._loop.call_later((at_ms - now_ms + 1) / 1000, self.wake)

    async def _obtain_producer_id(self) -> None:
        """Send InitProducerId until a broker gives an id. If an error is not retriable, end the producer."""
        values: DictOf[types.InitProducerIdRequest] = {
            "transactional_id": None,
            "transaction_timeout_ms": _NO_TRANSACTION_TIMEOUT_MS,
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": NO_PRODUCER_EPOCH,
        }
        failures = 0
        try:
            while True:
                error: ClientError
                try:
                    answer: types.InitProducerIdResponse = await self._cluster.call_any(
                        ApiKey.INIT_PRODUCER_ID, values
                    )
                    code = error_code(answer.error_code)
                    if code is ErrorCode.NONE:
                        self._state.set_producer_id(answer.producer_id, answer.producer_epoch)
                        logger.info("producer_id_obtained", producer_id=answer.producer_id)
                        break
                    error = broker_error(code, "the broker gave no producer id")
                except ClientError as caught:
                    error = caught
                if not error.retriable:
                    self.outcomes.fail(error)
                    break
                failures += 1
                await asyncio.sleep(self._backoff.delay_ms(failures) / 1000)
        except Exception as failure:
            self.failed(failure)
        finally:
            self._id_task = None
        # Not if it was cancelled: the loop ends, and a new task would be destroyed with it.
        self.wake()
