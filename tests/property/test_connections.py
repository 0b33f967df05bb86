"""Connections of one server against a small model: requests are served once and in order, and so answered.

What peers send comes in pieces, answers are ready in any order, peers read slowly or go, quotas make them
wait, turns end, and memory is short. The transport is the model's, the rest is the broker's.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.broker.net.peers import produce_frame, request_frame
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.handlers.context import LateAnswer
from tidelog.broker.limits.connection_limits import ConnectionLimits
from tidelog.broker.limits.handle_budget import HandleBudget
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.queued_memory import QueuedMemory
from tidelog.broker.net import connection as connection_module
from tidelog.broker.net.connection import Connection
from tidelog.broker.net.dispatch import Dispatcher
from tidelog.broker.net.endpoints import Endpoint
from tidelog.broker.net.server import Server
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.storage.disk import Disk
from tidelog.protocol.hot import FetchResponse, ProducePartitionResult
from tidelog.protocol.schema import ApiKey

PEERS = 3
PRODUCED = [("t", [ProducePartitionResult(0, 0, 0)])]
LARGE = {"topics": [{"name": "n" * 30_000} for _ in range(3)]}
KINDS = ("append", "late append", "no answer", "poll", "change", "small", "large")
TOPICS: dict[str, Any] = {"topics": []}
CONFIG = BrokerConfig().with_settings(
    {
        "socket_request_max_bytes": 300_000,
        "queued_max_bytes": 1_000_000,
        "connection_queued_max_requests": 4,
        "connection_queued_max_bytes": 150_000,
    }
)
WRITE_HIGH_WATER_BYTES = 120_000
MUTED_SECONDS = 0.5
TOO_LONG_SECONDS = 5.0
"""Until then every turn has come, every client that waited for its quota goes on, and memory was measured."""


class Transport(asyncio.Transport):
    """A socket whose peer is the test."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Connection) -> None:
        super().__init__()
        self._loop = loop
        self.protocol = protocol
        self.arrived = bytearray()
        self.unsent = bytearray()
        self.received = bytearray()
        self.has_ended = self.is_lost = self._is_closing = self._is_full = False
        self.reads = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return SimpleNamespace(family=None, fileno=lambda: -1)
        return ("10.0.0.1", 9) if name in ("peername", "sockname") else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """A lower one holds here."""

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def writelines(self, buffers: Any) -> None:
        self.write(b"".join(buffers))

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self.unsent += data
            if len(self.unsent) > WRITE_HIGH_WATER_BYTES and not self._is_full:
                self._is_full = True
                self.protocol.pause_writing()

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        self._end_if_sent()

    def abort(self) -> None:
        self.unsent.clear()
        self.close()

    def _end_if_sent(self) -> None:
        if not self.unsent and not self.is_lost:
            self.is_lost = True
            self._loop.call_soon(self.protocol.connection_lost, None)

    def deliver(self, most: int) -> None:
        """What a loop does with a socket that has bytes, or the end."""
        for _ in range(32):
            if not self.reads or self.is_lost:
                return
            count = min(len(buffer := self.protocol.get_buffer(-1)), len(self.arrived), most)
            if not count:
                break
            buffer[:count] = self.arrived[:count]
            del self.arrived[:count]
            self.protocol.buffer_updated(count)
        if self.has_ended and not self.arrived:
            self.abort()

    def take(self, most: int) -> None:
        """The peer reads."""
        self.received += self.unsent[:most]
        del self.unsent[:most]
        if self._is_full and len(self.unsent) <= WRITE_HIGH_WATER_BYTES // 4:
            self._is_full = False
            self.protocol.resume_writing()
        if self._is_closing:
            self._end_if_sent()


class Peer:
    """One connection, and what the model knows of it."""

    def __init__(self, connection: Connection, transport: Transport) -> None:
        self.connection = connection
        self.transport = transport
        self.sent: list[str] = []  # The kind of each request; its place is its correlation id.
        self.served: list[int] = []
        self.answered: list[int] = []
        self.holders: list[Callable[[], bool]] = []  # Whether each change has taken effect.
        self.muted_until = 0.0

    def progress(self) -> object:
        transport = self.transport
        return len(self.served), len(transport.arrived), len(transport.received), transport.is_lost

    def read_answers(self) -> None:
        received = self.transport.received
        while len(received) >= 8 and len(received) >= (size := 4 + int.from_bytes(received[:4], "big")):
            self.answered.append(int.from_bytes(received[4:8], "big"))
            del received[:size]


class Connections:
    """The server, and its peers. Whatever happens runs until nothing is left to do at once."""

    def __init__(self, rng: random.Random) -> None:
        """Between two looks at the time, no time passes or `slow` turns."""
        self.rng, self.seconds, slow = rng, 1_000.0, rng.choice((0.0, 1.2))

        def perf_counter() -> float:
            self.seconds += rng.choice((0.0, slow)) * connection_module.TURN_SECONDS
            return self.seconds

        setattr(connection_module, "time", SimpleNamespace(perf_counter=perf_counter))  # noqa: B010
        self.loop = VirtualLoop(rng)
        self.failures: list[Any] = []
        self.loop.set_exception_handler(lambda _, context: self.failures.append(context))
        self.waiting: deque[Callable[[], None]] = deque()
        self.events = capture_logs()
        self.events.__enter__()
        self.run(self._begin)
        self.throttle()

    def _begin(self) -> None:
        metrics = Metrics()
        handlers = {
            ApiKey.PRODUCE: self.produce,
            ApiKey.FETCH: self.poll,
            ApiKey.CREATE_TOPICS: self.change,
            ApiKey.API_VERSIONS: self.small,
            ApiKey.METADATA: self.large,
        }
        self.dispatcher = Dispatcher(handlers, metrics, PeerEvents())
        limits = ConnectionLimits(burst_seconds=1.0)
        handles = HandleBudget(Disk(), lambda: 0)
        memory = QueuedMemory(CONFIG.queued_max_bytes)
        self.server = Server(
            BrokerSettings(CONFIG), self.dispatcher, metrics, PeerEvents(), handles, memory, limits
        )
        socket: Any = SimpleNamespace(getsockname=lambda: ("10.0.0.1", 9))
        self.peers: list[Peer] = []
        for number in range(PEERS):
            connection = Connection(self.server, Endpoint(CONFIG.listener_configs[0], socket), number)
            transport = Transport(self.loop, connection)
            self.peers.append(Peer(connection, transport))
            connection.connection_made(transport)

    def run(self, act: Callable[[], None], seconds: float = 0.0) -> None:
        """Within the loop, as all that a broker does."""

        async def step() -> None:
            act()
            await self.loop.after(seconds)
            for _ in range(3):
                await asyncio.sleep(0)

        self.loop.run_until_complete(step())

    # The handlers

    def _serve(self, context: Any) -> Peer:
        peer: Peer = self.peers[context.connection.connection_id]
        assert not peer.transport.is_lost
        assert peer.connection._mute_timer is None
        assert all(has_taken_effect() for has_taken_effect in peer.holders)
        peer.served.append(context.header.correlation_id)
        return peer

    def small(self, context: Any, request: Any) -> Any:
        self._serve(context)
        return {"error_code": 0}

    def large(self, context: Any, request: Any) -> Any:
        self._serve(context)
        return LARGE

    def produce(self, context: Any, request: Any) -> Any:
        peer = self._serve(context)
        if request.acks == 0:
            return None
        if not len(request.topics[0][0]) > 1:
            answer = LateAnswer()
            self.waiting.append(lambda: answer.give(PRODUCED))
            return answer
        effect = LateAnswer(10_000, is_effective=False)
        taken: list[bool] = []
        peer.holders.append(lambda: bool(taken) or peer.transport.is_lost)

        def take_effect() -> None:
            taken.append(True)
            self.waiting.append(lambda: effect.give(PRODUCED))
            effect.take_effect()

        self.waiting.append(take_effect)
        return effect

    def poll(self, context: Any, request: Any) -> Any:
        self._serve(context)
        woken = self.loop.create_future()
        self.waiting.append(partial(_resolve, woken, FetchResponse(0, 0, 0, [])))

        async def wait() -> Any:
            return await woken

        return LateAnswer.of(wait(), 10_000)

    def change(self, context: Any, request: Any) -> Any:
        peer = self._serve(context)
        future = self.loop.create_future()
        peer.holders.append(future.done)
        self.waiting.append(partial(_resolve, future, TOPICS))
        return future

    # What happens

    def happen(self) -> None:
        """The next event. Peers seldom end, so that much happens before."""
        does, times = zip(
            (self.send, 10),
            (self.answer, 8),
            (self.deliver, 3),
            (self.read, 3),
            (self.pass_time, 2),
            (self.throttle, 1),
            (self.end, 1),
            strict=True,
        )
        self.rng.choices(does, times)[0]()
        self.nothing_is_paused_without_a_reason()

    def send(self) -> None:
        peer, choice = self.rng.choice(self.peers), self.rng.choice
        if peer.transport.has_ended:
            return
        size = choice((10, 10, 10, 1_000, 100_000))
        for _ in range(choice((1, 2, 3, 4, 30))):
            kind = choice(KINDS)
            peer.transport.arrived += _frame(kind, len(peer.sent), size)
            peer.sent.append(kind)
        self.run(partial(peer.transport.deliver, choice((0, 5_000, 1 << 30, 1 << 30))))

    def deliver(self) -> None:
        self.run(
            partial(self.rng.choice(self.peers).transport.deliver, self.rng.choice((50, 5_000, 1 << 30)))
        )

    def read(self) -> None:
        self.run(partial(self.rng.choice(self.peers).transport.take, self.rng.choice((50_000, 1 << 30))))

    def answer(self) -> None:
        if self.waiting:
            self.waiting.rotate(self.rng.randrange(50))
            self.run(self.waiting.pop())

    def end(self) -> None:
        self.rng.choice(self.peers).transport.has_ended = True

    def throttle(self) -> None:
        self.dispatcher.meter = self.rng.choice((_Meter(), None))  # type: ignore[assignment]

    def pass_time(self) -> None:
        self.run(lambda: None, self.rng.choice((0.001, 0.1, TOO_LONG_SECONDS)))

    def nothing_is_paused_without_a_reason(self) -> None:
        for peer in self.peers:
            one = peer.connection
            if one._closing or self.server.guard.memory.is_short:
                continue  # In the second case the next measurement may wake it.
            is_full = one._queue.is_full()
            is_held_back = not all(has_taken_effect() for has_taken_effect in peer.holders)
            assert one._backlog is None or is_held_back or is_full
            assert not one._paused or one._has_frames() or is_full
            assert one._paused != peer.transport.reads

    def close(self) -> None:
        setattr(connection_module, "time", time)  # noqa: B010
        self.events.__exit__(None, None, None)
        self.loop.close()

    def finish(self) -> None:
        """Everything that can happen happens: all is answered, and nothing is held."""
        self.dispatcher.meter = None
        before: list[Any] = []
        while self.waiting or before != (before := [one.progress() for one in self.peers]):
            while self.waiting:
                self.run(self.waiting.popleft())
            self.run(lambda: None, TOO_LONG_SECONDS)
            for one in self.peers:
                self.run(partial(one.transport.take, 1 << 30))
                self.run(partial(one.transport.deliver, 1 << 30))
        self.nothing_is_paused_without_a_reason()
        assert self.failures == []
        cut = 0
        for one in self.peers:
            one.read_answers()
            wanted = [number for number in one.served if one.sent[number] != "no answer"]
            assert one.served == list(range(len(one.served)))
            assert one.answered == wanted[: len(one.answered)]
            if one.transport.has_ended:
                assert one.transport.is_lost
                continue
            if one.transport.is_lost:
                cut += 1
                continue
            connection = one.connection
            assert len(one.served) == len(one.sent)
            assert one.answered == wanted
            queue = connection._queue
            held = (queue._held_bytes, queue._reserved_bytes, queue._parked_bytes)
            assert (*held, queue._joined_requests, len(queue.waiting)) == (0, 0, 0, 0, 0)
        assert cut <= self.server.metrics._counts["tidelog_connections_cut_for_memory"]
        for one in self.peers:
            one.transport.has_ended = True
            self.run(partial(one.transport.deliver, 1 << 30))
        self.run(lambda: None, TOO_LONG_SECONDS)
        assert self.server.guard._total_bytes() == 0
        assert not self.server._connections
        assert not self.server.guard._held_back
        assert not [task for task in asyncio.all_tasks(self.loop) if not task.done()]


def _resolve(future: "asyncio.Future[Any]", value: object) -> None:
    if not future.done():
        future.set_result(value)


class _Meter:
    """Every third request is above a quota."""

    def arrived(self, *_: Any) -> None:
        """Not counted."""

    worked = arrived

    def timed(self, exchange: Any, steps: Any) -> Any:
        return steps

    def answered(self, exchange: Any, body: Any) -> Any:
        if exchange.header.correlation_id % 3 == 0:
            exchange.client.mute(MUTED_SECONDS)
        return body


def _frame(kind: str, correlation_id: int, size: int) -> bytes:
    records = [("t" if kind != "late append" else "late", [(0, bytes(size))])]
    match kind:
        case "poll":
            return request_frame(ApiKey.FETCH, 7, {"max_bytes": 60_000, "topics": []}, correlation_id)
        case "change":
            return request_frame(ApiKey.CREATE_TOPICS, 5, TOPICS, correlation_id)
        case "small":
            return request_frame(ApiKey.API_VERSIONS, 0, {}, correlation_id)
        case "large":
            return request_frame(ApiKey.METADATA, 1, {}, correlation_id)
    return produce_frame(9, records, 0 if kind == "no answer" else -1, correlation_id)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1 << 32))
def test_requests_are_served_and_answered_once_and_in_order_and_nothing_stays_paused_or_held(
    seed: int,
) -> None:
    connections = Connections(random.Random(seed))
    try:
        for _ in range(40):
            connections.happen()
        connections.finish()
    finally:
        connections.close()
