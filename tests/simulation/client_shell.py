"""The smallest shell that can drive the client's pure machines: what the asyncio sender does, on virtual
time."""

import random

from tests.simulation.network import Answer, Broker, Clock, Connection
from tidelog.client import ClientError, DeliveryTimeoutError, TopicPartition
from tidelog.client.producer.accumulator import Accumulator
from tidelog.client.producer.batch import Outcome, ProducerBatch
from tidelog.client.producer.state import ProducerState
from tidelog.client.producer.verdicts import Action, Verdict
from tidelog.protocol.compression import Compression

REQUEST_TIMEOUT_MS = 500
RETRY_BACKOFF_MS = 30


class Client:
    """One producer: sends numbered values and remembers how each ended."""

    def __init__(
        self,
        clock: Clock,
        broker: Broker,
        rng: random.Random,
        *,
        linger_ms: int,
        batch_bytes: int,
        delivery_timeout_ms: int,
        state: ProducerState | None = None,
    ) -> None:
        self.clock, self.broker, self.rng = clock, broker, rng
        self.accumulator = Accumulator(
            max_batch_size=batch_bytes,
            linger_ms=linger_ms,
            buffer_memory=1 << 24,
            delivery_timeout_ms=delivery_timeout_ms,
        )
        self.state = state or ProducerState()
        self.sent: dict[TopicPartition, list[tuple[ProducerBatch, int, bytes]]] = {}
        self._connection: Connection | None = None
        self._on_wire: dict[int, tuple[ProducerBatch, Connection]] = {}
        self._next_attempt = 0
        self._asked_for_id = False
        self._timer_ms: int | None = None
        self.is_dead = False
        self.fatal_error: ClientError | None = None

    def kill(self) -> None:
        """The process is gone; what it wrote to its socket may still arrive."""
        self.is_dead = True
        self._on_wire.clear()
        if self._connection is not None:
            self._connection.cut()

    def send(self, key: TopicPartition, value: bytes) -> None:
        queue = self.accumulator.queue(key)
        now_ms = self.clock.now_ms
        if queue.open is None or not queue.open.builder.append(now_ms, None, value):
            self.accumulator.open_batch(queue, 200, now_ms, now_ms, None, value)
        assert queue.open is not None
        self.sent.setdefault(key, []).append((queue.open, queue.open.record_count - 1, value))
        self.pump()

    def pump(self) -> None:
        if self.is_dead:
            return
        now_ms = self.clock.now_ms
        self._expire(now_ms)
        if self.state.needs_producer_id and not self._asked_for_id:
            self._asked_for_id = True
            self.clock.after(self.rng.randint(1, 20), self._on_producer_id)
        if self._connection is None:
            self._connection = Connection(self.broker, self._on_cut)
        connection = self._connection
        for key in self.state.unsettled_partitions():
            batch = self.state.take_retry(key, connection, now_ms)
            if batch is not None:
                self._transmit(batch, connection)
        for queue in self.accumulator.waiting_queues():
            while (ready_ms := self.accumulator.ready_at_ms(queue)) is not None and ready_ms <= now_ms:
                if not self.state.accepts_new(queue.key, connection) or not connection.is_open:
                    break
                self._transmit(self.state.take_new(self.accumulator.drain(queue), connection), connection)
        self._arm(now_ms)

    def _arm(self, now_ms: int) -> None:
        """Look again soon, as long as anything is left to do."""
        if self.is_dead:
            return
        if self._timer_ms is None and not self.is_idle:
            self._timer_ms = now_ms + 10
            self.clock.after(10, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_ms = None
        self.pump()

    @property
    def is_idle(self) -> bool:
        return self.accumulator.is_empty and not list(self.state.unsettled_partitions())

    def _transmit(self, batch: ProducerBatch, connection: Connection) -> None:
        data = bytes(batch.encode(Compression.NONE))
        self.accumulator.shrink(batch, len(data))
        attempt = self._next_attempt
        self._next_attempt += 1
        self._on_wire[attempt] = (batch, connection)
        connection.send(batch.key, data, lambda answer: self._on_answer(attempt, answer))
        self.clock.after(REQUEST_TIMEOUT_MS, lambda: self._on_timeout(attempt))

    def _on_answer(self, attempt: int, answer: Answer) -> None:
        landed = self._on_wire.pop(attempt, None)
        if landed is None:
            return
        retry_at_ms = self.clock.now_ms + RETRY_BACKOFF_MS
        self._act(
            self.state.on_answer(
                landed[0], answer.code, base_offset=answer.base_offset, retry_at_ms=retry_at_ms
            )
        )
        self.pump()

    def _on_timeout(self, attempt: int) -> None:
        if attempt in self._on_wire:
            self._on_wire[attempt][1].cut()

    def _on_cut(self, connection: Connection) -> None:
        self._connection = None
        lost = [number for number, (_, over) in self._on_wire.items() if over is connection]
        for number in lost:
            batch, _ = self._on_wire.pop(number)
            self._act(self.state.on_lost(batch, self.clock.now_ms + RETRY_BACKOFF_MS))
        self._arm(self.clock.now_ms)

    def _on_producer_id(self) -> None:
        self._asked_for_id = False
        if self.is_dead:
            return
        self.state.set_producer_id(self.broker.init_producer_id(), 0)
        self.pump()

    def _expire(self, now_ms: int) -> None:
        for batch in self.accumulator.expire(now_ms):
            assert batch.attempts == 0
            self._settle(batch, Outcome(-1, -1, DeliveryTimeoutError("never sent", *batch.key)))
        for key in self.state.unsettled_partitions():
            for verdict in self.state.expire(key, now_ms):
                self._act(verdict)

    def _act(self, verdict: Verdict) -> None:
        batch = verdict.batch
        if verdict.action is Action.STORED:
            self._settle(batch, Outcome(verdict.base_offset, -1))
        elif verdict.action in (Action.FAILED, Action.FATAL):
            self._settle(batch, Outcome(-1, -1, verdict.error))
            if verdict.action is Action.FATAL:
                self.fatal_error = verdict.error
        elif verdict.action is Action.SPLIT:
            parts = batch.split()
            self.accumulator.replace(batch, parts)
            self.state.split(batch, parts)

    def _settle(self, batch: ProducerBatch, outcome: Outcome) -> None:
        assert batch.resolve(outcome), f"{batch} was settled twice"
        self.accumulator.release(batch)
