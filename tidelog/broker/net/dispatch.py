"""From a request frame to its handler, and from what that gives to the frame of the answer.

Owns the steps of one request, and which code an error becomes. An ApiError becomes that API's error answer.
Any other exception becomes UNKNOWN_SERVER_ERROR with one log event, and both the connection and the broker
continue.

Invariants: each answered request is counted once; a callback waits for a LateAnswer, never a separate task.
`dispatch` is called when data arrives and calls the handler before it returns, so views of the
frame are valid for the handler's synchronous part. A request of many elements continues after that in steps,
one per turn of the loop; if it reads views of its frame, its connection receives nothing meanwhile. Requests
take effect in order of arrival: what a request does after the synchronous part is done before its connection
dispatches the next one (`Waiting.holds_back`).

For the event loop only.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Final, Never, Protocol, TypeVar

from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState
from tidelog.broker.handlers.context import CloseConnection, Handler, LateAnswer, RequestContext
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.turns import Turns
from tidelog.broker.net.exchange import BadRequest, Client, Exchange
from tidelog.broker.net.produce_stream import ProduceStream
from tidelog.broker.net.routes import MOST_EARLY_REQUESTS, TOO_MANY_EARLY_REQUESTS, RouteTable
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.served_apis import SERVED_APIS, unsupported_api_versions_body
from tidelog.broker.storage.disk import LEAST_MAPPED_BYTES, in_memory
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.framing import RequestHeader, decode_request_header, encode_response_frame
from tidelog.protocol.hot import ProduceRequest
from tidelog.protocol.schema import APIS, ApiKey
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps, each
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.broker.handlers.leader_hints import LeaderHints
    from tidelog.broker.net.metering import Meter

_now = time.perf_counter
_NO_BYTES: Final = b""
"""What is sent where no answer is expected."""
T = TypeVar("T")
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
        self.meter: Meter | None = None
        """Set while a client has a quota."""
        self.leader_hints: LeaderHints | None = None
        """Set where other brokers may lead."""
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
        exchange = Exchange(client, route, header, started)
        steps = self._steps(client, exchange, frame, position)
        try:
            next(steps)
        except StopIteration as end:
            answer: list[Buffer] | LateAnswer = end.value
            if isinstance(answer, list):
                return answer
            exchange.wait_for(answer)
            answer.then(partial(self._given, exchange))
        else:
            exchange.work_long(len(frame))
            slots = nullcontext() if route.is_hot else self._long_requests
            self._work(exchange, self._take_turns(exchange, steps, slots))
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
                client.stream = ProduceStream.after(self.answer, exchange, route.produces, frame)
        try:
            result = route.handle(exchange, request)
            if result.__class__ is GeneratorType:
                result = yield from result
        except Exception as error:
            return (yield from self.answer(exchange, error))
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
            return (yield from self.answer(exchange, result))
        if len(frame) > _PINNABLE_FRAME_BYTES and isinstance(request, ProduceRequest):
            exchange.request = yield from _without_records(request)
        return late

    async def _take_turns(
        self, exchange: Exchange, steps: Steps[T], slots: AbstractAsyncContextManager[None]
    ) -> T:
        """The other steps of a request of many elements, or of its answer, once there is a slot for it."""
        async with slots:
            await self.turns.next()
            return await self.turns.run(steps if self.meter is None else self.meter.timed(exchange, steps))

    def _work(self, exchange: Exchange, work: Coroutine[Any, Any, list[Buffer] | LateAnswer]) -> None:
        exchange.task = asyncio.ensure_future(work)
        exchange.task.add_done_callback(partial(self._worked, exchange))

    def _worked(self, exchange: Exchange, task: asyncio.Future[list[Buffer] | LateAnswer]) -> None:
        """The steps of a long request or of a long answer are done."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        exchange.task = None
        if exchange.is_over:
            return
        if isinstance(error, BadRequest):
            exchange.is_over = True
            exchange.client.bad_request(error)
        elif error is not None:
            self._given(exchange, error)
        elif isinstance(result := task.result(), LateAnswer):
            exchange.task = result.task
            result.then(partial(self._given, exchange))
        else:
            exchange.is_over, exchange.answer = True, self._read_mapped(exchange, result)
            exchange.client.answer_ready(exchange)

    def _given(self, exchange: Exchange, value: Any) -> None:
        """Its late answer has its value. Raises nothing: other callbacks run after this one."""
        exchange.task = None  # A cancelled task keeps its frames, and these keep the request.
        if exchange.is_over:
            return
        try:
            steps = self.answer(exchange, value)
            try:
                next(steps)
            except StopIteration as end:
                exchange.is_over, exchange.answer = True, end.value
                if sum(map(len, end.value)) >= LEAST_MAPPED_BYTES:
                    exchange.answer = self._read_mapped(exchange, end.value)
                exchange.client.answer_ready(exchange)
            else:
                self._work(exchange, self._take_turns(exchange, steps, nullcontext()))
        except Exception as error:
            self._log_unexpected(exchange, error)

    def _read_mapped(self, exchange: Exchange, answer: list[Buffer]) -> list[Buffer]:
        """The answer for a later step of the loop than that in which it was read."""
        try:
            return in_memory(answer)
        except OSError as error:
            self._log_unexpected(exchange, error)
            return []

    def answer(self, exchange: Exchange, given: Any) -> Steps[list[Buffer]]:
        """The frame for what a handler gave, counted, and charged to quotas: for response values, or for an
        error. It has no bytes where no answer is expected, and no buffers if the connection is to end."""
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
            self._log_unexpected(exchange, error)
            return []
        if counts is None:
            route.tally.succeeded(_now() - exchange.started)
        else:
            route.tally.finished(counts.items(), _now() - exchange.started)
        if self.meter is not None:
            body = self.meter.answered(exchange, body)
        return encode_response_frame(route.api_key, route.version, exchange.header.correlation_id, body)

    def _code_of(self, exchange: Exchange, error: BaseException) -> tuple[ErrorCode, str | None]:
        if isinstance(error, ApiError):
            return error.code, error.message
        if isinstance(error, asyncio.CancelledError):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping"
        self._log_unexpected(exchange, error)
        return ErrorCode.UNKNOWN_SERVER_ERROR, None

    def _log_unexpected(self, exchange: Exchange, error: BaseException) -> None:
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

    def dispatch_metered(
        self, client: ProducingClient, frame: memoryview, started: float
    ) -> list[Buffer] | Exchange:
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
