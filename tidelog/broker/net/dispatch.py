"""From a request frame to its handler.

Owns the steps of one request: header, version check, decode, handler; then `broker.net.answers`.

Invariants: `dispatch` is called when data arrives and calls the handler before it returns, so views of the
frame are valid for the handler's synchronous part. A request of many elements continues after that in steps,
one per turn of the loop; if it reads views of its frame, its connection receives nothing meanwhile. Requests
take effect in order of arrival: what a request does after the synchronous part is done before its connection
dispatches the next one (`Pending.holds_back`).

For the event loop only.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from types import GeneratorType
from typing import Any, Final, Never, Protocol

from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState
from tidelog.broker.handlers.context import (
    CloseConnection,
    EncodedAnswer,
    Handler,
    LateEffect,
    Parked,
    RequestContext,
)
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.turns import Turns
from tidelog.broker.net.answers import Answers
from tidelog.broker.net.exchange import BadRequest, Client, Exchange
from tidelog.broker.net.pending import Pending
from tidelog.broker.net.produce_stream import ProduceStream
from tidelog.broker.net.routes import MOST_EARLY_REQUESTS, TOO_MANY_EARLY_REQUESTS, RouteTable
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.served_apis import SERVED_APIS, unsupported_api_versions_body
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError, again
from tidelog.protocol.framing import RequestHeader, decode_request_header, encode_response_frame
from tidelog.protocol.hot import FetchResponse, ProduceRequest, ProduceShape
from tidelog.protocol.schema import APIS, ApiKey
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps, begin, each, finish
from tidelog.protocol.types import Buffer

_now = time.perf_counter
_UNKNOWN_VERSION = -1
_READY_TYPES = frozenset((dict, list, FetchResponse, EncodedAnswer))
_PINNABLE_FRAME_BYTES = 64 * 1024
"""A waiting request may keep a receive buffer of up to this size; of larger frames only names are kept."""
MOST_LONG_REQUESTS: Final = 4
"""How many requests of many elements are decoded at the same time: the values of one take up to 50 MB."""
_VALUE_BYTES_PER_FRAME_BYTE: Final = 20
"""Memory for the values of a long request; not for Produce, whose records stay in the frame."""
_NOT_HANDLED: Final = object()


class ProducingClient(Client, Protocol):
    """A connection whose requests are dispatched, and streamed where they repeat."""

    stream: ProduceStream | None
    """Serves requests that repeat an earlier one."""
    last_produce: tuple[object, ...]
    """What the last Produce request must have in common with the next one for a stream of them."""


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
        self.answers = Answers(events, self.turns)
        self._long_requests = asyncio.Semaphore(MOST_LONG_REQUESTS)

    def routes_at(self, step: AuthenticationStep) -> RouteTable:
        """The routes that the gate opens to a connection at this step."""
        return self._routes[step]

    def dispatch(
        self, client: ProducingClient, frame: memoryview, started: float
    ) -> list[Buffer] | Pending | None:
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
        exchange = Exchange(client, route, header, started)
        if route.produces is not None and request.__class__ is ProduceRequest:
            self._look_for_stream(client, exchange, route.produces, frame, request)
        if request.__class__ is GeneratorType:
            return self._long(exchange, request, _NOT_HANDLED, len(frame))
        answers = self.answers
        try:
            result = route.handle(exchange, request)
            if result.__class__ is GeneratorType:
                result = begin(result)
                if result.__class__ is GeneratorType:
                    return self._long(exchange, request, result, len(frame))
            if result.__class__ in _READY_TYPES:
                answer = answers.encode(exchange, result)
                if isinstance(answer, list):
                    return answer
                pending = Pending(answers, exchange)
                pending.request = request
                pending.wait_for_frame(answers.in_turns(exchange, answer))
                return pending
        except Exception as error:
            return answers.refuse(exchange, request, error)
        if result is None:
            answers.unanswered(exchange)
            return None
        if len(frame) > _PINNABLE_FRAME_BYTES and isinstance(request, ProduceRequest):
            request = finish(_without_records(request))
        pending = Pending(answers, exchange)
        pending.wait_for(request, result)
        return pending

    def _look_for_stream(
        self,
        client: ProducingClient,
        exchange: Exchange,
        handler: ProduceHandler,
        frame: memoryview,
        request: ProduceRequest,
    ) -> None:
        """Begin a stream with the second of two like requests, so that no time is lost where each differs."""
        route = exchange.route
        transactional_id, acks, timeout_ms, topics = request
        topic = topics[0][0] if topics else ""
        likeness = (route, exchange.header.client_id, transactional_id, acks, timeout_ms, topic)
        if likeness != client.last_produce:
            client.last_produce = likeness
        elif acks:
            shape = ProduceShape.of(route.version, frame, request)
            if shape is not None:
                client.stream = ProduceStream(self.answers, exchange, handler, shape)

    def dispatch_metered(
        self, client: ProducingClient, frame: memoryview, started: float
    ) -> list[Buffer] | Pending | None:
        """`dispatch` for as long as a client has a quota."""
        meter = self.answers.meter
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

    def _long(self, exchange: Exchange, request: Any, result: Any, frame_bytes: int) -> Pending:
        """A request of many elements, whose first step is done. Its steps give `request` or `result`."""
        route = exchange.route
        pending = Pending(self.answers, exchange)
        if result is not _NOT_HANDLED:
            pending.request = request
        if route.is_hot:
            # Its steps read the receive buffer, and later requests must not take effect before it does.
            pending.holds_back = pending.keeps_frame = True
        if route.api_key == ApiKey.FETCH:
            pending.reserved_bytes = sys.maxsize
        if route.api_key != ApiKey.PRODUCE:
            pending.held_bytes = frame_bytes * _VALUE_BYTES_PER_FRAME_BYTE
        pending.wait_for_frame(self._serve_long(pending, exchange, request, result))
        return pending

    async def _serve_long(
        self, pending: Pending, exchange: Exchange, request: Any, result: Any
    ) -> list[Buffer]:
        answers, is_hot = self.answers, exchange.route.is_hot
        run = partial(answers.run, exchange)
        async with nullcontext() if is_hot else self._long_requests:
            await self.turns.next()
            if result is _NOT_HANDLED:
                try:
                    request = await run(request)
                except ProtocolError as error:
                    raise BadRequest(str(error), exchange.header) from None
                pending.request = request
            result = await self._handled(exchange, request, result)
            if isinstance(request, ProduceRequest):
                # Its views would keep a receive buffer in memory.
                pending.request = request = await run(_without_records(request))
            if isinstance(result, LateEffect):
                pending.holds(result.held_bytes)
                result.when_effective(pending.took_effect)
            elif is_hot:
                pending.took_effect()
            if isinstance(result, Parked):
                pending.holds(result.held_bytes)
            if result.__class__ in _READY_TYPES:
                return await answers.frame(exchange, result)
        if result is not None:
            result = await result
            if isinstance(result, Exception):
                raise again(result)
        return answers.unanswered(exchange) if result is None else await answers.frame(exchange, result)

    async def _handled(self, exchange: Exchange, request: Any, result: Any) -> Any:
        """The handler's result once its steps are done, or the API's error answer if the handler refuses."""
        route, run = exchange.route, self.answers.run
        try:
            if result is _NOT_HANDLED:
                result = route.handle(exchange, request)
            return await run(exchange, result) if result.__class__ is GeneratorType else result
        except ApiError as error:
            answer = route.error_answer(request, error.code, error.message)
            return await run(exchange, answer) if answer.__class__ is GeneratorType else answer

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
    pace = Pace(CHECKS_PER_STEP)
    topics = []
    for name, partitions in request.topics:
        topics.append((name, (yield from each(lambda one: (one[0], None), partitions, pace))))
        if pace.spent():
            yield
    return request._replace(topics=topics)


def _unsupported_reason(header: RequestHeader) -> str:
    try:
        key = ApiKey(header.api_key)
        served = SERVED_APIS[key]
    except (ValueError, KeyError):
        return f"API key {header.api_key} is not served"
    return f"expected {APIS[key].name} version {served.first} to {served.last}, got {header.api_version}"


def _readable_part(frame: memoryview) -> RequestHeader | None:
    """API key, version and correlation id of a header that ends too early; None if these are incomplete."""
    if len(frame) < 8:
        return None
    api_key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
    return RequestHeader(api_key, version, int.from_bytes(frame[4:8], "big", signed=True), None)
