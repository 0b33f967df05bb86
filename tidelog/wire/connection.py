"""One TCP connection to one broker: it pipelines requests and matches answers by correlation id.

Owns: the socket, the receive buffer and the requests that wait for answers. `opening` begins it.
Invariants:
- every request's handler is called exactly once, with the body of its answer or with an error; again, with
  an error, if it raises for the body;
- after any fault (end of stream, malformed bytes, a late answer) the connection closes, and every waiting
  request fails at once: no answer can arrive for a request that was given up;
- requests are sent in the order of `send`, which passes their bytes to the transport before it returns, or
  keeps a copy while the connection is authenticated again;
- the view that a handler gets is valid only until it returns.
For one event loop.
Source: the protocol guide ("Network", "Common Request and Response Structure").
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.framing import FrameReader, decode_response_header, encode_request_frame
from tidelog.protocol.schema import APIS, ApiKey, decode_response, encode_request
from tidelog.protocol.types import Buffer
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.errors import (
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    UnexpectedError,
    UnsupportedVersionError,
)
from tidelog.wire.metrics import RequestMetrics

AnswerHandler: TypeAlias = Callable[[memoryview | None, ClientError | None], None]

_MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
_MAX_CORRELATION_ID: Final = 2**31 - 1
_SILENCE_SECONDS: Final = 2.0
"""Time without an answer after which a broker may hang, although its machine still accepts what is sent."""
_CLOCK_STEP_S: Final = 0.001
"""Of uvloop's clock: a timer may fire this much too early, and would be set again and again until then."""
_OF_AUTHENTICATION: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class _Waiting(NamedTuple):
    """A request on the wire; times are seconds of the loop's clock."""

    api_key: int
    version: int
    began: float
    deadline: float
    silent_at: float
    handler: AnswerHandler


class Connection(asyncio.BufferedProtocol):
    """Made by `opening`, which returns it ready for requests. `explain` says why the transport ended."""

    __slots__ = (
        "__weakref__", "_client_id", "_explain", "_held", "_loop", "_next_correlation_id", "_on_close",
        "_reader", "_request_timeout", "_timer", "_timer_at", "_transport", "_waiting", "address",
        "features", "is_congested", "is_open", "metrics", "on_silence", "on_writable", "versions",
    )  # fmt: skip

    def __init__(
        self,
        address: str,
        config: ClusterConfig,
        on_close: Callable[[Connection, ClientError], None],
        explain: Callable[[Exception | None], ClientError],
    ) -> None:
        self.address = address
        self.is_open = False
        # The common versions of each API.
        self.versions: dict[int, int] = {}
        # The features that the cluster has finalized, with their versions (KIP-584).
        self.features: dict[str, int] = {}
        # The broker reads more slowly than the client writes: send no more before `on_writable`.
        self.is_congested = False
        self.on_writable: Callable[[], None] | None = None
        # Called while the broker gives no answer, each `_SILENCE_SECONDS`.
        self.on_silence: Callable[[], None] | None = None
        self.metrics = RequestMetrics()
        self._loop = asyncio.get_running_loop()
        self._client_id = config.client_id
        self._request_timeout = config.request_timeout_ms / 1000
        self._on_close = on_close
        self._explain = explain
        self._reader = FrameReader(_MAX_FRAME_BYTES)
        self._waiting: dict[int, _Waiting] = {}
        self._next_correlation_id = 0
        # Frames that wait until the connection is authenticated again; None if it is not under way.
        self._held: list[bytes] | None = None
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    @property
    def answered(self) -> int:
        """Requests that were answered, or wait for no answer."""
        return self._next_correlation_id - len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answers."""
        return len(self._waiting)

    @property
    def is_silent(self) -> bool:
        """Whether a request waits for longer than brokers that work take."""
        now = self._loop.time()
        return any(each.silent_at <= now for each in self._waiting.values())

    def patience_ms(self) -> int:
        """How long the answer to a request may take that is sent now: the answers to all requests before it
        come first."""
        now = self._loop.time()
        last = max((each.deadline for each in self._waiting.values()), default=now)
        return int((last - now + self._request_timeout) * 1000)

    def supports(self, api_key: ApiKey) -> bool:
        """Whether client and broker have a common version of the API."""
        return api_key in self.versions

    def version(self, api_key: ApiKey, at_least: int = 0, at_most: int | None = None) -> int:
        """The highest common version up to `at_most`. Raises UnsupportedVersionError if none is `at_least` or
        above."""
        version = self.versions.get(api_key)
        if version is None or version < at_least:
            raise UnsupportedVersionError(f"{self.address} does not serve {APIS[api_key].name} as needed")
        return version if at_most is None else min(version, at_most)

    def send(
        self,
        api_key: int,
        version: int,
        body: Buffer | list[Buffer],
        handler: AnswerHandler,
        timeout_ms: int | None = None,
    ) -> None:
        """Write a request. `handler` gets the answer's body or the error, always after `send` has returned.

        Raises ConnectionLostError if the connection is closed already: nothing is sent then.
        """
        now = self._loop.time()
        deadline = now + (self._request_timeout if timeout_ms is None else timeout_ms / 1000)
        # What a broker may wait for, such as records to fetch, is in the timeout.
        silent_at = max(now, deadline - self._request_timeout) + _SILENCE_SECONDS
        correlation_id = self._write(api_key, version, body)
        self._waiting[correlation_id] = _Waiting(api_key, version, now, deadline, silent_at, handler)
        self.metrics.request_sent(now)
        due = deadline if deadline < silent_at else silent_at
        if self._timer is None or due < self._timer_at:
            self._set_timer(due)

    def send_unanswered(self, api_key: int, version: int, body: Buffer | list[Buffer]) -> None:
        """Write a request to which the broker gives no answer (Produce with acks=0). Raises as `send`."""
        self._write(api_key, version, body)

    async def call(
        self,
        api_key: ApiKey,
        values: Mapping[str, object],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
        decode: Callable[[ApiKey, int, Buffer], Any] = decode_response,
    ) -> Any:
        """Send a request by its schema and return the decoded answer. The default is the highest version.

        Raises ConnectionLostError, RequestTimeoutError or UnsupportedVersionError. If cancelled, the request
        is still executed, and its answer is dropped.
        """
        if version is None:
            version = self.version(api_key)
        used = version
        answer: asyncio.Future[Any] = self._loop.create_future()

        def handle(body: memoryview | None, error: ClientError | None) -> None:
            if body is not None:
                value = decode(api_key, used, body)
                if not answer.done():
                    answer.set_result(value)
            elif error is not None and not answer.done():
                answer.set_exception(error)

        self.send(api_key, used, encode_request(api_key, used, values), handle, timeout_ms)
        return await answer

    def hold_requests(self) -> None:
        """Send only requests of authentication until `release_requests`."""
        self._held = []

    def release_requests(self) -> None:
        """Send the requests that were held back, in their order."""
        held, self._held = self._held, None
        if held and self.is_open:
            self._transport.writelines(held)

    def close(self, error: ClientError | None = None) -> None:
        """Close now. Every waiting request fails with `error`. A second call does nothing."""
        transport = getattr(self, "_transport", None)
        if transport is not None:
            transport.abort()
        self._closed(error or ConnectionLostError(f"{self.address}: closed by this client"))

    def _write(self, api_key: int, version: int, body: Buffer | list[Buffer]) -> int:
        if not self.is_open:
            raise ConnectionLostError(f"{self.address}: the connection is closed")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = 0 if correlation_id == _MAX_CORRELATION_ID else correlation_id + 1
        frame = encode_request_frame(api_key, version, correlation_id, self._client_id, body)
        if self._held is None or api_key in _OF_AUTHENTICATION:
            self._transport.writelines(frame)
        else:
            # A copy: the caller may change the buffers of a batch that it sends again.
            self._held.append(b"".join(frame))
        return correlation_id

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        """One timer serves all requests. It searches the earliest deadline when it fires, not per answer."""
        self._timer = None
        if not self._waiting:
            return
        earliest = min(self._waiting.values(), key=attrgetter("deadline"))
        now = self._loop.time() + _CLOCK_STEP_S
        if earliest.deadline > now:
            silent_at = min(each.silent_at for each in self._waiting.values())
            if silent_at <= now:
                silent_at = now + _SILENCE_SECONDS
                if self.on_silence is not None:
                    self.on_silence()
            self._set_timer(min(earliest.deadline, silent_at))
            return
        name = APIS[ApiKey(earliest.api_key)].name
        self.close(RequestTimeoutError(f"{self.address}: no answer to {name} in time"))

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed(self._explain(exc))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._reader.buffer_updated(nbytes):
                self._receive(frame)
        except ProtocolError as error:
            self.close(ConnectionLostError(f"{self.address}: the answer is malformed ({error})"))
        self._reader.frames_served()

    def pause_writing(self) -> None:
        self.is_congested = True

    def resume_writing(self) -> None:
        self.is_congested = False
        if self.on_writable is not None:
            self.on_writable()

    def eof_received(self) -> bool:
        return False

    def _receive(self, frame: memoryview) -> None:
        waiting = self._waiting.pop(int.from_bytes(frame[:4], "big", signed=True), None)
        if waiting is None:
            if self.is_open:
                raise ProtocolError("no waiting request has its correlation id")
            return
        now = self._loop.time()
        self.metrics.request_ended(now - waiting.began, now)
        try:
            _, start = decode_response_header(waiting.api_key, waiting.version, frame)
            waiting.handler(frame[start:], None)
        except ProtocolError as error:
            waiting.handler(None, ConnectionLostError(f"{self.address}: the answer is malformed ({error})"))
            raise
        except Exception as error:
            # Else nobody would end what waits for the answer.
            waiting.handler(None, UnexpectedError.of(error))
            raise

    def _closed(self, error: ClientError) -> None:
        was_open, self.is_open = self.is_open, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            self.metrics.request_ended(None, self._loop.time())
            each.handler(None, error)
        if was_open:
            self._on_close(self, error)
