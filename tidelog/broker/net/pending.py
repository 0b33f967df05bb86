"""A request that is answered later, between its dispatch and its answer.

Owns `Pending`. Invariant: a callback waits for a handler's Future or LateAnswer, never a separate task.

For the event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from tidelog.broker.handlers.context import LateAnswer, LateEffect, Parked
from tidelog.broker.net.exchange import BadRequest, Exchange, Waiting
from tidelog.protocol.hot import FetchRequest
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import Steps
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.broker.net.answers import Answers


class Pending(Waiting):
    """A request that a handler answers later.

    While `answer` is None and `holds_back` is true, no later request may be dispatched. With `keeps_frame`,
    nothing may be received either, because the request is still read from the receive buffer. `held_bytes` is
    the memory that it holds while it waits, where that may be much.
    """

    __slots__ = (
        "_answers", "_exchange", "future", "held_bytes", "holds_back", "keeps_frame", "request",
        "reserved_bytes",
    )  # fmt: skip

    def __init__(self, answers: Answers, exchange: Exchange) -> None:
        self.answer = None
        self.held_bytes = 0
        self.future: asyncio.Future[Any] | LateAnswer | None = None
        self.request: object = None
        self.holds_back: bool = exchange.route.holds_back
        self.keeps_frame = False
        self.reserved_bytes = 0
        self._answers = answers
        self._exchange = exchange

    @property
    def api_key(self) -> int:
        return self._exchange.route.api_key

    def wait_for(self, request: object, result: Awaitable[Any]) -> None:
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
            self.future.add_done_callback(self, context=self._answers.context)

    def wait_for_frame(self, frame: Awaitable[list[Buffer]]) -> None:
        """Answer with the frame that long work will produce."""
        self.future = asyncio.ensure_future(frame)
        self.future.add_done_callback(self._framed, context=self._answers.context)

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
            freed_bytes, self.held_bytes = self.held_bytes, 0
            self._exchange.client.effect_taken(self, freed_bytes)

    def holds(self, held_bytes: int) -> None:
        """It was decoded, and holds `held_bytes` of memory while it waits."""
        if self.future is None:
            return
        reserved_bytes = min(self.reserved_bytes, _most_returned(self.request))
        more = held_bytes - self.held_bytes, reserved_bytes - self.reserved_bytes
        self.held_bytes, self.reserved_bytes = held_bytes, reserved_bytes
        self._exchange.client.holds(*more)

    def given(self, result: Any) -> None:
        """The LateAnswer of the handler has its value. Raises nothing: other callbacks run after this one."""
        if self.future is None:
            return
        self.future = None
        try:
            self._answer_with(result)
        except Exception as error:
            self._answers.log_unexpected(self._exchange, error)

    def _answer_with(self, result: Any) -> None:
        answer: list[Buffer] | Steps[list[Buffer]]
        if result is None:
            answer = self._answers.unanswered(self._exchange)
        elif isinstance(result, Exception):
            answer = self._refusal(result)
        else:
            try:
                answer = self._answers.encode(self._exchange, result)
            except Exception as error:
                answer = self._refusal(error)
        if isinstance(answer, list):
            self.answer = answer
            self._exchange.client.answer_ready(self)
        else:
            self.wait_for_frame(self._answers.in_turns(self._exchange, answer))

    def _framed(self, future: asyncio.Future[list[Buffer]]) -> None:
        """The frame of a long answer is complete."""
        if self._is_over(future):
            return
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            self._end(future.result())
        elif isinstance(error, BadRequest):
            self._exchange.client.bad_request(error)
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
        return self._answers.refuse(self._exchange, self.request, error)

    def _end(self, answer: list[Buffer]) -> None:
        self.answer = answer
        self._exchange.client.answer_ready(self)

    def abandon(self) -> None:
        """The client has disconnected: a task (a long poll) is cancelled, an append is completed."""
        future, self.future = self.future, None
        if isinstance(future, asyncio.Task) and self.api_key != ApiKey.PRODUCE:
            future.cancel()

    def interrupt(self) -> None:
        if self._exchange.route.may_be_long and isinstance(self.future, asyncio.Task):
            self.future.cancel()


def _most_returned(request: object) -> int:
    """The most bytes that a Fetch may return. Other answers are small: 0."""
    return max(request.max_bytes, 0) if isinstance(request, FetchRequest) else 0
