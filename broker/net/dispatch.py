"""From a request frame to its answer frame: the only place where errors become codes.

Owns the steps of one request: header, version check, decode, handler, encode, counts. There are three kinds
of failure. Bytes that are not the protocol raise `BadRequest`, and the connection closes. An ApiError becomes
that API's error answer. Any other exception becomes UNKNOWN_SERVER_ERROR with one log event, and both the
connection and the broker continue.

Invariants: `dispatch` is called when data arrives and calls the handler before it returns, so views of the
frame are valid for the handler's synchronous part. A request of many elements continues after that in steps,
one per turn of the loop; if it reads views of its frame, its connection receives nothing meanwhile. Requests
take effect in order of arrival: what a request does after the synchronous part is done before its connection
dispatches the next one (`Pending.holds_back`). A callback waits for a handler's Future or LateAnswer, never a
separate task. Each answered request is counted once.

For the event loop only.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import nullcontext
from contextvars import Context, copy_context
from functools import partial
from types import GeneratorType
from typing import Any, Final, Never, TypeVar

from tidelog.broker.cluster.catalog import INTERNAL_TOPICS
from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState
from tidelog.broker.handlers.context import (
    CloseConnection,
    EncodedAnswer,
    LateEffect,
    Parked,
    RequestContext,
)
from tidelog.broker.handlers.produce import ANSWERED_ACKS, ProduceHandler
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.turns import Turns
from tidelog.broker.net.metering import Meter
from tidelog.broker.net.pending import BadRequest, Client, Pending
from tidelog.broker.net.produce_stream import ProduceStream
from tidelog.broker.net.routes import (
    MOST_EARLY_REQUESTS,
    TOO_MANY_EARLY_REQUESTS,
    Handler,
    Route,
    RouteTable,
)
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.served_apis import SERVED_APIS, unsupported_api_versions_body
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.framing import RequestHeader, decode_request_header, encode_response_frame
from tidelog.protocol.hot import FetchResponse, ProduceRequest, ProduceShape
from tidelog.protocol.schema import APIS, ApiKey
from tidelog.protocol.steps import GLANCES_A_STEP, Pace, Steps, begin, each, finish
from tidelog.protocol.types import Buffer

_now = time.perf_counter
_new_tuple = tuple.__new__
_UNKNOWN_VERSION = -1
_READY_TYPES = frozenset((dict, list, FetchResponse, EncodedAnswer))
_PINNABLE_FRAME_BYTES = 64 * 1024
"""A waiting request may keep a receive buffer of up to this size; of larger frames only names are kept."""
MOST_LONG_REQUESTS: Final = 4
"""How many requests of many elements are decoded at the same time: the values of one take up to 50 MB."""
_VALUE_BYTES_A_FRAME_BYTE: Final = 20
"""Memory for the values of a long request; not for Produce, whose records stay in the frame."""
_NOT_HANDLED: Final = object()
_NO_BYTES: Final = b""
"""What is sent where no answer is expected."""
T = TypeVar("T")


class Dispatcher:
    """Routes the requests of all connections of one broker to `handlers`."""

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        metrics: Metrics,
        events: PeerEvents,
        turns: Turns | None = None,
    ) -> None:
        self._events = events
        self._routes = {step: RouteTable(handlers, metrics, step, self._close) for step in AuthenticationStep}
        self._metrics = metrics
        self.turns = turns or Turns()
        self._long_requests = asyncio.Semaphore(MOST_LONG_REQUESTS)
        self.context: Context = copy_context()
        self.meter: Meter | None = None
        """Set while a client has a quota."""

    def routes_at(self, step: AuthenticationStep) -> RouteTable:
        """The routes that the gate opens to a connection at this step."""
        return self._routes[step]

    def dispatch(self, client: Client, frame: memoryview, started: float) -> list[Buffer] | Pending | None:
        """Serve one request: the answer's buffers, a Pending, or None when no answer is expected.

        `started` is the frame's time of arrival by `time.perf_counter`. Raises BadRequest.
        """
        try:
            header, position = decode_request_header(frame)
        except ProtocolError as error:
            raise BadRequest(str(error), _readable_part(frame)) from None
        api_key, version, _, _ = header
        route = client.routes[api_key, version]
        if route is None:
            return self._unsupported(client.state, header, started)
        try:
            request = route.decode(version, frame[position:])
            if request.__class__ is GeneratorType:
                request = begin(request)
        except ProtocolError as error:
            raise BadRequest(str(error), header) from None
        if route.produces is not None and request.__class__ is ProduceRequest:
            self._look_for_stream(client, route, route.produces, header, frame, request)
        # Not by the constructor, which takes longer than all the rest of this line.
        context = _new_tuple(RequestContext, (header, client.state))
        if request.__class__ is GeneratorType:
            return self._long(client, route, context, request, _NOT_HANDLED, len(frame), started)
        try:
            result = route.handle(context, request)
            if result.__class__ is GeneratorType:
                result = begin(result)
                if result.__class__ is GeneratorType:
                    return self._long(client, route, context, request, result, len(frame), started)
            if result.__class__ in _READY_TYPES:
                answer = self.encode(client, route, header, result, started)
                if isinstance(answer, list):
                    return answer
                pending = Pending(self, client, route, header, started)
                pending.request = request
                pending.wait_for_frame(self.in_turns(client, header, answer), self.context)
                return pending
        except Exception as error:
            return self.refuse(client, route, header, request, error, started)
        if result is None:
            self.unanswered(client, route, header, started)
            return None
        if len(frame) > _PINNABLE_FRAME_BYTES and isinstance(request, ProduceRequest):
            request = finish(_without_records(request))
        pending = Pending(self, client, route, header, started)
        pending.wait_for(request, result, self.context)
        return pending

    def _look_for_stream(
        self,
        client: Client,
        route: Route,
        handler: ProduceHandler,
        header: RequestHeader,
        frame: memoryview,
        request: ProduceRequest,
    ) -> None:
        """Begin a stream with the second of two like requests, so that no time is lost where each differs."""
        transactional_id, acks, timeout_ms, topics = request
        topic = topics[0][0] if topics else ""
        likeness = (route, header.client_id, transactional_id, acks, timeout_ms, topic)
        if likeness != client.last_produce:
            client.last_produce = likeness
        elif acks in ANSWERED_ACKS and topic not in INTERNAL_TOPICS:
            shape = ProduceShape.of(route.version, frame, request)
            if shape is not None:
                client.stream = ProduceStream(self, client, route, handler, shape, header.client_id)

    def dispatch_metered(
        self, client: Client, frame: memoryview, started: float
    ) -> list[Buffer] | Pending | None:
        """`dispatch` for as long as a client has a quota."""
        meter = self.meter
        try:
            header, _ = decode_request_header(frame)
        except ProtocolError:
            meter = None
        if meter is None:
            return self.dispatch(client, frame, started)
        meter.arrived(client.state, header, len(frame))
        began = _now()
        try:
            return self.dispatch(client, frame, started)
        finally:
            meter.worked(client.state, header, _now() - began)

    def _long(
        self,
        client: Client,
        route: Route,
        context: RequestContext,
        request: Any,
        result: Any,
        frame_bytes: int,
        started: float,
    ) -> Pending:
        """A request of many elements, whose first step is done. Its steps give `request` or `result`."""
        pending = Pending(self, client, route, context.header, started)
        if result is not _NOT_HANDLED:
            pending.request = request
        if route.is_hot:
            # Its steps read the receive buffer, and later requests must not take effect before it does.
            pending.holds_back = pending.keeps_frame = True
        if route.api_key == ApiKey.FETCH:
            pending.reserved_bytes = sys.maxsize
        if route.api_key != ApiKey.PRODUCE:
            pending.held_bytes = frame_bytes * _VALUE_BYTES_A_FRAME_BYTE
        frame = self._serve_long(pending, client, route, context, request, result, started)
        pending.wait_for_frame(frame, self.context)
        return pending

    async def _serve_long(
        self,
        pending: Pending,
        client: Client,
        route: Route,
        context: RequestContext,
        request: Any,
        result: Any,
        started: float,
    ) -> list[Buffer]:
        header = context.header
        run = partial(self._run, client, header)
        async with nullcontext() if route.is_hot else self._long_requests:
            await self.turns.next()
            if result is _NOT_HANDLED:
                try:
                    request = await run(request)
                except ProtocolError as error:
                    raise BadRequest(str(error), header) from None
                pending.request = request
            result = await self._handled(run, route, context, request, result)
            if isinstance(request, ProduceRequest):
                # Its views would keep a receive buffer in memory.
                pending.request = request = await run(_without_records(request))
            if isinstance(result, LateEffect):
                pending.holds(result.held_bytes)
                result.when_effective(pending.took_effect)
            elif route.is_hot:
                pending.took_effect()
            if isinstance(result, Parked):
                pending.holds(result.held_bytes)
            if result.__class__ in _READY_TYPES:
                return await self._frame(client, route, header, result, started)
        if result is not None:
            result = await result
            if isinstance(result, Exception):
                raise result
        if result is None:
            return self.unanswered(client, route, header, started)
        return await self._frame(client, route, header, result, started)

    async def _handled(
        self,
        run: Callable[[Steps[Any]], Awaitable[Any]],
        route: Route,
        context: RequestContext,
        request: Any,
        result: Any,
    ) -> Any:
        """The handler's result once its steps are done, or the API's error answer if the handler refuses."""
        try:
            if result is _NOT_HANDLED:
                result = route.handle(context, request)
            return await run(result) if result.__class__ is GeneratorType else result
        except ApiError as error:
            answer = route.error_answer(request, error.code, error.message)
            return await run(answer) if answer.__class__ is GeneratorType else answer

    def _run(self, client: Client, header: RequestHeader, steps: Steps[T]) -> Coroutine[Any, Any, T]:
        """The result of the steps of a request, one per turn."""
        meter = self.meter
        return self.turns.run(steps if meter is None else meter.timed(client.state, header, steps))

    async def in_turns(
        self, client: Client, header: RequestHeader, frame: Steps[list[Buffer]]
    ) -> list[Buffer]:
        """The frame of a long answer, whose first step is done."""
        await self.turns.next()
        return await self._run(client, header, frame)

    async def _frame(
        self, client: Client, route: Route, header: RequestHeader, result: Any, started: float
    ) -> list[Buffer]:
        answer = self.encode(client, route, header, result, started)
        return answer if isinstance(answer, list) else await self.in_turns(client, header, answer)

    def unanswered(self, client: Client, route: Route, header: RequestHeader, started: float) -> list[Buffer]:
        """A request has been served whose client expects no answer: what is sent in its place."""
        route.tally.succeeded(_now() - started)
        if self.meter is not None:
            self.meter.answered(client, route, header, _NO_BYTES)
        return [_NO_BYTES]

    def encode(
        self, client: Client, route: Route, header: RequestHeader, result: Any, started: float
    ) -> list[Buffer] | Steps[list[Buffer]]:
        """The frame for a handler's result, counted, or the steps to it, of which the first is done."""
        body = route.encode(route.version, result)
        counts: Any = route.count_errors(result)
        if body.__class__ is bytes and counts is None:
            route.tally.succeeded(_now() - started)
            if self.meter is not None:
                body = self.meter.answered(client, route, header, body)
            return encode_response_frame(route.api_key, route.version, header.correlation_id, body)
        body, counts = begin(body), begin(counts)
        if body.__class__ is GeneratorType or counts.__class__ is GeneratorType:
            return self._encode_long(client, route, header, body, counts, started)
        return self._framed(client, route, header, body, counts, started)

    def _encode_long(
        self, client: Client, route: Route, header: RequestHeader, body: Any, counts: Any, started: float
    ) -> Steps[list[Buffer]]:
        if body.__class__ is GeneratorType:
            body = yield from body
        if counts.__class__ is GeneratorType:
            counts = yield from counts
        return self._framed(client, route, header, body, counts, started)

    def _framed(
        self,
        client: Client,
        route: Route,
        header: RequestHeader,
        body: Any,
        counts: dict[int, int] | None,
        started: float,
    ) -> list[Buffer]:
        if counts is None:
            route.tally.succeeded(_now() - started)
        else:
            route.tally.finished(counts.items(), _now() - started)
        if self.meter is not None:
            body = self.meter.answered(client, route, header, body)
        return encode_response_frame(route.api_key, route.version, header.correlation_id, body)

    def refuse(
        self,
        client: Client,
        route: Route,
        header: RequestHeader,
        request: Any,
        error: BaseException,
        started: float,
    ) -> list[Buffer]:
        """The frame for a handler's error, counted. An empty list if none can be made or none is expected."""
        if isinstance(error, CloseConnection):
            return []
        code, message = self._code_of(error, client, route, header)
        try:
            answer = finish(route.error_answer(request, code, message))
            return finish(self.encode(client, route, header, answer, started))
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
        """Log one event for an error that is a bug."""
        self._events.error(
            "request_failed",
            client.state.client_host,
            api=route.api_name,
            api_version=route.version,
            client_id=header.client_id,
            client_software=client.state.client_software,
            peer=client.state.client_host,
            error=repr(error),
            exc_info=error,
        )

    def _close(self, context: RequestContext, refused: ApiError) -> Never:
        """End a connection whose request is not allowed at its step of authentication."""
        connection = context.connection
        if connection.authentication is AuthenticationStep.EXPIRED:
            self._metrics.session_expired()
        self._events.info(
            "connection_closed_not_authenticated",
            connection.client_host,
            peer=connection.client_host,
            listener=connection.listener.name,
            step=connection.authentication.name,
            reason=refused.message,
        )
        raise CloseConnection

    def _unsupported(self, state: ConnectionState, header: RequestHeader, started: float) -> list[Buffer]:
        """The answer to a version or an API that is not served, where the protocol has one (KIP-511)."""
        if state.authentication.is_early:
            state.early_requests += 1
            if state.early_requests > MOST_EARLY_REQUESTS:
                raise BadRequest(TOO_MANY_EARLY_REQUESTS, header)
        if header.api_key != ApiKey.API_VERSIONS:
            raise BadRequest(_unsupported_reason(header), header)
        answer = unsupported_api_versions_body()
        # All unknown versions share one series: a peer must not be able to invent 65,536 of them.
        counts = ((int(ErrorCode.UNSUPPORTED_VERSION), 1),)
        self._metrics.request_finished("ApiVersions", _UNKNOWN_VERSION, counts, _now() - started)
        return encode_response_frame(header.api_key, 0, header.correlation_id, answer)


def _without_records(request: ProduceRequest) -> Steps[ProduceRequest]:
    """The request without its records: what is needed to refuse it."""
    pace = Pace(GLANCES_A_STEP)
    topics = []
    for name, partitions in request.topics:
        topics.append((name, (yield from each(_without_batch, partitions, pace))))
        if pace.spent():
            yield
    return request._replace(topics=topics)


def _without_batch(partition: tuple[int, Buffer | None]) -> tuple[int, None]:
    return partition[0], None


def _unsupported_reason(header: RequestHeader) -> str:
    try:
        key = ApiKey(header.api_key)
        served = SERVED_APIS[key]
    except (ValueError, KeyError):
        return f"API key {header.api_key} is not served"
    return f"{APIS[key].name} is served in versions {served.first} to {served.last}, not {header.api_version}"


def _readable_part(frame: memoryview) -> RequestHeader | None:
    """API key, version and correlation id of a header that ends too early; None if these are incomplete."""
    if len(frame) < 8:
        return None
    api_key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
    return RequestHeader(api_key, version, int.from_bytes(frame[4:8], "big", signed=True), None)
