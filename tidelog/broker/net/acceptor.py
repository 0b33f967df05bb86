"""Accepts connections from a listening socket: a few per step of the loop, and none beyond the file handles.

Owns the listening socket, and every connection until its protocol takes it over.

Invariants: at most `ACCEPTED_AT_ONCE` connections are accepted per step; a connection that `admits` refuses
is closed at once; when the system has no file handle left, nothing is accepted for `PAUSE_SECONDS`: new
connections wait in the backlog, the loop does not spin, and one event reports it.

asyncio's own server accepts the whole backlog before it serves the first connection.
"""

import asyncio
import errno
import socket
from collections.abc import Callable

import structlog

from tidelog.broker.storage.disk import HANDLES_ADVICE
from tidelog.broker.tasks import Tasks

ACCEPTED_AT_ONCE = 32
PAUSE_SECONDS = 0.1
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
logger = structlog.get_logger(__name__)


class Acceptor:
    """Accepts from one listening socket, which it owns from `start` on."""

    def __init__(
        self,
        listening: socket.socket,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        admits: Callable[[str], bool],
        *,
        accepts_in_seconds: Callable[[], float] = float,
    ) -> None:
        """`admits` is called with the peer's address after each accept; `accepts_in_seconds` before it says
        how long the next connection has to wait.
        """
        self._socket = listening
        self._protocol_factory = protocol_factory
        self._admits = admits
        self._accepts_in_seconds = accepts_in_seconds
        self._loop = asyncio.get_running_loop()
        self._connecting = Tasks()
        self._paused: asyncio.TimerHandle | None = None
        self._is_exhausted = False

    def start(self, backlog: int) -> None:
        """Listen. Raises OSError."""
        self._socket.listen(backlog)
        self._resume()

    def close(self) -> None:
        """Accept no more connections. May be called again."""
        if self._socket.fileno() < 0:
            return
        if self._paused is not None:
            self._paused.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def _resume(self) -> None:
        self._paused = None
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            seconds = self._accepts_in_seconds()
            if seconds > 0:
                self._pause(seconds)
                return
            try:
                connection, address = self._socket.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._exhausted(error)
                # No connection waits, or the peer closed it before it was accepted.
                return
            self._is_exhausted = False
            if not self._admits(_peer(address)):
                connection.close()
                continue
            connection.setblocking(False)
            self._connecting.begin(self._connect(connection))

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol_factory, connection)
        except OSError:
            connection.close()  # The peer has closed it.

    def _exhausted(self, error: OSError) -> None:
        if not self._is_exhausted:
            self._is_exhausted = True
            logger.error("connections_not_accepted", error=str(error), advice=HANDLES_ADVICE)
        self._pause(PAUSE_SECONDS)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._paused = self._loop.call_later(seconds, self._resume)


def _peer(address: object) -> str:
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else ""
