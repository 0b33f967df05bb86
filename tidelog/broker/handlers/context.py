"""What a handler knows about the request beside its values, and the form of its answer.

Invariants: a `RequestContext` is cheap enough to be made once per request; the state of the connection is
made once for all its requests. A `LateAnswer` gets its value once and calls one callback.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Self

from tidelog.broker.handlers.connection_state import ConnectionState
from tidelog.protocol.framing import RequestHeader


class RequestContext:
    """The header of one request, and the connection that it came by."""

    __slots__ = ("connection", "header")
    is_long = False
    """The first step of the request is over: its answer is sent in a later step of the loop than that which
    makes it."""

    def __init__(self, header: RequestHeader, connection: ConnectionState) -> None:
        self.header = header
        self.connection = connection


class CloseConnection(Exception):
    """Raised by a handler or its awaitable: the connection ends, and this request gets no answer."""


class LateAnswer:
    """An answer that is given later, in some step of the loop: `await` it, or set a callback with `then`.

    Not a Future, which costs more than all else that a one-record request does between disk and wire.
    """

    # Class attributes until one is set: most answers need one of them.
    held_bytes = 0
    """How much memory the request holds until it takes effect."""
    is_effective = True
    """While it is not, later requests of its connection wait."""
    is_given = False
    task: asyncio.Future[Any] | None = None
    """What gives it; None if that cannot be cancelled."""
    value: Any = None
    """What was given."""
    _call: Callable[[Any], None] | None = None
    _effect_call: Callable[[], None] | None = None

    def __init__(self, held_bytes: int = 0, *, is_effective: bool = True) -> None:
        self.held_bytes = held_bytes
        self.is_effective = is_effective

    @classmethod
    def of(cls, answering: Awaitable[Any], held_bytes: int = 0) -> Self:
        """The result or the error of a coroutine or a Future. Only its task is cancelled with the request."""
        late = cls(held_bytes)
        late.task = asyncio.ensure_future(answering)
        late.task.add_done_callback(late._finished)
        return late

    def _finished(self, task: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self.give(task.result() if error is None else error)

    def give(self, value: Any) -> None:
        """Set the answer to `value` and run the callback before this returns; later calls are ignored.

        An exception means that the handler would have raised it.
        """
        if self.is_given:
            return
        self.is_given = True
        self.value = value
        call, self._call = self._call, None
        if call is not None:
            call(value)

    def then(self, call: Callable[[Any], None]) -> None:
        """Call with the answer, now if it is known. One callback only: a second `then` replaces the first."""
        if self.is_given:
            call(self.value)
        else:
            self._call = call

    def __await__(self) -> Generator[Any, None, Any]:
        if self.task is not None:
            return self.task.__await__()
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

    def when_effective(self, call: Callable[[], None]) -> None:
        """Call at `take_effect`; an answer without that call means that the request has no effect."""
        self._effect_call = call

    def take_effect(self) -> None:
        """The request has taken effect; it may be answered later."""
        self.is_effective = True
        call, self._effect_call = self._effect_call, None
        if call is not None:
            call()


Handler = Callable[[RequestContext, Any], Any]
"""(context, request) -> the answer: response values (a mapping for `encode_response`; of Produce its topics,
of Fetch a FetchResponse), None where the client expects none, or a LateAnswer of these. A handler may be a
coroutine function, of whose coroutine dispatch makes a LateAnswer, or a generator of steps that returns one.
"""
