"""One TCP connection to one broker: it pipelines requests and matches answers by correlation id.

Owns: the socket, the receive buffer, the requests that wait for answers, and the negotiated versions.
Invariants:
- every request's handler is called exactly once, with the body of its answer or with an error;
- after any fault (end of stream, malformed bytes, a late answer) the connection closes, and every waiting
  request fails at once: no answer can arrive for a request that was given up;
- requests are sent in the order of `send`, which passes their bytes to the transport before it returns, or
  keeps a copy while the connection is authenticated again;
- the view that a handler gets is valid only until it returns.
For one event loop.
Source: the protocol guide ("Network", "Common Request and Response Structure"), KIP-511 for ApiVersions.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tidelog.client.asked_apis import ASKED_APIS
from tidelog.client.cluster_config import ClusterConfig
from tidelog.client.errors import (
    BrokerUnavailableError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from tidelog.client.metrics import ClientMetrics
from tidelog.protocol.errors import ErrorCode, ProtocolError
from tidelog.protocol.framing import FrameReader, decode_response_header, encode_request_frame
from tidelog.protocol.schema import APIS, ApiKey, decode_response, encode_request
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.client.security.authentication import Authentication

__all__ = ["AnswerHandler", "Connection"]

AnswerHandler: TypeAlias = Callable[[memoryview | None, ClientError | None], None]

_MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
_SOFTWARE_NAME: Final = "tidelog"
_SOFTWARE_VERSION: Final = "0.1.0"
# Answers to ApiVersions, of which an older broker refuses the first.
_MOST_OF_NEGOTIATION: Final = 2
_MAX_CORRELATION_ID: Final = 2**31 - 1
_BROKEN_OFF: Final = (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, ConnectionLostError)
_OF_AUTHENTICATION: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class _Waiting(NamedTuple):
    """A request on the wire; times are seconds of the loop's clock."""

    api_key: int
    version: int
    began: float
    deadline: float
    handler: AnswerHandler


class Connection(asyncio.BufferedProtocol):
    """Made by `open`, which returns it ready for requests."""

    __slots__ = (
        "__weakref__",
        "_authentication",
        "_client_id",
        "_held",
        "_is_negotiated",
        "_loop",
        "_next_correlation_id",
        "_on_close",
        "_reader",
        "_request_timeout",
        "_timer",
        "_timer_at",
        "_transport",
        "_versions",
        "_waiting",
        "address",
        "features",
        "is_congested",
        "is_open",
        "metrics",
        "on_writable",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: str,
        config: ClusterConfig,
        on_close: Callable[[Connection, ClientError], None],
    ) -> None:
        self.address = address
        self.is_open = False
        # The features that the cluster has finalized, with their versions (KIP-584).
        self.features: dict[str, int] = {}
        # The broker reads more slowly than the client writes: send no more before `on_writable`.
        self.is_congested = False
        self.on_writable: Callable[[], None] | None = None
        self.metrics = ClientMetrics()
        self._loop = loop
        self._client_id = config.client_id
        self._request_timeout = config.request_timeout_ms / 1000
        self._on_close = on_close
        self._reader = FrameReader(_MAX_FRAME_BYTES)
        self._waiting: dict[int, _Waiting] = {}
        self._next_correlation_id = 0
        self._versions: dict[int, int] = {}
        self._is_negotiated = False
        # Frames that wait until the connection is authenticated again; None if it is not under way.
        self._held: list[bytes] | None = None
        self._authentication: Authentication | None = None
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        config: ClusterConfig,
        *,
        on_close: Callable[[Connection, ClientError], None],
    ) -> Connection:
        """Connect, negotiate versions and authenticate. `on_close` is called once when the connection ends.

        Raises BrokerUnavailableError if nothing answers at the address, or not as a broker, and
        AuthenticationError (TlsError) if one of the two sides does not accept the other.
        """
        loop = asyncio.get_running_loop()
        address = f"{host}:{port}"
        connection = cls(loop, address, config, on_close)
        try:
            async with asyncio.timeout(config.connect_timeout_ms / 1000):
                await connection._begin(host, port, config)
        except (OSError, ConnectionLostError) as error:
            waited = f"no answer within {config.connect_timeout_ms} ms"
            reason = _reason(error) or waited
            if isinstance(error, _BROKEN_OFF) and not connection._is_negotiated:
                tls_advice = "Does the port use TLS, and does the broker need a certificate (ssl_certfile)?"
                plain_advice = "Does the port need another security_protocol?"
                reason = f"{reason}. {tls_advice if config.has_tls else plain_advice}"
            connection.close(BrokerUnavailableError(f"{address} does not answer ({reason})"))
            raise BrokerUnavailableError(f"{address} cannot be reached ({reason})") from error
        except BaseException:
            connection.close(ConnectionLostError(f"{address}: given up"))
            raise
        return connection

    async def _begin(self, host: str, port: int, config: ClusterConfig) -> None:
        context = None
        if config.has_tls:
            from tidelog.client.security import tls

            context = tls.make_context(config)
        try:
            await self._loop.create_connection(lambda: self, host, port, ssl=context)
        except ssl.SSLError as error:
            if (explained := tls.explain(self.address, error)) is not None:
                raise explained from None
            raise
        except (ValueError, OverflowError) as error:
            raise OSError(f"the address cannot be used: {error}") from error
        await self._negotiate()
        if config.has_sasl:
            from tidelog.client.security.authentication import Authentication

            self._authentication = Authentication(config, self)
            await self._authentication.begin()

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answers."""
        return len(self._waiting)

    def patience_ms(self) -> int:
        """How long the answer to a request may take that is sent now: the answers to all requests before it
        come first."""
        now = self._loop.time()
        last = max((each.deadline for each in self._waiting.values()), default=now)
        return int((last - now + self._request_timeout) * 1000)

    def supports(self, api_key: ApiKey) -> bool:
        """Whether client and broker have a common version of the API."""
        return api_key in self._versions

    def version(self, api_key: ApiKey, at_least: int = 0, at_most: int | None = None) -> int:
        """The highest common version up to `at_most`. Raises UnsupportedVersionError if none is `at_least` or
        above."""
        version = self._versions.get(api_key)
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
        correlation_id = self._write(api_key, version, body)
        self._waiting[correlation_id] = _Waiting(api_key, version, now, deadline, handler)
        self.metrics.request_sent(now)
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)

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
                value = decode_response(api_key, used, body)
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

    async def _negotiate(self) -> None:
        """Send ApiVersions in our highest version. An older broker answers an error in version 0."""
        version = ASKED_APIS[ApiKey.API_VERSIONS].last
        while True:
            answer = await self._ask_versions(version)
            if answer.error_code == ErrorCode.NONE:
                break
            theirs = [each.max_version for each in answer.api_keys if each.api_key == ApiKey.API_VERSIONS]
            if answer.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                raise UnsupportedVersionError(f"{self.address} refuses ApiVersions ({answer.error_code})")
            version = max(0, min(version - 1, theirs[0])) if theirs else 0
        for offered in answer.api_keys:
            ours = ASKED_APIS.get(offered.api_key)
            if ours is None:
                continue
            common = min(ours.last, offered.max_version)
            if common >= max(ours.first, offered.min_version):
                self._versions[offered.api_key] = common
        self.features = {each.name: each.max_version_level for each in answer.finalized_features}
        self.is_open = self._is_negotiated = True

    async def _ask_versions(self, version: int) -> Any:
        answer: asyncio.Future[Any] = self._loop.create_future()

        def handle(body: memoryview | None, error: ClientError | None) -> None:
            if body is not None:
                refused = int.from_bytes(body[:2], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION
                value = decode_response(ApiKey.API_VERSIONS, 0 if refused else version, body)
                if not answer.done():
                    answer.set_result(value)
            elif error is not None and not answer.done():
                answer.set_exception(error)

        values = {"client_software_name": _SOFTWARE_NAME, "client_software_version": _SOFTWARE_VERSION}
        body = encode_request(ApiKey.API_VERSIONS, version, values)
        self.is_open = True
        self.send(ApiKey.API_VERSIONS, version, body, handle)
        return await answer

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
        earliest = min(self._waiting.values(), key=_deadline_of)
        if earliest.deadline > self._loop.time():
            self._set_timer(earliest.deadline)
            return
        name = APIS[ApiKey(earliest.api_key)].name
        self.close(RequestTimeoutError(f"{self.address}: no answer to {name} in time"))

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        error: ClientError | None = None
        if isinstance(exc, ssl.SSLError):
            # In TLS 1.3 the client learns only now that the broker refuses its certificate.
            from tidelog.client.security import tls

            error = tls.explain(self.address, exc)
        text = f"{self.address}: connection lost ({exc or 'closed by the broker'})"
        answered = self._next_correlation_id - len(self._waiting)
        if self._is_negotiated and self._authentication is None and answered <= _MOST_OF_NEGOTIATION:
            text += ". The listener may need a user: check security_protocol"
        self._closed(error or ConnectionLostError(text))

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

    def _closed(self, error: ClientError) -> None:
        was_open, self.is_open = self.is_open, False
        if self._authentication is not None:
            self._authentication.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            self.metrics.request_ended(None, self._loop.time())
            each.handler(None, error)
        if was_open:
            self._on_close(self, error)


def _deadline_of(waiting: _Waiting) -> float:
    return waiting.deadline


def _reason(error: OSError | ConnectionLostError) -> str:
    """Why connecting failed, as the system names it: asyncio's own text leaves out the cause."""
    if isinstance(error, ConnectionLostError):
        return error.message
    if isinstance(error, ssl.SSLError) or error.errno is None:
        return str(error)
    return os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)
