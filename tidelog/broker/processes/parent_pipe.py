"""Messages between the parent process and another one, and how each notices the other's end.

Owns a pair of sockets. The other process sends one line of JSON once it serves; the parent sends a byte once
all do, and events go to standard output from then on. The kernel closes a process's end when the process
ends, however it ends.

Invariant: neither end is trusted with more than `_MOST_BYTES`.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

_MOST_BYTES: Final = 1 << 20
_GO: Final = b"g"


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
        self._received += data
        line, end, _ = self._received.partition(b"\n")
        if end and self.facts is None:
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

    def serves(self, facts: Mapping[str, object]) -> None:
        """Tell the first process that this one serves."""
        try:
            self._socket.sendall(json.dumps(facts).encode() + b"\n")
        except OSError:
            return  # The first process is gone, which `follow` reports.


def parent_pipe() -> tuple[socket.socket, socket.socket]:
    """The end of the first process, and that of the other one."""
    return socket.socketpair()
