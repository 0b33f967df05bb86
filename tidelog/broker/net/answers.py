"""The answer frame of a request: its result or its error, encoded, counted and charged.

Owns which code an error becomes. An ApiError becomes that API's error answer. Any other exception becomes
UNKNOWN_SERVER_ERROR with one log event, and both the connection and the broker continue. Invariant: each
answered request is counted once.

For the event loop only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextvars import Context, copy_context
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.broker.handlers.context import CloseConnection
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.turns import Turns
from tidelog.broker.net.exchange import Exchange
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.framing import encode_response_frame
from tidelog.protocol.steps import Steps, begin, finish
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.broker.handlers.leader_hints import LeaderHints
    from tidelog.broker.net.metering import Meter

_now = time.perf_counter
_NO_BYTES: Final = b""
"""What is sent where no answer is expected."""
T = TypeVar("T")


class Answers:
    """Encodes the answers of one broker, counts them, and charges them to quotas."""

    def __init__(self, events: PeerEvents, turns: Turns) -> None:
        self._events = events
        self.turns = turns
        self.context: Context = copy_context()
        self.meter: Meter | None = None
        """Set while a client has a quota."""
        self.leader_hints: LeaderHints | None = None
        """Set where other brokers may lead."""

    def encode(self, exchange: Exchange, result: Any) -> list[Buffer] | Steps[list[Buffer]]:
        """The frame for a handler's result, counted, or the steps to it, of which the first is done."""
        route = exchange.route
        counts: Any = route.count_errors(result)
        if counts is not None and (hints := self.leader_hints) is not None and route.is_hot:
            is_long = counts.__class__ is GeneratorType
            if is_long or hints.apply_to(route.api_key, route.version, counts):
                return begin(self._encode_with_leaders(hints, exchange, result, counts))
        body = route.encode(route.version, result)
        if body.__class__ is bytes and counts is None:
            return self._framed(exchange, body, None)
        body, counts = begin(body), begin(counts)
        if body.__class__ is GeneratorType or counts.__class__ is GeneratorType:
            return self._encode_long(exchange, body, counts)
        return self._framed(exchange, body, counts)

    def _encode_with_leaders(
        self, hints: LeaderHints, exchange: Exchange, result: Any, counts: Any
    ) -> Steps[list[Buffer]]:
        route = exchange.route
        if counts.__class__ is GeneratorType:
            counts = yield from counts
        if hints.apply_to(route.api_key, route.version, counts):
            body: Any = hints.encode(exchange, route.api_key, route.version, result)
        else:
            body = route.encode(route.version, result)
        if body.__class__ is GeneratorType:
            body = yield from body
        return self._framed(exchange, body, counts)

    def _encode_long(self, exchange: Exchange, body: Any, counts: Any) -> Steps[list[Buffer]]:
        if body.__class__ is GeneratorType:
            body = yield from body
        if counts.__class__ is GeneratorType:
            counts = yield from counts
        return self._framed(exchange, body, counts)

    def _framed(self, exchange: Exchange, body: Any, counts: dict[int, int] | None) -> list[Buffer]:
        route = exchange.route
        if counts is None:
            route.tally.succeeded(_now() - exchange.started)
        else:
            route.tally.finished(counts.items(), _now() - exchange.started)
        if self.meter is not None:
            body = self.meter.answered(exchange, body)
        return encode_response_frame(route.api_key, route.version, exchange.header.correlation_id, body)

    async def frame(self, exchange: Exchange, result: Any) -> list[Buffer]:
        """The frame for a handler's result, counted."""
        answer = self.encode(exchange, result)
        return answer if isinstance(answer, list) else await self.in_turns(exchange, answer)

    async def in_turns(self, exchange: Exchange, frame: Steps[list[Buffer]]) -> list[Buffer]:
        """The frame of a long answer, whose first step is done."""
        await self.turns.next()
        return await self.run(exchange, frame)

    def run(self, exchange: Exchange, steps: Steps[T]) -> Coroutine[Any, Any, T]:
        """The result of the steps of a request, one per turn."""
        return self.turns.run(steps if self.meter is None else self.meter.timed(exchange, steps))

    def unanswered(self, exchange: Exchange) -> list[Buffer]:
        """A request has been served whose client expects no answer: what is sent in its place."""
        exchange.route.tally.succeeded(_now() - exchange.started)
        if self.meter is not None:
            self.meter.answered(exchange, _NO_BYTES)
        return [_NO_BYTES]

    def refuse(self, exchange: Exchange, request: object, error: BaseException) -> list[Buffer]:
        """The frame for a handler's error, counted. An empty list if none can be made or none is expected."""
        if isinstance(error, CloseConnection):
            return []
        code, message = self._code_of(exchange, error)
        try:
            return finish(self.encode(exchange, finish(exchange.route.error_answer(request, code, message))))
        except Exception as failure:
            self.log_unexpected(exchange, failure)
            return []

    def _code_of(self, exchange: Exchange, error: BaseException) -> tuple[ErrorCode, str | None]:
        if isinstance(error, ApiError):
            return error.code, error.message
        if isinstance(error, asyncio.CancelledError):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping"
        self.log_unexpected(exchange, error)
        return ErrorCode.UNKNOWN_SERVER_ERROR, None

    def log_unexpected(self, exchange: Exchange, error: BaseException) -> None:
        """Log one event for an error that is a bug."""
        state = exchange.connection
        self._events.error(
            "request_failed",
            state.client_host,
            api=exchange.route.api_name,
            api_version=exchange.route.version,
            client_id=exchange.header.client_id,
            client_software=state.client_software,
            peer=state.client_host,
            error=repr(error),
            exc_info=error,
        )
