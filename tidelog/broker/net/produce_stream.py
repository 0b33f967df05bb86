"""Serves the Produce requests of a producer that sends one batch after another: the fast path of most.

Owns `ProduceStream`, which a connection begins after two requests of one shape (`hot.produce_shape`), and
`AwaitedProduce`, such requests until their batches are durable. Requests that arrived together for one
partition are appended by one write and answered together, if the log can do so (`append_run`). Invariants: a
stream serves a request as `dispatch` and `handlers.produce` do (the rules are there and in the replica), or
it stores nothing and returns None, and the request is dispatched.

For the event loop only. Views of a frame are not kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.handlers.produce_answers import not_durable, refused
from tidelog.broker.handlers.produce_requests import named
from tidelog.broker.net.exchange import Exchange
from tidelog.broker.net.request_queue import Waiting
from tidelog.broker.storage.batch_inspection import Effort, TooMuchError
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.framing import RequestHeader, decode_request_header
from tidelog.protocol.hot import ProduceShape
from tidelog.protocol.steps import Steps, finish
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.storage.partition_log import AppendResult
    from tidelog.protocol.hot import ProducePartitionResult

MOST_AT_ONCE: Final = 64
"""Requests that are appended together. Each takes two buffers of a write, which has at most 1,024."""
Answering: TypeAlias = Callable[[Exchange, Any], Steps[list[Buffer]]]
"""Makes the frame of an answer from what a handler would give."""
_now = time.perf_counter


class ProduceStream:
    """The requests of one connection that have one shape."""

    __slots__ = (
        "_answer_of", "_first", "_match", "_topic", "client", "handler", "route", "shape",
    )  # fmt: skip

    def __init__(
        self, answering: Answering, first: Exchange, handler: ProduceHandler, shape: ProduceShape
    ) -> None:
        """`first` is one of them."""
        self._answer_of = answering
        self._first = first
        self.client = first.client
        self.route = first.route
        self.handler = handler
        self.shape = shape
        self._match = shape.match
        self._topic = named(shape.topic, handler.name_of)

    @classmethod
    def after(
        cls, answering: Answering, exchange: Exchange, handler: ProduceHandler, frame: memoryview
    ) -> ProduceStream | None:
        """A stream of requests like this one; None if they can be of none."""
        shape = ProduceShape.of(exchange.route.version, frame, exchange.request)
        return None if shape is None else cls(answering, exchange, handler, shape)

    def serve(
        self, frames: list[memoryview], started: float, most: int = MOST_AT_ONCE
    ) -> list[Buffer] | AwaitedProduce | None:
        """The answer to the last of `frames`, and perhaps to at most `most` from the end on, or what waits
        for it. They leave the list. None if the last must be dispatched.

        The last of `frames` arrived first; `started` is their time of arrival by `time.perf_counter`.
        """
        found = self._match(frames[-1])
        if found is None:
            return None
        correlation_id, index, records = found
        handler, shape = self.handler, self.shape
        topic, now_ms = self._topic, handler.clock_ms()
        ids, batches = [correlation_id], [records]
        if len(frames) > 1:
            self._add_later(frames, index, ids, batches, min(most, MOST_AT_ONCE))
        try:
            try:
                replica = handler.rules.replica_for(self._first, None, shape.acks, topic, index, records)
                # One alone costs less without the lists of a run.
                run = replica.append_run(batches, now_ms) if len(batches) > 1 else None
                if run is None:
                    run = 1, replica.append_as_leader(records, now_ms, Effort())
            except (ApiError, TooMuchError):
                return None  # Nothing was stored: the general path finds the same error, and returns it.
            count, written = run
            if count < len(ids):
                del ids[count:], batches[count:]
            awaited = replica.awaited(shape.acks)
            if awaited is None:
                result = replica.soon_durable(written)
            else:
                waiting = AwaitedProduce(self, ids, index, replica, started)
                result = replica.when(awaited, written, waiting, 0)
                if not waiting.is_durable:
                    self._count(replica, result, batches)
                    # From here on they are answered when they are durable, before by `_failed`.
                    waiting.result = result
                    handler.deadlines.begin(waiting, shape.timeout_ms)
                    del frames[-count:]
                    return waiting
            self._count(replica, result, batches)
            answer = self.answer(ids, index, result, started)
            del frames[-count:]
            return [answer]
        except Exception as error:
            return self._failed(frames, len(ids), error, started)

    def _count(self, replica: Replica, result: AppendResult, batches: list[memoryview]) -> None:
        if result.duplicate:
            self.handler.count_duplicate(replica, result, batches[0])
        else:
            size_bytes, count = sum(map(len, batches)), result.last_offset - result.base_offset + 1
            self.handler.batch_appended(self._topic, count, size_bytes)

    def _add_later(
        self, frames: list[memoryview], index: int, ids: list[int], batches: list[memoryview], most: int
    ) -> None:
        """Add those of the requests after the first one that go to the same partition."""
        for frame in frames[-2 : -most - 1 : -1]:
            found = self._match(frame)
            if found is None or found[1] != index:
                return
            ids.append(found[0])
            batches.append(found[2])

    def _failed(self, frames: list[memoryview], count: int, error: Exception, started: float) -> list[Buffer]:
        """The answer to the first requests, which a fault of the broker ended, perhaps after their append."""
        route = self.route
        answer: list[Buffer] = []
        for _ in range(count):
            frame = frames.pop()
            header, position = decode_request_header(frame)
            request = finish(route.decode(frame[position:]))
            exchange = Exchange(self.client, route, header, started)
            exchange.request = request
            answer += finish(self._answer_of(exchange, error))
        return answer

    def answer(self, ids: list[int], index: int, result: AppendResult, started: float) -> bytes:
        """The frames of the answers for stored batches, counted."""
        base_offset, _, append_time_ms, start_offset, _ = result
        code, count = 0, len(ids)
        if base_offset >= 0:
            self.route.tally.succeeded(_now() - started, count)
        else:
            code = int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
            self.route.tally.finished(((code, 1),), _now() - started)
        if count > 1:
            return self.shape.answers(ids, index, base_offset, append_time_ms, start_offset)
        return self.shape.answer(ids[0], index, code, base_offset, append_time_ms, start_offset)

    def refusal(self, ids: list[int], row: ProducePartitionResult, started: float) -> list[Buffer]:
        """The frames of the answers for batches that did not become durable, counted."""
        route = self.route
        client_id = self._first.header.client_id
        response = [(self.shape.topic, [row])]
        answer: list[Buffer] = []
        for correlation_id in ids:
            header = RequestHeader(route.api_key, route.version, correlation_id, client_id)
            exchange = Exchange(self.client, route, header, started)
            answer += finish(self._answer_of(exchange, response))
        return answer


class AwaitedProduce(Waiting):
    """Requests whose batches are written and not yet durable: a CommitWaiter, and a place in the queue."""

    __slots__ = (
        "_ids", "_index", "_replica", "_started", "_stream", "answer", "deadline", "is_durable", "requests",
        "result",
    )  # fmt: skip

    def __init__(
        self, stream: ProduceStream, ids: list[int], index: int, replica: Replica, started: float
    ) -> None:
        """`ids` are their correlation ids."""
        self.answer = None
        self.requests = len(ids)
        self.deadline = 0.0
        self.is_durable = False
        self.result: AppendResult | None = None
        """Set where the request has to wait."""
        self._stream: ProduceStream | None = stream
        self._ids = ids
        self._index = index
        self._replica = replica
        self._started = started

    def partition_committed(self, slot: int) -> None:
        self.is_durable = True
        stream, result = self._stream, self.result
        if stream is None or result is None:
            return
        stream.handler.deadlines.discard(self)
        self._stream = None
        self.answer = [stream.answer(self._ids, self._index, result, self._started)]
        stream.client.answer_ready(self)

    def partition_failed(self, slot: int, code: ErrorCode) -> None:
        self._refuse(refused(self._index, code, code.message))

    def time_out(self) -> None:
        """Answer that the batches were not durable in time, or why they never will be."""
        self._refuse(not_durable(self._index, self._replica))

    def _refuse(self, row: ProducePartitionResult) -> None:
        stream, self._stream = self._stream, None
        if stream is None:
            return
        stream.handler.deadlines.discard(self)
        self.answer = stream.refusal(self._ids, row, self._started)
        stream.client.answer_ready(self)

    def abandon(self) -> None:
        """The client has disconnected: the batches stay, the answer is dropped."""
        if self._stream is not None:
            self._stream.handler.deadlines.discard(self)
            self._stream = None

    def interrupt(self) -> None:
        """The broker stops: the answer comes with the flush that is in progress."""
