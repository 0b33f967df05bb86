"""The answer frame of a request: its result or its error, encoded, counted and charged.

Owns which code an error becomes. An ApiError becomes that API's error answer. Any other exception becomes
UNKNOWN_SERVER_ERROR with one log event, and both the connection and the broker continue. Invariant: each
answered request is counted once.

For the event loop only.
"""

import asyncio
import time
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.broker.handlers.context import CloseConnection
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.turns import Turns
from tidelog.broker.net.exchange import Exchange
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.framing import encode_response_frame
from tidelog.protocol.steps import Steps
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
        self.meter: Meter | None = None
        """Set while a client has a quota."""
        self.leader_hints: LeaderHints | None = None
        """Set where other brokers may lead."""

    def answer(self, exchange: Exchange, given: Any) -> Steps[list[Buffer]]:
        """The frame for what a handler gave, counted: for response values, or for an error. It has no bytes
        where no answer is expected, and no buffers if the connection is to end."""
        route = exchange.route
        if given is None:
            route.tally.succeeded(_now() - exchange.started)
            if self.meter is not None:
                self.meter.answered(exchange, _NO_BYTES)
            return [_NO_BYTES]
        try:
            values = given
            if isinstance(given, BaseException):
                if isinstance(given, CloseConnection) or exchange.request is None:
                    return []
                values = route.error_answer(exchange.request, *self._code_of(exchange, given))
                if values.__class__ is GeneratorType:
                    values = yield from values
            counts: Any = route.count_errors(values)
            if counts.__class__ is GeneratorType:
                counts = yield from counts
            hints = self.leader_hints
            body: Any
            if counts and hints is not None and hints.apply_to(route.api_key, route.version, counts):
                body = hints.encode(exchange, route.api_key, route.version, values)
            else:
                body = route.encode(values)
            if body.__class__ is GeneratorType:
                body = yield from body
        except Exception as error:
            if not isinstance(given, BaseException):
                return (yield from self.answer(exchange, error))
            self.log_unexpected(exchange, error)
            return []
        if counts is None:
            route.tally.succeeded(_now() - exchange.started)
        else:
            route.tally.finished(counts.items(), _now() - exchange.started)
        if self.meter is not None:
            body = self.meter.answered(exchange, body)
        return encode_response_frame(route.api_key, route.version, exchange.header.correlation_id, body)

    async def in_turns(self, exchange: Exchange, steps: Steps[T]) -> T:
        """The result of the steps of a request, of which the first is done."""
        await self.turns.next()
        return await self.turns.run(steps if self.meter is None else self.meter.timed(exchange, steps))

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
