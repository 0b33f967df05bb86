"""Serves the Produce requests of a producer that sends one batch after another, the short way of most.

Owns `ProduceStream`, which a connection begins after two requests of one shape (`hot.produce_shape`), and
`AwaitedProduce`, such a request until its batch is durable. Invariants: a stream serves a request as
`dispatch` and `handlers.produce` do (the rules are there and in the replica), or it stores nothing and
returns None, and the request is dispatched. So the only refusals here are those after the append: a flush
that failed, or came too late. No future, no task, no decoding.

For the event loop only. Views of a frame are not kept.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.handlers.produce_answers import not_durable, refused
from tidelog.broker.net.pending import Waiting
from tidelog.broker.storage.batch_inspection import Effort, TooMuchError
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.framing import RequestHeader, decode_request_header
from tidelog.protocol.hot import ProduceShape
from tidelog.protocol.steps import finish
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.broker.net.dispatch import Dispatcher
    from tidelog.broker.net.pending import Client
    from tidelog.broker.net.routes import Route
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.storage.partition_log import AppendResult
    from tidelog.protocol.hot import ProducePartitionResult

_now = time.perf_counter


class ProduceStream:
    """The requests of one connection that have one shape."""

    __slots__ = ("_client_id", "_match", "_replicas", "client", "dispatcher", "handler", "route", "shape")

    def __init__(
        self,
        dispatcher: Dispatcher,
        client: Client,
        route: Route,
        handler: ProduceHandler,
        shape: ProduceShape,
        client_id: str | None,
    ) -> None:
        self.dispatcher = dispatcher
        self.client = client
        self.route = route
        self.handler = handler
        self.shape = shape
        self._client_id = client_id
        self._match = shape.match
        self._replicas = handler.replicas

    def serve(self, frame: memoryview, started: float) -> list[Buffer] | AwaitedProduce | None:
        """The answer to a request, or what waits for it; None if it must be dispatched.

        `started` is its time of arrival by `time.perf_counter`.
        """
        found = self._match(frame)
        if found is None:
            return None
        correlation_id, index, records = found
        handler, shape = self.handler, self.shape
        topic = shape.topic
        replica = self._replicas.get((topic, index))
        if replica is None or not handler.may_append(self.client.state, topic, replica, shape.acks, records):
            return None
        try:
            try:
                written = replica.append_as_leader(records, handler.clock_ms(), Effort())
            except (ApiError, TooMuchError):
                return None  # Nothing was stored: the general way finds the same, and says it.
            if not replica.waits_for_flush(shape.acks):
                result = replica.soon_durable(written)
            else:
                waiting = AwaitedProduce(self, correlation_id, index, replica, started)
                result = replica.when_durable(written, waiting, 0)
                if not waiting.is_durable:
                    handler.count_append(topic, result, len(records))
                    # From here on it is answered when it is durable, before by `_failed`.
                    waiting.result = result
                    handler.deadlines.begin(waiting, shape.timeout_ms)
                    return waiting
            handler.count_append(topic, result, len(records))
            return [self.answer(correlation_id, index, result, started)]
        except Exception as error:
            return self._failed(frame, error, started)

    def _failed(self, frame: memoryview, error: Exception, started: float) -> list[Buffer]:
        """The answer to a request that a fault of the broker ended, perhaps after its append."""
        route = self.route
        header, position = decode_request_header(frame)
        request = finish(route.decode(route.version, frame[position:]))
        return self.dispatcher.refuse(self.client, route, header, request, error, started)

    def answer(self, correlation_id: int, index: int, result: AppendResult, started: float) -> bytes:
        """The frame of the answer for a stored batch, counted."""
        base_offset, _, append_time_ms, start_offset, _ = result
        code = 0
        if base_offset >= 0:
            self.route.tally.succeeded(_now() - started)
        else:
            code = int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
            self.route.tally.finished(((code, 1),), _now() - started)
        return self.shape.answer(correlation_id, index, code, base_offset, append_time_ms, start_offset)

    def refusal(self, correlation_id: int, row: ProducePartitionResult, started: float) -> list[Buffer]:
        """The frame of the answer for a batch that did not become durable, counted."""
        route = self.route
        header = RequestHeader(route.api_key, route.version, correlation_id, self._client_id)
        response = [(self.shape.topic, [row])]
        return finish(self.dispatcher.encode(self.client, route, header, response, started))


class AwaitedProduce(Waiting):
    """A request whose batch is written and not yet durable: a CommitWaiter, and its place in the queue."""

    __slots__ = (
        "_correlation_id", "_index", "_replica", "_started", "_stream", "deadline", "is_durable", "result",
    )  # fmt: skip

    def __init__(
        self, stream: ProduceStream, correlation_id: int, index: int, replica: Replica, started: float
    ) -> None:
        self.answer = None
        self.deadline = 0.0
        self.is_durable = False
        self.result: AppendResult | None = None
        """Set where the request has to wait."""
        self._stream: ProduceStream | None = stream
        self._correlation_id = correlation_id
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
        self.answer = [stream.answer(self._correlation_id, self._index, result, self._started)]
        stream.client.answer_ready(self)

    def partition_failed(self, slot: int, code: ErrorCode) -> None:
        self._refuse(refused(self._index, code, code.message))

    def time_out(self) -> None:
        """Answer that the batch was not durable in time, or why it never will be."""
        self._refuse(not_durable(self._index, self._replica))

    def _refuse(self, row: ProducePartitionResult) -> None:
        stream, self._stream = self._stream, None
        if stream is None:
            return
        stream.handler.deadlines.discard(self)
        self.answer = stream.refusal(self._correlation_id, row, self._started)
        stream.client.answer_ready(self)

    def abandon(self) -> None:
        """The client has disconnected: the batch stays, the answer is dropped."""
        if self._stream is not None:
            self._stream.handler.deadlines.discard(self)
            self._stream = None

    def interrupt(self) -> None:
        """The broker stops: the answer comes with the flush that is under way."""
