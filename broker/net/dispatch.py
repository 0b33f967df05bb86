"""From a request frame to its answer frame: the only place where errors become codes.

Owns the way of one request: header, version check, decode, handler, encode, counts. Three failures, three
fates: bytes that are not the protocol raise `BadRequest`, and the connection closes; an ApiError becomes that
API's error answer; anything unexpected becomes UNKNOWN_SERVER_ERROR with one log event, and neither the
connection nor the broker dies of it.

Invariants: `dispatch` runs inside data arrival and calls the handler before it returns, so views of the frame
are valid for the handler's synchronous part. Requests take effect in order of arrival: what a request does
after that part is done before its connection dispatches the next one (`Pending.holds_back`). A handler's
Future or LateAnswer is waited for by a callback, never by a task of its own. Each answered request is counted
once.

Used on the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from contextvars import Context, copy_context
from typing import Any, Protocol

from tidelog.broker.handlers.context import (
    CloseConnection,
    LateAnswer,
    LateEffect,
    Listener,
    Parked,
    RequestContext,
)
from tidelog.broker.metrics import Metrics
from tidelog.broker.net.routes import Handler, Route, RouteTable, refuse_old_produce
from tidelog.broker.peer_events import PeerEvents
from tidelog.broker.served_apis import SERVED_APIS, unsupported_api_versions_body
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.framing import RequestHeader, decode_request_header, encode_response_frame
from tidelog.protocol.hot import FetchRequest, FetchResponse, ProduceRequest
from tidelog.protocol.schema import APIS, ApiKey
from tidelog.protocol.types import Buffer

_now = time.perf_counter
_new_tuple = tuple.__new__
_UNKNOWN_VERSION = -1
_READY_TYPES = frozenset((dict, list, FetchResponse))
_PINNABLE_FRAME_BYTES = 64 * 1024
"""A waiting request may keep this much of a receive buffer alive; of larger frames only names are kept."""


class BadRequest(Exception):
    """The connection cannot go on. `header` is the request's, as far as it could be read."""

    def __init__(self, reason: str, header: RequestHeader | None = None) -> None:
        self.reason = reason
        self.header = header
        super().__init__(reason)


class Client(Protocol):
    """What dispatch knows of a connection, and how it hands over a late answer."""

    connection_id: int
    client_host: str
    listener: Listener

    def answer_ready(self, pending: Pending) -> None:
        """The `answer` of a Pending of this connection has become final."""

    def effect_taken(self, pending: Pending) -> None:
        """A Pending that held back those behind it no longer does, though its answer is not there yet."""


class Pending:
    """A request whose handler has not answered yet: its place in the connection's queue.

    `answer` is None until it is final, then the frame's buffers; `abandon` drops it. While it is None and
    `holds_back`, nothing behind it may be dispatched. `reserved_bytes` is what a Fetch may bring: others,
    whose answers are small, reserve nothing. `held_bytes` is what waits with it, where that may be much.
    """

    __slots__ = (
        "_client", "_dispatcher", "_header", "_request", "_route", "_started", "answer", "future",
        "held_bytes", "holds_back", "reserved_bytes",
    )  # fmt: skip

    def __init__(
        self,
        dispatcher: Dispatcher,
        client: Client,
        route: Route,
        header: RequestHeader,
        request: Any,
        started: float,
        future: asyncio.Future[Any] | LateAnswer,
    ) -> None:
        self.answer: list[Buffer] | None = None
        self.held_bytes = 0
        self.future: asyncio.Future[Any] | LateAnswer | None = future
        self.holds_back: bool = route.holds_back
        self.reserved_bytes = max(request.max_bytes, 0) if isinstance(request, FetchRequest) else 0
        self._dispatcher = dispatcher
        self._client = client
        self._route = route
        self._header = header
        self._request = request
        self._started = started

    @property
    def api_key(self) -> int:
        return self._route.api_key

    def __call__(self, future: asyncio.Future[Any]) -> None:
        """The handler's future is done."""
        if self.future is None:
            if not future.cancelled():
                future.exception()  # Seen: nobody is left to answer, and asyncio must not complain about it.
            return
        self.future = None
        client, route, header, request = self._client, self._route, self._header, self._request
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            answer = self._dispatcher.answer(client, route, header, request, future.result(), self._started)
        else:
            answer = self._dispatcher.refuse(client, route, header, request, error, self._started)
        self.answer = answer
        client.answer_ready(self)

    def took_effect(self) -> None:
        """The handler's LateEffect took effect."""
        self.holds_back = False
        if self.future is not None:
            self._client.effect_taken(self)

    def given(self, result: Any) -> None:
        """The handler's LateAnswer is there. Raises nothing: others are told after this one."""
        if self.future is None:
            return
        self.future = None
        client, route, header = self._client, self._route, self._header
        answer = self._dispatcher.refuse if isinstance(result, Exception) else self._dispatcher.answer
        try:
            self.answer = answer(client, route, header, self._request, result, self._started)
            client.answer_ready(self)
        except Exception as error:
            self._dispatcher.log_unexpected(error, client, route, header)

    def abandon(self) -> None:
        """The client is gone: a task (a long poll) is cancelled, an append runs its course."""
        future, self.future = self.future, None
        if isinstance(future, asyncio.Task):
            future.cancel()

    def interrupt(self) -> None:
        """The broker stops: a waiting Fetch is answered now."""
        if self.api_key == ApiKey.FETCH and isinstance(self.future, asyncio.Task):
            self.future.cancel()


class Dispatcher:
    """Routes the requests of all connections of one broker to `handlers`."""

    def __init__(self, handlers: Mapping[ApiKey, Handler], metrics: Metrics, events: PeerEvents) -> None:
        self._events = events
        self._routes = RouteTable(handlers, metrics)
        self._metrics = metrics
        self._context: Context = copy_context()

    def dispatch(self, client: Client, frame: memoryview, started: float) -> list[Buffer] | Pending | None:
        """Serve one request: the answer's buffers, a Pending, or None when there is none to give.

        `started` is the frame's time of arrival by `time.perf_counter`. Raises BadRequest.
        """
        try:
            header, position = decode_request_header(frame)
        except ProtocolError as error:
            raise BadRequest(str(error), _readable_part(frame)) from None
        route = self._routes.find(header.api_key, header.api_version)
        if route is None:
            return self._unsupported(header, frame[position:], started)
        try:
            request = route.decode(frame[position:])
        except ProtocolError as error:
            raise BadRequest(str(error), header) from None
        # Past the constructor, which takes longer than all the rest of this line.
        context = _new_tuple(
            RequestContext, (header, client.client_host, client.connection_id, client.listener)
        )
        try:
            result = route.handle(context, request)
            if result.__class__ in _READY_TYPES:
                return _encode(route, header, result, started)
        except Exception as error:
            return self.refuse(client, route, header, request, error, started)
        if result is None:
            route.tally.succeeded(_now() - started)
            return None
        return self._wait(client, route, header, request, result, len(frame), started)

    def _wait(
        self,
        client: Client,
        route: Route,
        header: RequestHeader,
        request: Any,
        result: asyncio.Future[Any] | LateAnswer | Parked | Coroutine[Any, Any, Any],
        frame_bytes: int,
        started: float,
    ) -> Pending:
        if frame_bytes > _PINNABLE_FRAME_BYTES and isinstance(request, ProduceRequest):
            names = [(name, [(index, None) for index, _ in parts]) for name, parts in request.topics]
            request = request._replace(topics=names)
        if isinstance(result, LateAnswer):
            pending = Pending(self, client, route, header, request, started, result)
            if isinstance(result, LateEffect):
                pending.holds_back = True
                pending.held_bytes = result.held_bytes
                result.when_effective(pending.took_effect)
            result.then(pending.given)
            return pending
        held_bytes = 0
        if isinstance(result, Parked):
            held_bytes = result.held_bytes
            result = result.begin()
        future = result if asyncio.isfuture(result) else asyncio.ensure_future(result)
        pending = Pending(self, client, route, header, request, started, future)
        pending.held_bytes = held_bytes
        future.add_done_callback(pending, context=self._context)
        return pending

    def answer(
        self, client: Client, route: Route, header: RequestHeader, request: Any, result: Any, started: float
    ) -> list[Buffer]:
        """The frame for what a handler gave, counted; nothing of it where no answer is wanted."""
        if result is None:
            route.tally.succeeded(_now() - started)
            return [b""]
        try:
            return _encode(route, header, result, started)
        except Exception as error:
            return self.refuse(client, route, header, request, error, started)

    def refuse(
        self,
        client: Client,
        route: Route,
        header: RequestHeader,
        request: Any,
        error: BaseException,
        started: float,
    ) -> list[Buffer]:
        """The frame for a handler's error, counted. An empty list when none can be made or none is wanted."""
        if isinstance(error, CloseConnection):
            return []
        code, message = self._code_of(error, client, route, header)
        try:
            return _encode(route, header, route.error_answer(request, code, message), started)
        except Exception as failure:
            self.log_unexpected(failure, client, route, header)
            return []

    def _code_of(
        self, error: BaseException, client: Client, route: Route, header: RequestHeader
    ) -> tuple[ErrorCode, str | None]:
        if isinstance(error, ApiError):
            return error.code, error.message
        if isinstance(error, asyncio.CancelledError):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping"
        self.log_unexpected(error, client, route, header)
        return ErrorCode.UNKNOWN_SERVER_ERROR, None

    def log_unexpected(
        self, error: BaseException, client: Client, route: Route, header: RequestHeader
    ) -> None:
        """One event for what should never happen."""
        self._events.error(
            "request_failed",
            client.client_host,
            api=route.api_name,
            api_version=route.version,
            client_id=header.client_id,
            peer=client.client_host,
            error=repr(error),
            exc_info=error,
        )

    def _unsupported(self, header: RequestHeader, body: memoryview, started: float) -> list[Buffer]:
        """The answer for a version or an API that is not served, where the protocol has one (KIP-511)."""
        answer: Buffer | None = None
        if header.api_key == ApiKey.API_VERSIONS:
            answer = unsupported_api_versions_body()
        elif header.api_key == ApiKey.PRODUCE and 0 <= header.api_version < SERVED_APIS[ApiKey.PRODUCE].first:
            try:
                answer = refuse_old_produce(header.api_version, body)
            except ProtocolError as error:
                raise BadRequest(str(error), header) from None
        if answer is None:
            raise BadRequest(_unsupported_reason(header), header)
        # All unknown versions share one series: a peer must not be able to invent 65,536 of them.
        api_name = APIS[ApiKey(header.api_key)].name
        counts = ((int(ErrorCode.UNSUPPORTED_VERSION), 1),)
        self._metrics.request_finished(api_name, _UNKNOWN_VERSION, counts, _now() - started)
        return encode_response_frame(header.api_key, 0, header.correlation_id, answer)


def _encode(route: Route, header: RequestHeader, result: Any, started: float) -> list[Buffer]:
    body = route.encode(result)
    counts = route.count_errors(result)
    if counts is None:
        route.tally.succeeded(_now() - started)
    else:
        route.tally.finished(counts.items(), _now() - started)
    return encode_response_frame(route.api_key, route.version, header.correlation_id, body)


def _unsupported_reason(header: RequestHeader) -> str:
    try:
        key = ApiKey(header.api_key)
        served = SERVED_APIS[key]
    except (ValueError, KeyError):
        return f"API key {header.api_key} is not served"
    return f"{APIS[key].name} is served in versions {served.first} to {served.last}, not {header.api_version}"


def _readable_part(frame: memoryview) -> RequestHeader | None:
    """API key, version and correlation id of a header that breaks off later; None when it is shorter."""
    if len(frame) < 8:
        return None
    api_key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
    return RequestHeader(api_key, version, int.from_bytes(frame[4:8], "big", signed=True), None)
