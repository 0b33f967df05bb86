"""Messages between the parent process and another one, and how each notices the other's end.

Owns a pair of sockets. The other process sends one line of JSON once it serves, and then a byte at intervals
from its event loop: a process whose loop hangs is silent. The parent sends a byte once all serve, and events
go to standard output from then on. The kernel closes a process's end when the process ends, however it ends.

Invariant: neither end is trusted with more than `_MOST_BYTES`.
"""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog.broker.configuration.broker_config import BrokerConfig

_MOST_BYTES: Final = 1 << 20
_GO: Final = b"g"
_ALIVE: Final = b"a"
_LEAST_SILENCE_SECONDS: Final = 5.0
"""A machine may be busy for so long."""


def longest_silence_seconds(config: BrokerConfig) -> float:
    """After which a process hangs: its session has ended by then."""
    return max(config.broker_session_timeout_ms / 1000, _LEAST_SILENCE_SECONDS)


class FirstEnd:
    """That of the first process. Without a loop."""

    def __init__(self, own: socket.socket) -> None:
        own.setblocking(False)
        self._socket = own
        self._received = b""
        self.facts: Mapping[str, Any] | None = None
        """What the process said when it began to serve."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> bool:
        """Take what has arrived; False once the other end is closed."""
        try:
            data = self._socket.recv(_MOST_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if self.facts is None:
            self._received += data
            line, end, _ = self._received.partition(b"\n")
            if end:
                self.facts = json.loads(line)
        return bool(data) and len(self._received) <= _MOST_BYTES

    def let_go(self) -> None:
        """All processes serve."""
        try:
            self._socket.send(_GO)
        except OSError:
            return  # It has ended, which the first process will see.

    def close(self) -> None:
        self._socket.close()


class OtherEnd:
    """That of a process which the first one has started. In its event loop."""

    def __init__(self, own: socket.socket) -> None:
        own.setblocking(False)
        self._socket = own

    def follow(self, go: Callable[[], None], ended: Callable[[], None]) -> None:
        """Call `go` when all processes serve, and `ended` when the first process is gone."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            try:
                data = self._socket.recv(_MOST_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                go()
            else:
                loop.remove_reader(self._socket)
                ended()

        loop.add_reader(self._socket, read)

    def serves(self, facts: Mapping[str, object], every_seconds: float) -> None:
        """Tell the first process that this one serves, and at this interval that its loop turns."""
        loop = asyncio.get_running_loop()

        def send(data: bytes) -> None:
            try:
                self._socket.send(data)
            except BlockingIOError:
                pass  # The first process does not read: it has been stopped.
            except OSError:
                return  # It is gone, which `follow` reports.
            loop.call_later(every_seconds, send, _ALIVE)

        send(json.dumps(facts).encode() + b"\n")


def parent_pipe() -> tuple[socket.socket, socket.socket]:
    """The end of the first process, and that of the other one."""
    return socket.socketpair()
