"""What a handler knows about the request beside its values, and the forms that its answer can take.

Invariants: a `RequestContext` is cheap enough to be made once a request; what is known of the connection is
made once for all its requests. A `LateAnswer` is given once, and told to one who waits.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, NamedTuple

from tidelog.broker.handlers.connection_state import ConnectionState
from tidelog.protocol.framing import RequestHeader


class RequestContext(NamedTuple):
    """One request's surroundings."""

    header: RequestHeader
    connection: ConnectionState


class CloseConnection(Exception):
    """Raised by a handler, or by what it returned: the connection ends, and this request gets no answer."""


class LateAnswer:
    """An answer that a handler gives later, in some step of the loop: `await` it, or be told with `then`.

    Not a Future: making one, telling it and the further step of the loop in which it tells others cost more
    than all that a one-record request does otherwise between the disk and the wire.
    """

    __slots__ = ("_call", "_value", "is_given")

    def __init__(self) -> None:
        self.is_given = False
        self._value: Any = None
        self._call: Callable[[Any], None] | None = None

    def give(self, value: Any) -> None:
        """The answer is `value`, and whoever waits is called before this returns; later ones are ignored.

        An exception is what the handler would have raised.
        """
        if self.is_given:
            return
        self.is_given = True
        self._value = value
        call, self._call = self._call, None
        if call is not None:
            call(value)

    def then(self, call: Callable[[Any], None]) -> None:
        """Call with the answer, now if it is there. One may wait: a second `then` replaces the first."""
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
    """The LateAnswer of a request that takes effect after its handler returned, though before it is answered.

    Those behind it on its connection wait for that, not for the answer.
    """

    __slots__ = ("_effect_call", "held_bytes")

    def __init__(self, held_bytes: int) -> None:
        """`held_bytes` is how much memory waits with it until it takes effect."""
        super().__init__()
        self.held_bytes = held_bytes
        self._effect_call: Callable[[], None] | None = None

    def when_effective(self, call: Callable[[], None]) -> None:
        """Call at `take_effect`; an answer without it means that there is no effect."""
        self._effect_call = call

    def take_effect(self) -> None:
        """The request has taken effect; its answer may still take a while."""
        call, self._effect_call = self._effect_call, None
        if call is not None:
            call()


class Parked:
    """An answer that may be long in coming, and how much memory waits with it."""

    __slots__ = ("begin", "held_bytes")

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, Any]], held_bytes: int) -> None:
        """`begin` makes what waits."""
        self.begin = begin
        self.held_bytes = held_bytes

    def __await__(self) -> Generator[Any, None, Any]:
        return self.begin().__await__()


class EncodedAnswer(dict[str, Any]):
    """An answer that its handler encoded, because it reads what it describes on the way: the body, and the
    values for those who count their error codes.
    """

    def __init__(self, body: bytes, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.body = body
