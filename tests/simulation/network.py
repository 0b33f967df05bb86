"""A simulated world for the two producer machines: virtual time, one broker, connections that fail.

Everything random comes from one seeded generator and everything that happens is an event on one heap, so a
seed replays exactly. The broker's judgement is the real `ProducerStates`; what it stores are the bytes that
the client's batches were encoded to, decoded again.

What the network does is what TCP and a crashing broker can do: a connection delivers its requests in order,
with delays; when it is cut, answers are lost, and requests that were under way may still arrive, long after.
On top a request may be processed twice in a row (a proxy that repeats), and one answer may be swallowed.
"""

import heapq
import random
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.producer_state import Duplicate, ProducerRules, Refusal
from tidelog.client import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import BatchHeader, batch_crc_is_valid, decode_batch, read_batch_header


class Faults(NamedTuple):
    """Chances (0 to 1) of each mishap, and how long things take, in milliseconds."""

    cut_before: float = 0.0
    cut_after: float = 0.0
    swallow_answer: float = 0.0
    repeat_request: float = 0.0
    refuse_retriable: float = 0.0
    append_then_refuse: float = 0.0
    crash: float = 0.0
    max_delay_ms: int = 20
    max_ghost_delay_ms: int = 2_000


class Answer(NamedTuple):
    code: ErrorCode
    base_offset: int = -1


class Clock:
    """Virtual time: what was scheduled happens in order of time, then of scheduling."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._numbers), action))

    def step(self) -> bool:
        if not self._events:
            return False
        self.now_ms, _, action = heapq.heappop(self._events)
        action()
        return True


class Log:
    """One partition of the broker: what is on disk, what is only appended, and the real producer machine."""

    def __init__(self, rules: ProducerRules, next_producer_id: Callable[[], int]) -> None:
        self._rules = rules
        self._next_producer_id = next_producer_id
        self.values: list[bytes] = []
        self.headers: list[tuple[BatchHeader, int]] = []
        self.states = ProducerStates(rules, next_producer_id)
        self.max_batch_bytes = 1 << 30
        self._before: BatchHeader | None = None

    def remember(self, header: BatchHeader) -> None:
        """Know the producer of `header` as if this batch had been stored long ago."""
        self._before = header
        self.states.apply(header, -1, 0)

    def append(self, data: bytes, now_ms: int) -> Answer:
        header = read_batch_header(data)
        assert batch_crc_is_valid(data, header)
        if len(data) > self.max_batch_bytes:
            return Answer(ErrorCode.MESSAGE_TOO_LARGE)
        verdict = self.states.check(header)
        if isinstance(verdict, Duplicate):
            return Answer(ErrorCode.NONE, verdict.base_offset)
        if isinstance(verdict, Refusal):
            return Answer(verdict.code)
        base_offset = len(self.values)
        self.values += [record.value or b"" for record in decode_batch(data)]
        self.headers.append((header, base_offset))
        self.states.apply(header, base_offset, now_ms)
        return Answer(ErrorCode.NONE, base_offset)

    def restart(self, durable_batches: int, now_ms: int) -> None:
        """Lose what was not on disk and rebuild the state from what is."""
        self.headers = self.headers[:durable_batches]
        end = self.headers[-1][1] + self.headers[-1][0].record_count if self.headers else 0
        self.values = self.values[:end]
        self.states = ProducerStates(self._rules, self._next_producer_id)
        if self._before is not None:
            self.states.apply(self._before, -1, now_ms)
        for header, base_offset in self.headers:
            self.states.apply(header, base_offset, now_ms)


class Broker:
    """Appends at once, answers once the batch is on disk; a crash loses what is not, and every connection."""

    def __init__(self, clock: Clock, rng: random.Random, faults: Faults, rules: ProducerRules) -> None:
        self.clock = clock
        self.rng = rng
        self.faults = faults
        self.logs: dict[TopicPartition, Log] = {}
        self.connections: list[Connection] = []
        self.next_producer_id = 0
        self._rules = rules
        self._durable: dict[TopicPartition, int] = {}
        self._life = 0

    def log(self, key: TopicPartition) -> Log:
        if key not in self.logs:
            self.logs[key] = Log(self._rules, lambda: self.next_producer_id)
        return self.logs[key]

    def init_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def receive(self, key: TopicPartition, data: bytes, answer: Callable[[Answer], None]) -> None:
        faults, rng, log = self.faults, self.rng, self.log(key)
        if rng.random() < faults.refuse_retriable:
            answer(Answer(rng.choice([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])))
            return
        log.states.expire(self.clock.now_ms)
        result = log.append(data, self.clock.now_ms)
        if rng.random() < faults.repeat_request:
            result = rng.choice([result, log.append(data, self.clock.now_ms)])
        if result.code is ErrorCode.NONE and rng.random() < faults.append_then_refuse:
            result = Answer(ErrorCode.REQUEST_TIMED_OUT)
        appended, life = len(log.headers), self._life

        def on_disk() -> None:
            if life == self._life:
                self._durable[key] = max(self._durable.get(key, 0), appended)
                answer(result)

        self.clock.after(rng.randint(0, faults.max_delay_ms), on_disk)
        if rng.random() < faults.crash:
            self.clock.after(rng.randint(0, faults.max_delay_ms), self.crash)

    def is_on_disk(self, key: TopicPartition) -> bool:
        """Whether a crash now would lose nothing of this partition."""
        return self._durable.get(key, 0) >= len(self.log(key).headers)

    def crash(self) -> None:
        self._life += 1
        for key, log in self.logs.items():
            log.restart(self._durable.get(key, 0), self.clock.now_ms)
        for connection in list(self.connections):
            connection.cut()


class Connection:
    """Requests arrive in order; so do answers, unless one is swallowed or the connection is cut."""

    def __init__(self, broker: Broker, on_cut: Callable[["Connection"], None]) -> None:
        self._broker = broker
        self._on_cut = on_cut
        self.is_open = True
        self._arrives_ms = 0
        self._answers_ms = 0
        broker.connections.append(self)

    def send(self, key: TopicPartition, data: bytes, on_answer: Callable[[Answer], None]) -> None:
        broker, rng, faults = self._broker, self._broker.rng, self._broker.faults
        clock = broker.clock
        if rng.random() < faults.cut_before:
            self._cut_soon()
        self._arrives_ms = max(self._arrives_ms, clock.now_ms) + rng.randint(0, faults.max_delay_ms)
        swallowed = rng.random() < faults.swallow_answer

        def answer(result: Answer) -> None:
            if not self.is_open or swallowed:
                return
            self._answers_ms = max(self._answers_ms, clock.now_ms) + rng.randint(0, faults.max_delay_ms)
            clock.after(self._answers_ms - clock.now_ms, lambda: self._deliver(on_answer, result))
            if rng.random() < faults.cut_after:
                self._cut_soon()

        def arrive() -> None:
            if self.is_open:
                broker.receive(key, data, answer)
            elif rng.random() < 0.5:
                # The bytes had left: they reach the broker although nobody waits for the answer.
                self._ghost_ms = max(self._ghost_ms, clock.now_ms) + rng.randint(0, faults.max_ghost_delay_ms)
                clock.after(self._ghost_ms - clock.now_ms, lambda: broker.receive(key, data, answer))

        clock.after(self._arrives_ms - clock.now_ms, arrive)

    _ghost_ms = 0

    def _deliver(self, on_answer: Callable[[Answer], None], result: Answer) -> None:
        if self.is_open:
            on_answer(result)

    def _cut_soon(self) -> None:
        self._broker.clock.after(self._broker.rng.randint(0, self._broker.faults.max_delay_ms), self.cut)

    def cut(self) -> None:
        if self.is_open:
            self.is_open = False
            self._broker.connections.remove(self)
            self._on_cut(self)
