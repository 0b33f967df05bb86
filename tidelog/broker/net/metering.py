"""Charges requests to the quotas of their clients, and has a client that is above one wait.

Owns what a request is charged with: the bytes of a Produce frame, the bytes of a Fetch answer, and of every
request the time that the event loop worked for it. Invariants:
- an answer is sent at once. It says how long its client is throttled, and for this time its connection is
  neither read nor served (KIP-219), so a client that ignores the answer's field waits as well;
- a client that is not authenticated is charged nothing: it could use up the quota of another one's client id;
- one answer of Fetch is not larger than what the client's quota allows at once;
- while no quota is set, dispatch does not come here.

Event loop only. Source: KIP-13, KIP-124, KIP-219; Kafka's ClientQuotaManager.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState
from tidelog.broker.limits.client_quotas import (
    MOST_CLIENT_ID_CHARACTERS,
    NO_QUOTA,
    ClientBuckets,
    ClientQuotas,
)
from tidelog.broker.observability.throttle_counts import ThrottleCounts
from tidelog.protocol.framing import RequestHeader
from tidelog.protocol.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    QUOTAS_OF_CLIENTS,
    REQUEST_PERCENTAGE,
)
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import Steps

if TYPE_CHECKING:
    from tidelog.broker.net.exchange import Exchange

_INT32 = struct.Struct(">i")
_MOST_MS: Final = 2**31 - 1
_CHARGED_AT: Final = (AuthenticationStep.AUTHENTICATED, AuthenticationStep.NOT_REQUIRED)
_BYTE_QUOTAS: Final = {
    ApiKey.PRODUCE: PRODUCER_BYTE_RATE,
    ApiKey.FETCH: CONSUMER_BYTE_RATE,
    ApiKey.SHARE_FETCH: CONSUMER_BYTE_RATE,
}
_FETCHES: Final = (ApiKey.FETCH, ApiKey.SHARE_FETCH)
T = TypeVar("T")


class Meter:
    """The use of the quotas of one broker."""

    def __init__(
        self, quotas: ClientQuotas, counts: ThrottleCounts, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._quotas = quotas
        self._counts = counts
        self._now = now

    def arrived(self, state: ConnectionState, header: RequestHeader, frame_bytes: int) -> None:
        """A request of `frame_bytes` is about to be served."""
        buckets = self._buckets(state, header)
        if header.api_key == ApiKey.PRODUCE and buckets.produced_bytes is not None:
            buckets.produced_bytes.charge(frame_bytes, self._now())
        elif header.api_key in _FETCHES:
            bucket = buckets.fetched_bytes
            state.fetch_max_bytes = sys.maxsize if bucket is None else int(bucket.burst)

    def worked(self, state: ConnectionState, header: RequestHeader, seconds: float) -> None:
        """The event loop worked `seconds` for a request."""
        bucket = self._buckets(state, header).request_seconds
        if bucket is not None:
            bucket.charge(seconds, self._now())

    def timed(self, exchange: Exchange, steps: Steps[T]) -> Steps[T]:
        """`steps`, each charged with the time that it takes."""
        try:
            while True:
                began = time.perf_counter()
                try:
                    next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                finally:
                    self.worked(exchange.connection, exchange.header, time.perf_counter() - began)
                yield
        finally:
            steps.close()

    def answered(self, exchange: Exchange, body: Any) -> Any:
        """The body of an answer with the time for which its client is throttled; an empty one stays empty."""
        state, header, route = exchange.connection, exchange.header, exchange.route
        buckets = self._buckets(state, header)
        now = self._now()
        size_bytes = len(body) if isinstance(body, bytes) else sum(map(len, body))
        if header.api_key in _FETCHES and buckets.fetched_bytes is not None:
            buckets.fetched_bytes.charge(size_bytes, now)
        delays = {
            quota: bucket.delay_seconds(now)
            for quota, bucket in zip(QUOTAS_OF_CLIENTS, buckets, strict=True)
            if bucket is not None and _concerns(quota, exchange)
        }
        throttle_seconds = max(delays.values(), default=0.0)
        throttle_time_ms = min(round(throttle_seconds * 1000), _MOST_MS)
        if throttle_time_ms == 0:
            return body
        quota = max(delays, key=delays.__getitem__)
        self._counts.throttled(quota, state.principal.name, _client_id(header), throttle_seconds)
        exchange.client.mute(throttle_seconds)
        if size_bytes and route.throttle_position is not None:
            return _with_throttle_time(body, route.throttle_position, throttle_time_ms)
        return body

    def _buckets(self, state: ConnectionState, header: RequestHeader) -> ClientBuckets:
        if state.authentication not in _CHARGED_AT:
            return NO_QUOTA
        return self._quotas.buckets(state.principal.name, _client_id(header))


def _client_id(header: RequestHeader) -> str:
    return (header.client_id or "")[:MOST_CLIENT_ID_CHARACTERS]


def _concerns(quota: str, exchange: Exchange) -> bool:
    """Whether a quota limits this request."""
    if quota == CONTROLLER_MUTATION_RATE:
        return exchange.connection.above_mutation_quota is exchange.header
    return quota == REQUEST_PERCENTAGE or _BYTE_QUOTAS.get(ApiKey(exchange.header.api_key)) == quota


def _with_throttle_time(body: Any, position: int, throttle_time_ms: int) -> Any:
    """The body of an answer with its field throttle_time_ms at `position`, from its end where negative."""
    if isinstance(body, bytes):
        patched = bytearray(body)
        _INT32.pack_into(patched, position if position >= 0 else len(patched) + position, throttle_time_ms)
        return bytes(patched)
    if position < 0:
        # Of Produce, with tagged fields after it: it is the first field of the last buffer.
        return [*body[:-1], _with_throttle_time(body[-1], 0, throttle_time_ms)]
    # The first buffer of Fetch is small.
    return [_with_throttle_time(bytes(body[0]), position, throttle_time_ms), *body[1:]]
