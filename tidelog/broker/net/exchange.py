"""One request of a client until its answer: what dispatch, answers and waiting requests share.

Owns `Exchange`, what they need of a connection (`Client`), and the place of a request in the connection's
queue (`Waiting`). Invariant: an answer becomes final once; the connection is called then, unless it has
abandoned the request.

For the event loop only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.handlers.context import RequestContext
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.broker.handlers.connection_state import ConnectionState
    from tidelog.broker.net.routes import Route, RouteTable
    from tidelog.protocol.framing import RequestHeader


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
    """The connection as dispatch sees it; dispatch gives it the late answers.

    `routes` are those that `Dispatcher.routes_at` gives for its step of authentication.
    """

    state: ConnectionState
    routes: RouteTable

    def answer_ready(self, pending: Waiting) -> None:
        """The `answer` of a request of this connection has become final."""

    def effect_taken(self, pending: Waiting, freed_bytes: int) -> None:
        """A request no longer holds back later ones nor so much memory, but it has no answer yet."""

    def holds(self, more_held_bytes: int, more_reserved_bytes: int) -> None:
        """A request of this connection holds and reserves so much more memory, or less."""

    def bad_request(self, error: BadRequest) -> None:
        """The frame of a request of this connection that waits is not a valid request."""

    def mute(self, seconds: float) -> None:
        """The client is above a quota: do not read or serve it for this time."""


class Exchange(RequestContext):
    """A request on its way to its answer. Handlers see the RequestContext in it.

    `started` is the frame's time of arrival by `time.perf_counter`.
    """

    __slots__ = ("client", "route", "started")

    def __init__(self, client: Client, route: Route, header: RequestHeader, started: float) -> None:
        self.header = header
        self.connection = client.state
        self.client = client
        self.route = route
        self.started = started


class Waiting(ABC):
    """A request that is not answered yet, or some that arrived together: its place in the connection's queue.

    `answer` is None until it is final, then the frame's buffers; `abandon` drops it.
    """

    __slots__ = ("answer",)

    answer: list[Buffer] | None
    requests: int = 1
    # See `broker.net.pending`.
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
