"""TLS between an accepted socket and the connection that it serves: OpenSSL's records in, plain bytes out.

Owns a connection during its handshake, then the bytes that are not decrypted or not encrypted yet. asyncio's
own TLS encrypts all that is written at once, and its buffers cannot be counted. Invariants:
- no more is decrypted than the connection reads: while it does not read, at most one read of the socket is
  kept, and the socket is not read;
- no more is encrypted than the socket takes soon (`_AHEAD_BYTES`), and at most that much per step of the
  loop; the rest stays as the buffers that were written, and counts as the write buffer;
- what TLS itself answers (a request for new keys) is bounded: a client that does not read it is not read, and
  one that asks again and again is disconnected;
- a connection gets its protocol only after its handshake, and is `Handshakes`'s until then;
- at most one event per connection is about its TLS.

Event loop only; steps of a handshake run in the thread of `Handshakes`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidelog.broker.configuration.address_overrides import canonical_host
from tidelog.broker.net.writing import CLIENT_USER, RECEIVED_BYTES, write_all
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.broker.net.handshakes import Handshakes
    from tidelog.broker.security.tls import ListenerTls

RECEIVE_BYTES = 128 * 1024
_RECORD_BYTES = 16 * 1024
"""The most plain bytes of a record of TLS."""
_FED_BYTES = 2 * _RECORD_BYTES
"""What OpenSSL gets at a time: its buffer grows to this and never shrinks."""
_AHEAD_BYTES = 256 * 1024
_MOST_HANDSHAKE_BYTES = 96 * 1024
"""A client's certificate chain is some kilobytes."""
_MOST_ANSWERED_BYTES = 1024
"""By TLS itself, to what arrived at once, or without plain bytes between: some 40 answers."""
_HANDSHAKE_RECORD = 0x16
_RECEIVED = memoryview(bytearray(RECEIVE_BYTES))
"""One buffer for all connections: what it contains is consumed before the next read."""


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """The protocol of an accepted socket, and the transport of `make_protocol()` after the handshake."""

    def __init__(
        self, tls: ListenerTls, handshakes: Handshakes, make_protocol: Callable[[], asyncio.BufferedProtocol]
    ) -> None:
        super().__init__()
        self._listener = tls
        self._handshakes = handshakes
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = tls.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._protocol: asyncio.BufferedProtocol | None = None
        self._raw: asyncio.Transport
        self.host = ""
        """The client's address."""
        self._user = ""
        self._handshake_bytes = 0
        self._is_in_step = False
        self._is_closing = False
        self._is_ended = False  # The socket is closed, or will be once it has sent what it has.
        self._is_reading_paused = False
        self._is_continuing = False
        self._unfed = b""  # Received while the connection did not read.
        self._answered_bytes = 0
        self._is_answer_unread = False
        self._backlog: deque[memoryview] = deque()
        self._backlog_bytes = 0
        self._is_raw_full = False
        self._is_sending_later = False
        self._is_writing_paused = False
        self._high_water = self._low_water = 0

    # From the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = transport  # type: ignore[assignment]
        self._raw.set_write_buffer_limits(high=_AHEAD_BYTES)
        peer = self._raw.get_extra_info("peername")
        self.host = canonical_host(str(peer[0])) if isinstance(peer, tuple) else ""
        self._handshakes.begin(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _RECEIVED if self._protocol is not None else _RECEIVED[:_RECORD_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return
        received = _RECEIVED[:nbytes]
        if self._protocol is not None:
            self._take(received)
        else:
            self._take_for_handshake(received)

    def eof_received(self) -> None:
        """The socket is closed, as it is without TLS."""

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = self._is_ended = True
        self._backlog.clear()
        self._backlog_bytes = 0
        self._unfed = b""
        self._handshakes.ended(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)
            self._protocol = None  # It refers to this.

    def pause_writing(self) -> None:
        self._is_raw_full = True

    def resume_writing(self) -> None:
        self._is_raw_full = False
        if self._is_answer_unread:
            self._is_answer_unread = False
            self._read_socket()
        self._send()

    # The handshake

    def _take_for_handshake(self, received: memoryview) -> None:
        if not self._handshake_bytes and received[0] != _HANDSHAKE_RECORD:
            self.refuse(
                f"the client does not begin with TLS (first bytes {received[:4].hex(' ')})",
                "set the client's security.protocol to SSL or SASL_SSL, or connect to another listener",
            )
            return
        self._handshake_bytes += len(received)
        if self._handshake_bytes > _MOST_HANDSHAKE_BYTES:
            self.refuse(f"the handshake is longer than {_MOST_HANDSHAKE_BYTES} bytes")
            return
        self._incoming.write(received)
        self._raw.pause_reading()
        self._is_in_step = True
        self._handshakes.take_step(self)

    def handshake_step(self) -> bool:
        """Whether the handshake is done. Raises ssl.SSLError. In a thread, while nothing else uses this."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def step_taken(self, is_done: bool, error: BaseException | None) -> None:
        """For Handshakes: the result of `handshake_step`."""
        self._is_in_step = False
        if self._is_closing:
            return
        self._send_records()
        if error is not None:
            self.refuse(reason_of(error))
        elif is_done:
            self._begin()
        else:
            self._raw.resume_reading()

    def _begin(self) -> None:
        try:
            self._user = self._listener.user_of(self._tls)
        except ValueError as error:
            self.refuse(str(error))
            return
        self._handshakes.ended(self)
        self._protocol = self._make_protocol()
        self._protocol.connection_made(self)
        self._continue()

    def refuse(self, reason: str, advice: str = "") -> None:
        """End a connection that uses no TLS, or not as it should, with one event."""
        self._handshakes.ended(self)
        self._handshakes.refused(self._raw, self._listener, reason, advice)
        self._is_closing = self._is_ended = True
        if not self._is_in_step:
            self._send_records()  # The alert that says why.
        self._raw.close()

    # What the client sends

    def _take(self, received: memoryview) -> None:
        position = 0
        while position < len(received) and not self._is_closing:
            if self._is_reading_paused:
                self._unfed += received[position:]
                break
            self._incoming.write(received[position : position + _FED_BYTES])
            position += _FED_BYTES
            self._decrypt()

    def _decrypt(self) -> None:
        protocol, tls = self._protocol, self._tls
        has_more = True
        while protocol is not None and has_more and not (self._is_reading_paused or self._is_closing):
            buffer: Any = protocol.get_buffer(-1)
            size, filled, count = len(buffer), 0, 1
            try:
                while count and filled < size:
                    count = tls.read(size - filled, buffer[filled:])  # type: ignore[assignment]
                    filled += count
            except ssl.SSLWantReadError:
                has_more = False
            except ssl.SSLError as error:
                self.refuse(reason_of(error))
                return
            if self._outgoing.pending:
                self._send_answers()
            if filled and not self._is_closing:
                self._answered_bytes = 0
                protocol.buffer_updated(filled)
            if not count:
                self.close()

    def _send_answers(self) -> None:
        """What TLS itself answers."""
        self._answered_bytes += self._outgoing.pending
        if self._answered_bytes > _MOST_ANSWERED_BYTES:
            self.refuse("the client requests key updates too often")
            return
        self._send_records()
        if self._is_raw_full:
            self._is_answer_unread = True
            self._raw.pause_reading()

    def pause_reading(self) -> None:
        self._is_reading_paused = True
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        if not self._is_continuing:
            self._is_continuing = True
            self._loop.call_soon(self._continue)

    def _continue(self) -> None:
        """Deliver what was received before, then read the socket again."""
        self._is_continuing = False
        if self._is_closing:
            return
        self._decrypt()
        unfed, self._unfed = self._unfed, b""
        self._take(memoryview(unfed))
        self._read_socket()

    def _read_socket(self) -> None:
        if not (self._is_reading_paused or self._is_closing or self._is_answer_unread):
            self._raw.resume_reading()

    def is_reading(self) -> bool:
        return not self._is_reading_paused

    def _received_bytes(self) -> int:
        return len(self._unfed) + self._incoming.pending + self._tls.pending()

    # What the client is sent

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        if self._is_closing:
            return
        for each in buffers:
            if each:
                self._backlog.append(memoryview(each))
                self._backlog_bytes += len(each)
        self._send()

    def _send(self) -> None:
        if self._is_ended:
            return
        records: list[bytes] = []
        ahead = _AHEAD_BYTES
        while self._backlog and ahead > 0 and not self._is_raw_full:
            piece = self._next_piece()
            try:
                self._tls.write(piece)
            except ssl.SSLError as error:
                self.refuse(reason_of(error))
                return
            records.append(self._outgoing.read())
            ahead -= len(piece)
        if records:
            write_all(self._raw, records)
        if self._backlog and not self._is_raw_full and not self._is_sending_later:
            self._is_sending_later = True
            self._loop.call_soon(self._send_later)
        if self._is_closing and not self._backlog:
            self._end()
        else:
            self._control_writing()

    def _send_later(self) -> None:
        self._is_sending_later = False
        self._send()

    def _next_piece(self) -> Buffer:
        """The next plain bytes, at most a record; small buffers are joined."""
        backlog = self._backlog
        head = backlog[0]
        if len(backlog) == 1 or len(head) >= _RECORD_BYTES:
            piece: Buffer = head[:_RECORD_BYTES]
            self._drop(len(piece))
            return piece
        parts: list[memoryview] = []
        size = 0
        while backlog and size < _RECORD_BYTES:
            part = backlog[0][: _RECORD_BYTES - size]
            parts.append(part)
            size += len(part)
            self._drop(len(part))
        return b"".join(parts)

    def _drop(self, count: int) -> None:
        """Remove `count` bytes of the first buffer from the backlog."""
        self._backlog_bytes -= count
        head = self._backlog.popleft()
        if count < len(head):
            self._backlog.appendleft(head[count:])

    def _send_records(self) -> None:
        if records := self._outgoing.read():
            self._raw.write(records)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_water = high or 0
        self._low_water = self._high_water // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._backlog_bytes + self._raw.get_write_buffer_size()

    def _control_writing(self) -> None:
        protocol = self._protocol
        if protocol is None:
            return
        size = self.get_write_buffer_size()
        if size > self._high_water and not self._is_writing_paused:
            self._is_writing_paused = True
            protocol.pause_writing()
        elif size <= self._low_water and self._is_writing_paused:
            self._is_writing_paused = False
            protocol.resume_writing()

    # The end

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Send what was written, then close."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self._backlog:
            self._end()

    def _end(self) -> None:
        self._is_ended = True
        with suppress(ssl.SSLError):  # It wants to wait until the client closes too.
            self._tls.unwrap()
        self._send_records()
        self._raw.close()

    def abort(self) -> None:
        self._is_closing = self._is_ended = True
        self._raw.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == CLIENT_USER:
            return self._user
        return self._received_bytes if name == RECEIVED_BYTES else self._raw.get_extra_info(name, default)


def reason_of(error: BaseException) -> str:
    """The text of OpenSSL, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        # Some have no reason but a text: "[SSL] ASN1 lib (_ssl.c:1006)".
        reason = error.reason or str(error.args[-1]).rpartition(" (")[0].rpartition("] ")[2]
        return reason.replace("_", " ").lower()
    return type(error).__name__
