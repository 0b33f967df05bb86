"""A request between its dispatch and its answer: its place in the queue of its connection.

Owns `Pending`, and what dispatch needs of a connection (`Client`). Invariants: an answer becomes final once;
the connection is called then, unless it has abandoned the request; a callback waits for a handler's
Future or LateAnswer, never a separate task.

For the event loop only.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.broker.handlers.connection_state import ConnectionState
from tidelog.broker.handlers.context import LateAnswer, LateEffect, Parked
from tidelog.broker.net.routes import Route, RouteTable
from tidelog.protocol.framing import RequestHeader
from tidelog.protocol.hot import FetchRequest
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import Steps
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.broker.net.dispatch import Dispatcher
    from tidelog.broker.net.produce_stream import ProduceStream


class BadRequest(Exception):
    """The connection must close. `header` is the request's, as far as it could be read."""

    def __init__(self, reason: str, header: RequestHeader | None = None) -> None:
        self.reason = reason
        self.header = header
        super().__init__(reason)

    def facts(self) -> dict[str, object]:
        """What an event says of it."""
        known = ("api_key", "api_version", "client_id")
        return {"reason": self.reason} | {name: getattr(self.header, name, None) for name in known}


class Client(Protocol):
    """The connection as dispatch sees it; dispatch gives it the late answers.

    `routes` are those that `Dispatcher.routes_at` gives for its step of authentication.
    """

    state: ConnectionState
    routes: RouteTable

    stream: ProduceStream | None
    """Serves requests that repeat an earlier one."""
    last_produce: tuple[object, ...]
    """What the last Produce request must have in common with the next one for a stream of them."""

    def answer_ready(self, pending: Waiting) -> None:
        """The `answer` of a request of this connection has become final."""

    def effect_taken(self, pending: Pending) -> None:
        """A Pending no longer holds back later requests, but it has no answer yet."""

    def holds(self, pending: Pending, held_bytes: int, reserved_bytes: int) -> None:
        """A Pending of this connection holds and reserves so much memory while it waits."""

    def bad_request(self, error: BadRequest) -> None:
        """The frame of a Pending of this connection is not a valid request."""

    def mute(self, seconds: float) -> None:
        """The client is above a quota: read and serve nothing of it for so long."""


class Waiting(ABC):
    """A request that is not answered yet, or some that arrived together: its place in the connection's queue.

    `answer` is None until it is final, then the frame's buffers; `abandon` drops it.
    """

    __slots__ = ("answer",)

    answer: list[Buffer] | None
    requests: int = 1
    # See `Pending`.
    holds_back: bool = False
    keeps_frame: bool = False
    held_bytes: int = 0
    reserved_bytes: int = 0

    @abstractmethod
    def abandon(self) -> None:
        """The client has disconnected: the answer is dropped."""

    @abstractmethod
    def interrupt(self) -> None:
        """The broker stops: a request that waits for other clients is answered now."""


class Pending(Waiting):
    """A request that a handler answers later.

    While `answer` is None and `holds_back` is true, no later request may be dispatched. With `keeps_frame`,
    nothing may be received either, because the request is still read from the receive buffer.
    `reserved_bytes` is the most that a Fetch may return; other answers are small and reserve nothing.
    `held_bytes` is the memory that it holds while it waits, where that may be much.
    """

    __slots__ = (
        "_client", "_dispatcher", "_header", "_route", "_started", "future", "held_bytes",
        "holds_back", "keeps_frame", "request", "reserved_bytes",
    )  # fmt: skip

    def __init__(
        self, dispatcher: Dispatcher, client: Client, route: Route, header: RequestHeader, started: float
    ) -> None:
        self.answer = None
        self.held_bytes = 0
        self.future: asyncio.Future[Any] | LateAnswer | None = None
        self.request: Any = None
        self.holds_back: bool = route.holds_back
        self.keeps_frame = False
        self.reserved_bytes = 0
        self._dispatcher = dispatcher
        self._client = client
        self._route = route
        self._header = header
        self._started = started

    @property
    def api_key(self) -> int:
        return self._route.api_key

    def wait_for(self, request: Any, result: Awaitable[Any], context: Context) -> None:
        """Answer with the result of the handler of `request`."""
        self.request = request
        self.reserved_bytes = _most_returned(request)
        if isinstance(result, LateAnswer):
            self.future = result
            if isinstance(result, LateEffect):
                self.holds_back = True
                self.held_bytes = result.held_bytes
                result.when_effective(self.took_effect)
            result.then(self.given)
        else:
            if isinstance(result, Parked):
                self.held_bytes = result.held_bytes
                result = result.begin()
            self.future = asyncio.ensure_future(result)
            self.future.add_done_callback(self, context=context)

    def wait_for_frame(self, frame: Awaitable[list[Buffer]], context: Context) -> None:
        """Answer with the frame that long work will produce."""
        self.future = asyncio.ensure_future(frame)
        self.future.add_done_callback(self._framed, context=context)

    def __call__(self, future: asyncio.Future[Any]) -> None:
        """The handler's future is done."""
        if self._is_over(future):
            return
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            self._answer_with(future.result())
        else:
            self._end(self._refusal(error))

    def took_effect(self) -> None:
        """It took effect after its handler returned, or the steps that read its frame are done."""
        self.holds_back = self.keeps_frame = False
        if self.future is not None:
            self._client.effect_taken(self)

    def holds(self, held_bytes: int) -> None:
        """It was decoded, and holds `held_bytes` of memory while it waits."""
        if self.future is not None:
            self._client.holds(self, held_bytes, min(self.reserved_bytes, _most_returned(self.request)))

    def given(self, result: Any) -> None:
        """The LateAnswer of the handler has its value. Raises nothing: other callbacks run after this one."""
        if self.future is None:
            return
        self.future = None
        try:
            self._answer_with(result)
        except Exception as error:
            self._dispatcher.log_unexpected(error, self._client, self._route, self._header)

    def _answer_with(self, result: Any) -> None:
        answer: list[Buffer] | Steps[list[Buffer]]
        if result is None:
            answer = self._dispatcher.unanswered(self._client, self._route, self._header, self._started)
        elif isinstance(result, Exception):
            answer = self._refusal(result)
        else:
            try:
                answer = self._dispatcher.encode(
                    self._client, self._route, self._header, result, self._started
                )
            except Exception as error:
                answer = self._refusal(error)
        if isinstance(answer, list):
            self.answer = answer
            self._client.answer_ready(self)
        else:
            dispatcher = self._dispatcher
            frame = dispatcher.in_turns(self._client, self._header, answer)
            self.wait_for_frame(frame, dispatcher.context)

    def _framed(self, future: asyncio.Future[list[Buffer]]) -> None:
        """The frame of a long answer is complete."""
        if self._is_over(future):
            return
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            self._end(future.result())
        elif isinstance(error, BadRequest):
            self._client.bad_request(error)
        else:
            self._end(self._refusal(error))

    def _is_over(self, future: asyncio.Future[Any]) -> bool:
        """Whether the answer is no longer needed."""
        if self.future is not None:
            self.future = None
            return False
        if not future.cancelled():
            future.exception()  # Retrieved, so that asyncio logs no warning; no client waits for the answer.
        return True

    def _refusal(self, error: BaseException) -> list[Buffer]:
        if self.request is None:
            return []
        return self._dispatcher.refuse(
            self._client, self._route, self._header, self.request, error, self._started
        )

    def _end(self, answer: list[Buffer]) -> None:
        self.answer = answer
        self._client.answer_ready(self)

    def abandon(self) -> None:
        """The client has disconnected: a task (a long poll) is cancelled, an append is completed."""
        future, self.future = self.future, None
        if isinstance(future, asyncio.Task) and self.api_key != ApiKey.PRODUCE:
            future.cancel()

    def interrupt(self) -> None:
        if self._route.may_be_long and isinstance(self.future, asyncio.Task):
            self.future.cancel()


def _most_returned(request: Any) -> int:
    """The most bytes that a Fetch may return. Other answers are small: 0."""
    return max(request.max_bytes, 0) if isinstance(request, FetchRequest) else 0
