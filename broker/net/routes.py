"""What is done with each (API, version): decode, handler, encode, count, and the answer of last resort.

Owns `Route` and the table of them. Invariants: a route is made once and then only read; Produce and Fetch go
through `protocol.hot`, everything else through `protocol.schema`; what `broker.served_apis` does not list, or
what has no handler, has no route.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tidelog.broker.handlers.context import EncodedAnswer, RequestContext
from tidelog.broker.metrics import Metrics, RequestTally
from tidelog.broker.net.error_answers import ERROR_ANSWERS, ErrorAnswer, ErrorCount, error_count_of
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import (
    FetchResponse,
    decode_fetch_request,
    decode_produce_request,
    encode_fetch_response,
    encode_produce_response,
)
from tidelog.protocol.schema import APIS, ApiKey, decode_request, encode_response
from tidelog.protocol.types import Buffer

Handler = Callable[[RequestContext, Any], Any]
"""(context, request) -> response values, an asyncio.Future or coroutine of them, or None for no answer."""


class Route:
    """One API in one version."""

    __slots__ = (
        "api_key",
        "api_name",
        "count_errors",
        "decode",
        "encode",
        "error_answer",
        "handle",
        "holds_back",
        "tally",
        "version",
    )

    def __init__(self, api_key: ApiKey, version: int, handle: Handler, tally: RequestTally) -> None:
        self.api_key = int(api_key)
        self.api_name = APIS[api_key].name
        self.version = version
        self.holds_back = SERVED_APIS[api_key].kind.holds_back
        self.handle = handle
        self.tally = tally
        self.decode: Callable[[memoryview], Any] = partial(
            _DECODERS.get(api_key, partial(decode_request, api_key)), version
        )
        self.encode: Callable[[Any], Buffer | list[Buffer]] = partial(
            _ENCODERS.get(api_key, partial(encode_response, api_key)), version
        )
        self.error_answer: ErrorAnswer = ERROR_ANSWERS[api_key]
        self.count_errors: ErrorCount = error_count_of(api_key)


def _encode_fetch(version: int, response: FetchResponse) -> list[Buffer]:
    return encode_fetch_response(
        version, response.error_code, response.session_id, response.topics, response.throttle_time_ms
    )


def _encode_described(version: int, answer: dict[str, Any]) -> bytes:
    if isinstance(answer, EncodedAnswer):
        return answer.body
    return encode_response(ApiKey.DESCRIBE_PRODUCERS, version, answer)


_DECODERS: Mapping[ApiKey, Callable[..., Any]] = {
    ApiKey.PRODUCE: decode_produce_request,
    ApiKey.FETCH: decode_fetch_request,
}
_ENCODERS: Mapping[ApiKey, Callable[..., Any]] = {
    ApiKey.PRODUCE: encode_produce_response,
    ApiKey.FETCH: _encode_fetch,
    ApiKey.DESCRIBE_PRODUCERS: _encode_described,
}
_FIRST_PRODUCE_WITH_BATCHES = 3


class RouteTable:
    """(API key, version) -> Route for the APIs that have a handler; routes are made at first use."""

    def __init__(self, handlers: Mapping[ApiKey, Handler], metrics: Metrics) -> None:
        self._handlers = handlers
        self._metrics = metrics
        self._routes: dict[tuple[int, int], Route] = {}

    def find(self, api_key: int, version: int) -> Route | None:
        """The route, or None when this API or this version of it is not served."""
        return self._routes.get((api_key, version)) or self._make(api_key, version)

    def _make(self, api_key: int, version: int) -> Route | None:
        served = SERVED_APIS.get(api_key)  # type: ignore[call-overload]
        handler = self._handlers.get(api_key)  # type: ignore[call-overload]
        if handler is None or served is None or not served.has(version):
            return None
        api = APIS[ApiKey(api_key)]
        route = Route(api.key, version, handler, self._metrics.request(api.name, version))
        self._routes[api_key, version] = route
        return route


def refuse_old_produce(version: int, body: memoryview) -> bytes | None:
    """UNSUPPORTED_VERSION for each partition of a Produce 0-2 request, or None when it expects no answer.

    These versions are advertised (see `broker.served_apis`) and not served: they carry message sets of the
    old formats. Raises ProtocolError for malformed bytes.
    """
    from tidelog.protocol.codecs import Codec

    api = APIS[ApiKey.PRODUCE]
    request = Codec(api.request, version, 100_000).decode(body)
    if request.acks == 0:
        return None
    responses = [
        {
            "name": topic.name,
            "partition_responses": [
                {"index": partition.index, "error_code": ErrorCode.UNSUPPORTED_VERSION, "base_offset": -1}
                for partition in topic.partition_data
            ],
        }
        for topic in request.topic_data
    ]
    return Codec(api.response, version, 100_000).encode({"responses": responses})
