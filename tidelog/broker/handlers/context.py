"""What a handler knows about the request beside its values, and the forms of its answer.

Invariants: a `RequestContext` is cheap enough to be made once per request; the state of the connection is
made once for all its requests. A `LateAnswer` gets its value once and calls one callback.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any

from tidelog.broker.handlers.connection_state import ConnectionState
from tidelog.protocol.framing import RequestHeader


class RequestContext:
    """The header of one request, and the connection that it came by."""

    __slots__ = ("connection", "header")

    def __init__(self, header: RequestHeader, connection: ConnectionState) -> None:
        self.header = header
        self.connection = connection


class CloseConnection(Exception):
    """Raised by a handler or its awaitable: the connection ends, and this request gets no answer."""


class LateAnswer:
    """An answer that a handler gives later, in some step of the loop: `await` it, or set a callback with
    `then`.

    Not a Future, which costs more than all else that a one-record request does between disk and wire.
    """

    __slots__ = ("_call", "_value", "is_given")

    def __init__(self) -> None:
        self.is_given = False
        self._value: Any = None
        self._call: Callable[[Any], None] | None = None

    def give(self, value: Any) -> None:
        """Set the answer to `value` and run the callback before this returns; later calls are ignored.

        An exception means that the handler would have raised it.
        """
        if self.is_given:
            return
        self.is_given = True
        self._value = value
        call, self._call = self._call, None
        if call is not None:
            call(value)

    def then(self, call: Callable[[Any], None]) -> None:
        """Call with the answer, now if it is known. One callback only: a second `then` replaces the first."""
        if self.is_given:
            call(self._value)
        else:
            self._call = call

    def __await__(self) -> Generator[Any, None, Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def settle(value: Any) -> None:
            if future.done():
                return
            if isinstance(value, Exception):
                future.set_exception(value)
            else:
                future.set_result(value)

        self.then(settle)
        return future.__await__()


class LateEffect(LateAnswer):
    """The LateAnswer of a request that takes effect after its handler returned and before it is answered.

    Later requests of its connection wait for the effect, not for the answer.
    """

    __slots__ = ("_effect_call", "held_bytes")

    def __init__(self, held_bytes: int) -> None:
        """`held_bytes` is how much memory it holds until it takes effect."""
        super().__init__()
        self.held_bytes = held_bytes
        self._effect_call: Callable[[], None] | None = None

    def when_effective(self, call: Callable[[], None]) -> None:
        """Call at `take_effect`; an answer without that call means that the request has no effect."""
        self._effect_call = call

    def take_effect(self) -> None:
        """The request has taken effect; it may be answered later."""
        call, self._effect_call = self._effect_call, None
        if call is not None:
            call()


class Parked:
    """An answer that may take long, and how much memory it holds meanwhile."""

    __slots__ = ("begin", "held_bytes")

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, Any]], held_bytes: int) -> None:
        """`begin` makes the coroutine that waits."""
        self.begin = begin
        self.held_bytes = held_bytes

    def __await__(self) -> Generator[Any, None, Any]:
        return self.begin().__await__()


class EncodedAnswer(dict[str, object]):
    """An answer that its handler encoded while reading what it describes: the body, and the values from which
    error codes are counted.
    """

    def __init__(self, body: bytes, values: Mapping[str, object]) -> None:
        super().__init__(values)
        self.body = body


Handler = Callable[[RequestContext, Any], Any]
"""(context, request) -> response values (a mapping for `encode_response`; of Produce its topics, of Fetch a
FetchResponse), None for no answer, something that gives one of these later (a Future, a coroutine, a
LateAnswer), or the steps to any of them.
"""
