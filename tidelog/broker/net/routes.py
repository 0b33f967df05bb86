"""How each (API, version) is served: decode, handler, encode, count, and the error answer.

Owns `Route` and the table of them. Invariants: a route is made once and then only read; Produce and Fetch use
`protocol.hot`, all others `protocol.schema`; an API or version that is not in `broker.served_apis` or has no
handler has no route; where the gate refuses an API, its route refuses every request.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Never

from tidelog.broker.handlers.connection_state import AuthenticationStep
from tidelog.broker.handlers.context import CloseConnection, Handler, RequestContext
from tidelog.broker.handlers.error_answers import ErrorAnswer
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.net.error_counts import ErrorCount, declared_error_count, error_count_of
from tidelog.broker.observability.metrics import Metrics, RequestTally
from tidelog.broker.served_apis import SERVED_APIS, closes, refusal
from tidelog.protocol.codecs import Codec
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError, again
from tidelog.protocol.hot import (
    decode_fetch_request_steps,
    decode_produce_request_steps,
    encode_fetch_response_steps,
    encode_produce_response_steps,
)
from tidelog.protocol.messages.declaration import version_in
from tidelog.protocol.schema import APIS, MAX_REQUEST_ELEMENTS, ApiKey, request_codec, response_codec
from tidelog.protocol.steps import Pace, Steps, each, in_steps

MOST_EARLY_REQUESTS: Final = 16
"""Requests of a client before it is authenticated: ApiVersions in some versions, a handshake, the tokens."""
TOO_MANY_EARLY_REQUESTS: Final = f"more than {MOST_EARLY_REQUESTS} requests before authentication"


class Route:
    """Serves one API in one version. `decode`, `handle`, `encode` and `count_errors` may give the steps to a
    result. `is_hot`: a request is decoded to views of its frame and
    takes effect in the order of arrival.
    """

    __slots__ = (
        "api_key", "api_name", "count_errors", "decode", "encode", "error_answer", "handle", "holds_back",
        "is_hot", "may_be_long", "produces", "tally", "throttle_position", "version",
    )  # fmt: skip

    def __init__(self, api_key: ApiKey, version: int, handle: Handler, tally: RequestTally) -> None:
        self.api_key = int(api_key)
        self.api_name = APIS[api_key].name
        self.version = version
        served = SERVED_APIS[api_key]
        self.holds_back = served.kind.holds_back
        self.may_be_long = served.kind.may_be_long
        self.is_hot = api_key in _HOT
        self.handle = handle
        owner = getattr(handle, "__self__", None)
        self.produces = owner if isinstance(owner, ProduceHandler) else None
        """Where a stream of requests may append without `handle`."""
        self.tally = tally
        self.decode: Callable[[memoryview], Any]
        self.encode: Callable[[Any], Any]
        if self.is_hot:
            self.decode, self.encode = (partial(each, version) for each in _HOT[api_key])
        else:
            self.decode = request_codec(api_key, version).decode_steps
            self.encode = response_codec(api_key, version).encode_steps
        self.error_answer: ErrorAnswer = served.error_answer
        self.count_errors: ErrorCount = error_count_of(api_key)
        self.throttle_position = _throttle_position(api_key, version)
        """Of throttle_time_ms in an encoded answer, from its end where negative; None if it has none."""


def _throttle_position(api_key: ApiKey, version: int) -> int | None:
    """Of Produce it is the last field; where tagged fields follow it, `handlers.leader_hints` puts it first
    in the last buffer. Elsewhere it is the first field, except in ApiVersions, where that is not fixed."""
    response = APIS[api_key].response
    if api_key == ApiKey.PRODUCE:
        return -5 if version_in(version, response.flexible) else -4
    first = next(field for field in response.fields if version_in(version, field.versions))
    return 0 if first.name == "throttle_time_ms" else None


class OldProduceRoute(Route):
    """A version of Produce that is advertised (see `broker.served_apis`) but not served."""

    def __init__(self, version: int, tally: RequestTally) -> None:
        super().__init__(ApiKey.PRODUCE, version, _refuse_old_produce, tally)
        api = APIS[ApiKey.PRODUCE]
        self.is_hot = False
        request = Codec(api.request, version, MAX_REQUEST_ELEMENTS)
        self.decode = partial(_decode_old_produce, request)
        self.encode = Codec(api.response, version, MAX_REQUEST_ELEMENTS).encode_steps
        self.count_errors = declared_error_count(api.response)


def _decode_old_produce(codec: Codec, body: memoryview) -> Steps[Any]:
    request = yield from in_steps(codec.decode_steps(body))
    if request.acks == 0:
        raise ProtocolError(
            f"{codec.label} is not supported, and with acks=0 the connection is closed instead of an answer"
        )
    return request


def _refuse_old_produce(context: RequestContext, request: Any) -> Steps[dict[str, Any]]:
    pace = Pace()
    responses = []
    for topic in request.topic_data:
        results = yield from each(_unsupported_version, topic.partition_data, pace)
        responses.append({"name": topic.name, "partition_responses": results})
        if pace.spent():
            yield
    return {"responses": responses}


def _unsupported_version(partition: Any) -> dict[str, Any]:
    return {"index": partition.index, "error_code": ErrorCode.UNSUPPORTED_VERSION, "base_offset": -1}


_HOT: Mapping[ApiKey, tuple[Callable[..., Any], Callable[..., Any]]] = {
    ApiKey.PRODUCE: (decode_produce_request_steps, encode_produce_response_steps),
    ApiKey.FETCH: (decode_fetch_request_steps, encode_fetch_response_steps),
}


def _close(context: RequestContext, refused: ApiError) -> Never:
    raise CloseConnection


def _refuse(refused: ApiError, context: RequestContext, request: object) -> Never:
    raise again(refused)


class RouteTable(dict[tuple[int, int], Route | None]):
    """(API key, version) -> Route for connections at one step of authentication; made at first use.

    None when this API or this version of it is not served.
    """

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        metrics: Metrics,
        step: AuthenticationStep,
        close: Callable[[RequestContext, ApiError], Never] | None = None,
    ) -> None:
        """`close` ends the connection of a request for the given reason."""
        self._close = close or _close
        self._handlers = handlers
        self._metrics = metrics
        self._step = step

    def __missing__(self, wanted: tuple[int, int]) -> Route | None:
        api_key, version = wanted
        served = SERVED_APIS.get(api_key)  # type: ignore[call-overload]
        if served is None:
            return None
        key = ApiKey(api_key)
        refused = refusal(key, self._step)
        handler = self._handlers.get(key)
        if refused is not None:
            handler = partial(self._end, refused) if closes(self._step) else partial(_refuse, refused)
        elif handler is not None and self._step.is_early:
            handler = partial(self._early, handler)
        if handler is None:
            return None
        is_old_produce = key == ApiKey.PRODUCE and 0 <= version < served.first
        if not served.has(version) and not is_old_produce:
            return None
        tally = self._metrics.request(APIS[key].name, version)
        route = OldProduceRoute(version, tally) if is_old_produce else Route(key, version, handler, tally)
        if refused is not None and closes(self._step):
            # Its contents are not decoded.
            route.decode, route.handle = lambda _: None, handler
        self[key, version] = route
        return route

    def _end(self, refused: ApiError, context: RequestContext, request: object) -> Never:
        self._close(context, refused)

    def _early(self, handler: Handler, context: RequestContext, request: object) -> Any:
        """A request of a client that is not authenticated yet, of which only a few are served."""
        context.connection.early_requests += 1
        if context.connection.early_requests > MOST_EARLY_REQUESTS:
            self._close(context, ApiError(ErrorCode.ILLEGAL_SASL_STATE, TOO_MANY_EARLY_REQUESTS))
        return handler(context, request)
