"""Answers with stored records that the kernel sends from its page cache, in order with all others.

Owns what a connection wrote and the socket has not taken, once one of its answers held a `FileRange`.

Invariants:
- bytes leave in the order in which they were written: a range is sent only while the socket's transport has
  nothing left to send, and everything behind a range waits here;
- when the socket is full, a small part of the range is copied and written to the socket's transport, which
  says when that is sent. So nothing else has to watch the socket;
- a range that is no longer in the page cache is read in a thread; the loop never waits for the disk;
- bytes of files count as unsent like all others, so that every limit of unsent answers holds;
- a file that cannot be read ends the connection: the beginning of its answer has been sent.

Not for TLS, which has to encrypt. For the event loop only. Source: sendfile(2).
"""

import asyncio
import ctypes
import socket
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, Protocol

from tidelog.broker.handlers.connection_state import ConnectionState
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.net.writing import WRITE_HIGH_WATER_BYTES, write_all
from tidelog.broker.storage.disk import ColdRead
from tidelog.broker.storage.file_range import FileRange
from tidelog.protocol.types import Buffer

_CORKED, _UNCORKED = ctypes.byref(ctypes.c_int(1)), ctypes.byref(ctypes.c_int(0))
_VALUE_BYTES: Final = ctypes.sizeof(ctypes.c_int)
# PyDLL keeps the interpreter: the call never waits.
_setsockopt = ctypes.PyDLL(None).setsockopt
_COPIED_BYTES: Final = 16 * 1024
"""What is copied of a range when the socket is full."""
_READ_BYTES: Final = 256 * 1024
"""What a thread reads of a range at a time."""
_ADVICE: Final = "check the disk that holds the data folder; the client connects again and asks again"


class Connection(Protocol):
    """What the transport needs of the connection whose socket it takes over."""

    peer: str
    state: ConnectionState

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...


class FileTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """Takes over the socket of `connection`, which does not call `raw` itself any more."""

    def __init__(
        self, raw: asyncio.Transport, connection: Connection, events: PeerEvents, *, is_paused: bool
    ) -> None:
        super().__init__()
        self._raw = raw
        self._connection = connection
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._socket = raw.get_extra_info("socket")
        self._backlog: deque[Buffer | FileRange] = deque()
        self._backlog_bytes = 0
        self._is_read: FileRange | None = None  # By a thread: the range at the head.
        self._is_writing_paused = is_paused
        self._is_closing = False
        # The socket's transport calls these without a step between.
        self.get_buffer = connection.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = connection.buffer_updated  # type: ignore[method-assign]
        raw.set_protocol(self)
        raw.set_write_buffer_limits(high=0)

    # From the socket

    def eof_received(self) -> bool:
        """The client sends no more; it is still sent what was written before."""
        self.close()
        return bool(self._backlog)

    def connection_lost(self, error: Exception | None) -> None:
        self._end()
        self._connection.connection_lost(error)
        del self._connection, self.get_buffer, self.buffer_updated  # The connection refers to this.

    def pause_writing(self) -> None:
        """The socket is full: `resume_writing` follows when it has taken all."""

    def resume_writing(self) -> None:
        self._send()

    # From the connection

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        if self._is_closing:
            return
        for each in buffers:
            if each:
                self._backlog.append(each)
                self._backlog_bytes += len(each)
        self._send()

    def get_write_buffer_size(self) -> int:
        return self._backlog_bytes + self._raw.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Send what was written, then close."""
        self._is_closing = True
        if not self._backlog:
            self._raw.close()

    def abort(self) -> None:
        self._end()
        self._raw.abort()

    def _end(self) -> None:
        self._is_closing = True
        self._backlog.clear()
        self._backlog_bytes = 0

    # Sending

    def _send(self) -> None:
        """Send until the socket is full, a thread has to read, or nothing is left."""
        backlog, raw = self._backlog, self._raw
        try:
            if backlog:
                # Corked, so that the few bytes before and behind a range are no packets of their own.
                self._cork(True)
                while backlog and self._is_read is None and not raw.get_write_buffer_size():
                    head = backlog[0]
                    if isinstance(head, FileRange):
                        self._send_range(head)
                    else:
                        self._write(backlog)
                self._cork(False)
        except (ConnectionError, TimeoutError):
            self.abort()
        except OSError as error:
            self._file_failed(error)
        if not self._is_closing:
            self._control_writing()
        elif not backlog:
            raw.close()

    def _cork(self, is_corked: bool) -> None:
        # The socket that uvloop shows makes another one for each call, which takes longer than all the rest.
        value = _CORKED if is_corked else _UNCORKED
        _setsockopt(self._socket.fileno(), socket.IPPROTO_TCP, socket.TCP_CORK, value, _VALUE_BYTES)

    def _write(self, backlog: deque[Buffer | FileRange]) -> None:
        """Write what lies before the next range."""
        buffers: list[Buffer] = []
        while backlog and not isinstance(head := backlog[0], FileRange):
            buffers.append(head)
            self._backlog_bytes -= len(head)
            backlog.popleft()
        write_all(self._raw, buffers)

    def _send_range(self, stored: FileRange) -> None:
        before = len(stored)
        copied: Buffer = b""
        try:
            if not stored.send(self._socket.fileno()):
                copied = stored.take(_COPIED_BYTES)
        except ColdRead:
            self._is_read = stored
            read = partial(stored.read, _READ_BYTES)
            self._loop.run_in_executor(None, read).add_done_callback(self._was_read)
        self._left(stored, before)
        if copied:
            # The socket is full: its transport waits until it is not, and calls `resume_writing`.
            self._raw.write(copied)

    def _left(self, stored: FileRange, before: int) -> None:
        """The range at the head is shorter than before."""
        self._backlog_bytes -= before - len(stored)
        if not stored:
            self._backlog.popleft()

    def _was_read(self, future: asyncio.Future[memoryview]) -> None:
        """The thread has read the next part of the range at the head."""
        stored, self._is_read = self._is_read, None
        error = future.exception()
        if stored is None or not self._backlog:
            return  # The connection is lost.
        if error is not None:
            self._file_failed(error)
            return
        data = future.result()
        before = len(stored)
        stored.skip(len(data))
        self._left(stored, before)
        self._raw.write(data)
        self._send()

    def _file_failed(self, error: BaseException) -> None:
        """Part of an answer is sent and the rest cannot be read."""
        connection = self._connection
        host = connection.state.client_host
        self._events.error(
            "connection_closed_unreadable_file", host, peer=connection.peer, error=str(error), advice=_ADVICE
        )
        self.abort()

    def _control_writing(self) -> None:
        size = self.get_write_buffer_size()
        if size > WRITE_HIGH_WATER_BYTES and not self._is_writing_paused:
            self._is_writing_paused = True
            self._connection.pause_writing()
        elif size <= WRITE_HIGH_WATER_BYTES // 4 and self._is_writing_paused:
            self._is_writing_paused = False
            self._connection.resume_writing()
