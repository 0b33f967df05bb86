"""What is done with each (API, version): decode, handler, encode, count, and the answer of last resort.

Owns `Route`, the table of them, and the kind of each API. Invariants: a route is made once and then only
read; Produce and Fetch go through `protocol.hot`, everything else through `protocol.schema`; an API without a
handler has no route, and one without a kind cannot have any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from typing import Any

from tidelog.broker.handlers.context import EncodedAnswer, RequestContext
from tidelog.broker.metrics import Metrics, RequestTally
from tidelog.broker.net.error_answers import ERROR_ANSWERS, ErrorAnswer, ErrorCount, error_count_of
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


class Kind(Enum):
    """What a request does. It decides whether those behind it on its connection wait for its answer.

    Kafka serves one request of a connection at a time. Here only those hold others back that would let a
    client see the difference. A request that is answered at once never does.
    """

    APPEND = auto()
    """Takes effect before its handler returns and is answered once it is durable. Those behind it go on, so
    that five may be in flight."""
    LONG_POLL = auto()
    """Reads what is there when it answers, which may be much later. Those behind it go on: they take effect
    sooner than in Kafka, and their answers still leave behind its own."""
    READ = auto()
    """Reads, and may do so after its handler returned. Those behind it may change that, so they wait."""
    CHANGE = auto()
    """Takes effect at any time until it is answered. Those behind it must see that, so they wait."""

    @property
    def holds_back(self) -> bool:
        """Whether nothing behind such a request is served until it is answered."""
        return self in (Kind.READ, Kind.CHANGE)


KINDS: Mapping[ApiKey, Kind] = {
    ApiKey.PRODUCE: Kind.APPEND,
    ApiKey.FETCH: Kind.LONG_POLL,
    ApiKey.LIST_OFFSETS: Kind.READ,
    ApiKey.METADATA: Kind.CHANGE,  # It creates topics.
    ApiKey.OFFSET_COMMIT: Kind.CHANGE,
    ApiKey.OFFSET_FETCH: Kind.READ,
    ApiKey.FIND_COORDINATOR: Kind.READ,
    ApiKey.API_VERSIONS: Kind.READ,
    ApiKey.CREATE_TOPICS: Kind.CHANGE,
    ApiKey.DELETE_TOPICS: Kind.CHANGE,
    ApiKey.DELETE_RECORDS: Kind.CHANGE,
    ApiKey.INIT_PRODUCER_ID: Kind.CHANGE,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Kind.READ,
    ApiKey.DESCRIBE_CONFIGS: Kind.READ,
    ApiKey.ALTER_CONFIGS: Kind.CHANGE,
    ApiKey.CREATE_PARTITIONS: Kind.CHANGE,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Kind.CHANGE,
    ApiKey.DESCRIBE_CLUSTER: Kind.READ,
    ApiKey.DESCRIBE_PRODUCERS: Kind.READ,
}
"""API -> its kind. Every API that is served is listed."""


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
        self.holds_back = KINDS[api_key].holds_back
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
        handler = self._handlers.get(api_key)  # type: ignore[call-overload]
        if handler is None:
            return None
        api = APIS[ApiKey(api_key)]
        if not api.min_version <= version <= api.max_version:
            return None
        route = Route(api.key, version, handler, self._metrics.request(api.name, version))
        self._routes[api_key, version] = route
        return route


def refuse_old_produce(version: int, body: memoryview) -> bytes | None:
    """UNSUPPORTED_VERSION for each partition of a Produce 0-2 request, or None when it expects no answer.

    These versions are advertised (see `protocol.schema`) and not served: they carry message sets of the old
    formats. Raises ProtocolError for malformed bytes.
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
