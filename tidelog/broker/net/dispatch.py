"""From a request frame to its handler.

Owns the steps of one request: header, version check, decode, handler; then `broker.net.answers`.

Invariants: `dispatch` is called when data arrives and calls the handler before it returns, so views of the
frame are valid for the handler's synchronous part. A request of many elements continues after that in steps,
one per turn of the loop; if it reads views of its frame, its connection receives nothing meanwhile. Requests
take effect in order of arrival: what a request does after the synchronous part is done before its connection
dispatches the next one (`Waiting.holds_back`).

For the event loop only.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import nullcontext
from types import CoroutineType, GeneratorType
from typing import Final, Never, Protocol

from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState
from tidelog.broker.handlers.context import CloseConnection, Handler, LateAnswer, RequestContext
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.turns import Turns
from tidelog.broker.net.answers import Answers
from tidelog.broker.net.exchange import BadRequest, Client, Exchange
from tidelog.broker.net.produce_stream import ProduceStream
from tidelog.broker.net.routes import MOST_EARLY_REQUESTS, TOO_MANY_EARLY_REQUESTS, RouteTable
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.served_apis import SERVED_APIS, unsupported_api_versions_body
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.framing import RequestHeader, decode_request_header, encode_response_frame
from tidelog.protocol.hot import ProduceRequest
from tidelog.protocol.schema import APIS, ApiKey
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps, each
from tidelog.protocol.types import Buffer

_now = time.perf_counter
_UNKNOWN_VERSION = -1
_LATE = LateAnswer, CoroutineType, asyncio.Future
_PINNABLE_FRAME_BYTES = 64 * 1024
"""A waiting request may keep a receive buffer of up to this size; of larger frames only names are kept."""
MOST_LONG_REQUESTS: Final = 4
"""How many requests of many elements are decoded at the same time: the values of one take up to 50 MB."""


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

    def dispatch(self, client: ProducingClient, frame: memoryview, started: float) -> list[Buffer] | Exchange:
        """Serve one request: the answer's buffers, or the Exchange that is answered later.

        `started` is the frame's time of arrival by `time.perf_counter`. Raises BadRequest.
        """
        try:
            header, position = decode_request_header(frame)
        except ProtocolError as error:
            raise BadRequest(str(error), _readable_part(frame)) from None
        route = client.routes[header.api_key, header.api_version]
        if route is None:
            return self._unsupported(client.state, header, started)
        exchange = Exchange(self.answers, client, route, header, started)
        steps = self._steps(client, exchange, frame, position)
        try:
            next(steps)
        except StopIteration as end:
            answer: list[Buffer] | LateAnswer = end.value
            if isinstance(answer, list):
                return answer
            exchange.wait_for(answer)
        else:
            exchange.work_long(self._in_turns(exchange, steps), len(frame))
        return exchange

    def _steps(
        self, client: ProducingClient, exchange: Exchange, frame: memoryview, position: int
    ) -> Steps[list[Buffer] | LateAnswer]:
        """All of a request: its answer, or what gives it later. Raises BadRequest."""
        route = exchange.route
        try:
            request = route.decode(frame[position:])
            if request.__class__ is GeneratorType:
                request = yield from request
        except ProtocolError as error:
            raise BadRequest(str(error), exchange.header) from None
        exchange.request = request
        if route.produces is not None and request.__class__ is ProduceRequest:
            # Begun with the second of two like requests, so that no time is lost where each differs.
            transactional_id, acks, timeout_ms, topics = request
            topic = topics[0][0] if topics else ""
            likeness = (route, exchange.header.client_id, transactional_id, acks, timeout_ms, topic)
            if likeness != client.last_produce:
                client.last_produce = likeness
            elif acks:
                client.stream = ProduceStream.after(self.answers, exchange, route.produces, frame)
        try:
            result = route.handle(exchange, request)
            if result.__class__ is GeneratorType:
                result = yield from result
        except Exception as error:
            return (yield from self.answers.answer(exchange, error))
        exchange.is_handled = True
        late = None
        if isinstance(result, _LATE):
            late = result if isinstance(result, LateAnswer) else LateAnswer.of(result)
            if late.is_given:
                result = late.value
                late = None
        if exchange.task is not None:
            exchange.handled(late)
        if late is None:
            return (yield from self.answers.answer(exchange, result))
        if len(frame) > _PINNABLE_FRAME_BYTES and isinstance(request, ProduceRequest):
            exchange.request = yield from _without_records(request)
        return late

    async def _in_turns(
        self, exchange: Exchange, steps: Steps[list[Buffer] | LateAnswer]
    ) -> list[Buffer] | LateAnswer:
        """The other steps of a request of many elements."""
        async with nullcontext() if exchange.route.is_hot else self._long_requests:
            return await self.answers.in_turns(exchange, steps)

    def dispatch_metered(
        self, client: ProducingClient, frame: memoryview, started: float
    ) -> list[Buffer] | Exchange:
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
