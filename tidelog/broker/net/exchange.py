"""One request of a client until its answer: what the steps of a request share, and its place in the queue.

Owns `Exchange`, and what it needs of a connection (`Client`). Invariants: an answer becomes final once; the
connection is called then, unless it has abandoned the request.

For the event loop only.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidelog.broker.handlers.context import LateAnswer, RequestContext
from tidelog.broker.net.request_queue import Waiting
from tidelog.protocol.hot import FetchRequest
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.broker.handlers.connection_state import ConnectionState
    from tidelog.broker.net.routes import Route, RouteTable
    from tidelog.protocol.framing import RequestHeader

_VALUE_BYTES_PER_FRAME_BYTE: Final = 20
"""Memory for the values of a long request; not for Produce, whose records stay in the frame."""


class BadRequest(Exception):
    """The connection must close. `header` is the request's, as far as it could be read."""

    def __init__(self, reason: str, header: RequestHeader | None = None) -> None:
        self.reason = reason
        self.header = header
        super().__init__(reason)

    def facts(self) -> dict[str, object]:
        """Its fields in events."""
        known = ("api_key", "api_version", "client_id")
        return {"reason": self.reason} | {name: getattr(self.header, name, None) for name in known}


class Client(Protocol):
    """The connection as a request sees it.

    `routes` are those that `Dispatcher.routes_at` gives for its step of authentication.
    """

    state: ConnectionState
    routes: RouteTable

    def answer_ready(self, waiting: Waiting) -> None:
        """The `answer` of a request of this connection has become final."""

    def effect_taken(self, waiting: Waiting, freed_bytes: int) -> None:
        """A request no longer holds back later ones nor so much memory, but it has no answer yet."""

    def holds(self, more_held_bytes: int, more_reserved_bytes: int) -> None:
        """A request of this connection holds and reserves so much more memory, or less."""

    def bad_request(self, error: BadRequest) -> None:
        """The frame of a request of this connection that waits is not a valid request."""

    def mute(self, seconds: float) -> None:
        """The client is above a quota: do not read or serve it for this time."""


class Exchange(RequestContext, Waiting):
    """A request on its way to its answer. Handlers see the RequestContext in it.

    `started` is the frame's time of arrival by `time.perf_counter`.
    """

    # Class attributes until one is set: a request that is answered at once needs none of them.
    answer: list[Buffer] | None = None
    request: Any = None
    """The decoded request; None until then."""
    is_handled = False
    """The handler has returned, or its steps are done."""
    is_over = False
    """It is answered or abandoned."""
    task: asyncio.Future[Any] | None = None
    """What works on the answer, if that can be cancelled."""

    def __init__(self, client: Client, route: Route, header: RequestHeader, started: float) -> None:
        self.header = header
        self.connection = client.state
        self.client = client
        self.route = route
        self.started = started

    def wait_for(self, late: LateAnswer) -> None:
        """Its handler gives the answer later."""
        route = self.route
        self.held_bytes = late.held_bytes
        self.holds_back = route.holds_back
        if route.api_key == ApiKey.FETCH:
            self.reserved_bytes = self._most_returned()
        if not late.is_effective:
            self.holds_back = True
            late.when_effective(self.took_effect)
        self.task = late.task

    def work_long(self, frame_bytes: int) -> None:
        """A task does the other steps of a request of many elements, of which the first step is done."""
        self.is_long = True
        route = self.route
        self.holds_back = route.holds_back
        if not self.is_handled:
            if route.is_hot:
                # Its steps read the receive buffer, and later requests must not take effect before it does.
                self.holds_back = self.keeps_frame = True
            if route.api_key == ApiKey.FETCH:
                self.reserved_bytes = sys.maxsize
            if route.api_key != ApiKey.PRODUCE:
                self.held_bytes = frame_bytes * _VALUE_BYTES_PER_FRAME_BYTE

    def handled(self, late: LateAnswer | None) -> None:
        """The handler of a long request has given the answer, or gives it `late`."""
        if self.is_over:
            return
        if late is not None and not late.is_effective:
            self._hold(late)
            late.when_effective(self.took_effect)
            return
        if self.route.is_hot:
            self.took_effect()
        if late is not None:
            self._hold(late)

    def took_effect(self) -> None:
        """It took effect after its handler returned, or the steps that read its frame are done."""
        self.holds_back = self.keeps_frame = False
        if not self.is_over:
            freed_bytes, self.held_bytes = self.held_bytes, 0
            self.client.effect_taken(self, freed_bytes)

    def _hold(self, late: LateAnswer) -> None:
        """It is decoded: from now on it holds what the late answer does, if that says so."""
        held_bytes = late.held_bytes or self.held_bytes
        reserved_bytes = min(self.reserved_bytes, self._most_returned())
        more = held_bytes - self.held_bytes, reserved_bytes - self.reserved_bytes
        self.held_bytes, self.reserved_bytes = held_bytes, reserved_bytes
        self.client.holds(*more)

    def _most_returned(self) -> int:
        """The most bytes that a Fetch may return. Other answers are small: 0."""
        return max(self.request.max_bytes, 0) if isinstance(self.request, FetchRequest) else 0

    def abandon(self) -> None:
        """The client has disconnected: a task (a long poll) is cancelled, an append is completed."""
        self.is_over = True
        if self.task is not None and self.route.api_key != ApiKey.PRODUCE:
            self.task.cancel()

    def interrupt(self) -> None:
        if self.task is not None and self.route.may_be_long:
            self.task.cancel()
