"""Frames and headers: it splits received bytes into frames and headers, and encodes them.

Owns: the size prefix, request headers v0 to v2, response headers v0 and v1, and the one receive buffer of a
connection.

Invariants: a frame's announced length is checked before memory is allocated, and memory grows only with
received bytes: the buffer grows fourfold, and only after it was full. A received byte is copied at most once
to the front of the buffer, and at most once more each time the buffer grows, for chunks of any size. After a
ProtocolError a reader cannot be used any more: close the connection.

Source: the protocol guide's "Request and Response Headers", KIP-482, KIP-511.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.schema import APIS, ApiKey
from tidelog.protocol.types import Buffer
from tidelog.protocol.varint import skip_tagged_fields

_SIZE = Struct(">i")
_REQUEST_HEADER_V0 = Struct(">hhi")
_REQUEST_HEADER_V1 = Struct(">hhih")
_RESPONSE_PREFIX = Struct(">ii")

_CONTROLLED_SHUTDOWN: Final = 7
_NO_TAGGED_FIELDS: Final = b"\x00"
_NEVER_FLEXIBLE: Final = 32768
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_MAX_STRING_BYTES: Final = 32767
_NULL_LENGTH: Final = -1

_START_BYTES: Final = 4 * 1024
_GROWTH: Final = 4
_READ_BYTES: Final = 64 * 1024
"""The buffer size that a busy connection reaches with frames of any size."""
_KEPT_BYTES: Final = 2 * 1024 * 1024
_SMALL_ROUNDS_BEFORE_SHRINKING: Final = 64
_TLS_HANDSHAKE: Final = b"\x16\x03"
"""How a connection with TLS begins."""
_JOINED_BYTES: Final = 16 * 1024


class _FirstFlexible(dict[int, int]):
    """The first flexible version by API, each read from its declaration when it is first needed."""

    def __missing__(self, api_key: int) -> int:
        if api_key not in APIS:
            return _NEVER_FLEXIBLE
        self[api_key] = first = APIS[ApiKey(api_key)].first_flexible_version
        return first


_FIRST_FLEXIBLE: Final = _FirstFlexible()


class RequestHeader(NamedTuple):
    """The header of a request. Header v0 has no client id, so it is None."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def request_header_version(api_key: int, version: int) -> int:
    """2 for flexible versions, else 1, also for unknown APIs; 0 for version 0 of ControlledShutdown."""
    if version >= _FIRST_FLEXIBLE[api_key]:
        return 2
    return 0 if api_key == _CONTROLLED_SHUTDOWN and version == 0 else 1


def response_header_version(api_key: int, version: int) -> int:
    """1 for flexible versions, else 0. Always 0 for ApiVersions: its client may not know the version yet."""
    return 1 if version >= _FIRST_FLEXIBLE[api_key] and api_key != _API_VERSIONS else 0


def decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header and the offset at which the body starts. Raises ProtocolError."""
    size = len(frame)
    position = _REQUEST_HEADER_V1.size
    if size < position:
        return _decode_short_header(frame)
    api_key, version, correlation_id, length = _REQUEST_HEADER_V1.unpack_from(frame)
    if api_key == _CONTROLLED_SHUTDOWN and version == 0:
        return _decode_short_header(frame)
    if length == _NULL_LENGTH:
        client_id = None
    else:
        end = position + length
        if length < 0 or end > size:
            raise ProtocolError(_bad_client_id(length, size - position))
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"request header: client_id: expected UTF-8, got {error.reason}") from None
        position = end
    if version >= _FIRST_FLEXIBLE[api_key]:
        # A short path for an empty section, the common case: this runs once per request.
        if position < size and frame[position] == 0:
            position += 1
        else:
            position = skip_tagged_fields(frame, position)
    # Not by the constructor, which takes twice as long.
    return tuple.__new__(RequestHeader, (api_key, version, correlation_id, client_id)), position


def _decode_short_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Header v0. Raises ProtocolError if the frame is too short."""
    size = len(frame)
    if size < _REQUEST_HEADER_V0.size:
        raise _cut(_REQUEST_HEADER_V0.size, size)
    api_key, version, correlation_id = _REQUEST_HEADER_V0.unpack_from(frame)
    if api_key == _CONTROLLED_SHUTDOWN and version == 0:
        return RequestHeader(api_key, version, correlation_id, None), _REQUEST_HEADER_V0.size
    raise _cut(_REQUEST_HEADER_V1.size, size)


def _cut(expected: int, came: int) -> ProtocolError:
    return ProtocolError(f"request header: expected {expected} bytes or more, got {came}")


def _bad_client_id(length: int, remain: int) -> str:
    if length < 0:
        return f"request header: client_id: expected a string or null, got length {length}"
    return f"request header: client_id: expected {length} bytes, {remain} bytes remain"


def encode_request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: Buffer | list[Buffer]
) -> list[Buffer]:
    """The frame with its size prefix, as buffers to be written in order; large bodies are not copied."""
    name = b"" if client_id is None else client_id.encode()
    header_version = request_header_version(api_key, version)
    if header_version == 0:
        header = _REQUEST_HEADER_V0.pack(api_key, version, correlation_id)
    else:
        length = -1 if client_id is None else len(name)
        if length > _MAX_STRING_BYTES:
            raise ProtocolError(f"client_id: expected at most 32767 bytes, got {length}")
        header = _REQUEST_HEADER_V1.pack(api_key, version, correlation_id, length) + name
        if header_version == 2:
            header += _NO_TAGGED_FIELDS
    size = len(header) + _size_of(body)
    return _joined(_SIZE.pack(size) + header, body)


def encode_response_frame(
    api_key: int, version: int, correlation_id: int, body: Buffer | list[Buffer]
) -> list[Buffer]:
    """The frame with its size prefix, as buffers to be written in order; large bodies are not copied."""
    is_flexible = version >= _FIRST_FLEXIBLE[api_key] and api_key != _API_VERSIONS
    size = len(body) if isinstance(body, bytes) else _size_of(body)
    prefix = _RESPONSE_PREFIX.pack(4 + is_flexible + size, correlation_id)
    if is_flexible:
        prefix += _NO_TAGGED_FIELDS
    return [prefix + body] if isinstance(body, bytes) and size <= _JOINED_BYTES else _joined(prefix, body)


def decode_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id and the offset at which the body starts. Raises ProtocolError."""
    if len(frame) < _SIZE.size:
        raise ProtocolError(f"response header: expected {_SIZE.size} bytes or more, got {len(frame)}")
    (correlation_id,) = _SIZE.unpack_from(frame)
    position = _SIZE.size
    if response_header_version(api_key, version) == 1:
        position = skip_tagged_fields(frame, position)
    return correlation_id, position


def _size_of(body: Buffer | list[Buffer]) -> int:
    return sum(map(len, body)) if isinstance(body, list) else len(body)


def _joined(prefix: bytes, body: Buffer | list[Buffer]) -> list[Buffer]:
    if isinstance(body, list):
        return [prefix, *body]
    if len(body) <= _JOINED_BYTES:
        return [prefix + body]
    return [prefix, body]


class FrameReader:
    """The receive buffer of one connection, for asyncio.BufferedProtocol.

    One buffer is filled in place. Frames are views of it, without the size prefix. It starts small, grows
    while the bytes of a large frame arrive, and shrinks again. Before each growth `grant` is called with the
    wanted bytes of memory and returns the allowed bytes, at least 1.
    """

    __slots__ = (
        "_buffer", "_end", "_grant", "_needed", "_small_rounds", "_start", "_view", "capacity_bytes",
        "completed", "is_large", "max_frame_bytes",
    )  # fmt: skip

    def __init__(self, max_frame_bytes: int, grant: Callable[[int], int] | None = None) -> None:
        self.max_frame_bytes = max_frame_bytes
        """The longest frame that is accepted from now on."""
        self._grant = grant
        self.completed = 0
        """Changes when frames of a large buffer are returned."""
        self._start = 0
        self._end = 0
        self._needed = _SIZE.size
        self._replace_buffer(_START_BYTES)

    @property
    def wanted_bytes(self) -> int:
        """Size of the receive buffer after the next `get_buffer`."""
        if self._end < self.capacity_bytes:
            return self.capacity_bytes
        useful = max(_READ_BYTES, self._needed + _START_BYTES)
        return max(self.capacity_bytes, min(_GROWTH * self.capacity_bytes, useful))

    @property
    def pending_bytes(self) -> int:
        """Bytes received that do not make a whole frame yet."""
        return self._end - self._start

    @property
    def missing_bytes(self) -> int:
        """Missing bytes of the frame that has begun to arrive, or of its length."""
        return self._needed - (self._end - self._start)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes. Views returned by `buffer_updated` become invalid."""
        start, end = self._start, self._end
        pending = end - start
        if end == self.capacity_bytes:
            self._make_room()
        elif not pending:
            self._start = self._end = 0
            if self._small_rounds >= _SMALL_ROUNDS_BEFORE_SHRINKING:
                self._replace_buffer(_READ_BYTES)
            return self._view
        elif start:
            self._view[:pending] = self._view[start:end]
            self._start = 0
            self._end = pending
        return self._view[self._end :]

    def frames_served(self) -> None:
        """Free a buffer that is larger than what is kept. Only if no view is in use."""
        if self.is_large and self._needed <= _KEPT_BYTES:
            self._move(max(_READ_BYTES, self._end - self._start))

    def release(self) -> None:
        """Shrink to a new reader's memory. Only if no frame has begun to arrive and no view is in use."""
        if self._end == self._start and self.capacity_bytes > _START_BYTES:
            self._start = self._end = 0
            self._replace_buffer(_START_BYTES)

    def discard(self) -> None:
        """From now on `get_buffer` gives a small buffer for bytes that nobody wants. Views stay valid."""
        self._start = self._end = 0
        self._replace_buffer(_START_BYTES)

    def close(self) -> None:
        """Free the memory, even if something still refers to this reader, which is not used any more."""
        self._grant = None  # Its owner's, most likely: a cycle.
        self._replace_buffer(0)

    def buffer_updated(self, count: int) -> list[memoryview]:
        """The frames that are complete after `count` more bytes, valid until the next `get_buffer`.

        Raises ProtocolError for a length that is negative or above the limit.
        """
        start = self._start
        self._end = end = self._end + count
        frames: list[memoryview] = []
        if end - start < self._needed:
            return frames
        view = self._view
        unpack_size = _SIZE.unpack_from
        needed = _SIZE.size
        large = False
        while end - start >= _SIZE.size:
            (size,) = unpack_size(view, start)
            if not 0 <= size <= self.max_frame_bytes:
                raise self._bad_size(size)
            needed = _SIZE.size + size
            if end - start < needed:
                break
            frames.append(view[start + _SIZE.size : start + needed])
            start += needed
            if needed > _READ_BYTES:
                large = True
            needed = _SIZE.size
        self._start = start
        self._needed = needed
        if self.capacity_bytes > _READ_BYTES:
            self._settle(large)
        return frames

    def _settle(self, large: bool) -> None:
        """Count how long a large buffer was not needed."""
        self.completed += 1
        if large or self._needed > _READ_BYTES:
            self._small_rounds = 0
        else:
            self._small_rounds += 1

    def _make_room(self) -> None:
        """The buffer was full, so more bytes are likely: enlarge it as far as that helps."""
        more = self.wanted_bytes - self.capacity_bytes
        if more and self._grant is not None:
            more = self._grant(more)
        self._move(self.capacity_bytes + more)

    def _move(self, capacity: int) -> None:
        """Move the bytes that were not returned yet to the front of a buffer of `capacity` bytes."""
        pending = self._view[self._start : self._end]
        if capacity != self.capacity_bytes:
            self._replace_buffer(capacity)
        self._start = 0
        self._end = len(pending)
        self._view[: self._end] = pending

    def _replace_buffer(self, capacity: int) -> None:
        self._buffer = bytearray(capacity)
        self._view = memoryview(self._buffer)
        self.capacity_bytes = capacity
        """Present size of the receive buffer."""
        self.is_large = capacity > _KEPT_BYTES + _READ_BYTES
        """Whether `frames_served` may free some of it."""
        self._small_rounds = 0

    def _bad_size(self, size: int) -> ProtocolError:
        came = _SIZE.pack(size)
        cause = "the peer may use HTTP on this port, or the limit is too low"
        if came.startswith(_TLS_HANDSHAKE):
            cause = "the peer uses TLS, and this port does not: change its security.protocol"
        return ProtocolError(
            f"frame length: expected 0 to {self.max_frame_bytes}, got {size} (bytes {came.hex(' ')}); {cause}"
        )
