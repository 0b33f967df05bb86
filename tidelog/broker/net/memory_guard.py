"""Measures the memory of all connections when `queued_memory` asks for it, and carries out its decision.

Owns the times of measuring: within one or two steps of the loop when the bound may be passed, then repeatedly
while memory is short. Invariant: while memory is short, measuring takes at most one part in `_LEAST_PAUSE` of
the loop's time, however many connections there are.
"""

import asyncio
import fcntl
import select
import sys
import termios
import time
from collections.abc import Collection
from typing import Protocol

from tidelog.broker.handlers.connection_state import ConnectionState
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.queued_memory import Held, Large, Patience, QueuedMemory, judge
from tidelog.broker.observability.metrics import Metrics

_AT_ONCE_SECONDS = 0.001
_AGAIN_SECONDS = 0.02
_LEAST_PAUSE = 20
_ENDED = select.POLLRDHUP if sys.platform == "linux" else select.POLLHUP
_ADVICE = "raise queued.max.bytes if so many clients are intended, or find out why this one makes no progress"


class Connection(Protocol):
    """What the guard needs of a connection."""

    peer: str
    state: ConnectionState

    def held_bytes(self) -> int: ...

    def held(self) -> Held: ...

    def release_unused(self) -> None: ...

    def hold_back(self, is_held_back: bool) -> None: ...

    def go_on(self) -> None: ...

    def cut(self) -> None: ...


class MemoryGuard:
    """Keeps `connections` within the bound of `memory`. Event loop only."""

    def __init__(
        self,
        connections: Collection[Connection],
        memory: QueuedMemory,
        events: PeerEvents,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.memory = memory
        self._connections = connections
        self._events = events
        self._metrics = metrics
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._patience: dict[Connection, Patience] = {}
        self._held_back: set[Connection] = set()
        metrics.queued_bytes = self._total_bytes

    def took(self, count: int) -> None:
        """A connection holds `count` bytes more."""
        memory = self.memory
        memory.taken_bytes += count
        if memory.taken_bytes > memory.look_at_bytes:
            self.passed()

    def passed(self) -> None:
        """More memory was taken than is allowed without measuring."""
        self.memory.passed(len(self._connections))
        self._look_in(_AT_ONCE_SECONDS)

    def hold_back_until_looked_at(self, connection: Connection) -> None:
        """A frame that is larger than a share has begun to arrive: the next measurement decides its turn."""
        self._held_back.add(connection)
        connection.hold_back(True)

    def has_turn(self, connection: Connection) -> bool:
        """Whether the last measurement lets the unfinished frame of this connection arrive."""
        return connection in self._patience and connection not in self._held_back

    def close(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_in(self, seconds: float) -> None:
        self.close()
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        began = time.perf_counter()
        memory = self.memory
        was_short = memory.is_short
        for connection in self._connections:
            connection.release_unused()
        memory.measured(self._total_bytes(), len(self._connections))
        if memory.is_short:
            self._relieve(began)
            self._look_in(max(_AGAIN_SECONDS, _LEAST_PAUSE * (time.perf_counter() - began)))
        else:
            self._patience.clear()
            self._hold_back(set())
        if was_short:  # A share may have grown.
            for connection in list(self._connections):
                connection.go_on()

    def _total_bytes(self) -> int:
        held_bytes = sum(connection.held_bytes() for connection in self._connections)
        return held_bytes + self.memory.beside_bytes() + self.memory.decompressed_bytes()

    def _relieve(self, now: float) -> None:
        """Hold back and disconnect connections."""
        memory = self.memory
        known, self._patience = self._patience, {}
        large = []
        for connection in self._connections:
            if connection.held_bytes() <= memory.share_bytes:
                continue
            held = connection.held()
            if held.is_left:
                connection.cut()
                continue
            patience = known.get(connection)
            if patience is None:
                patience = Patience(held, now)
            else:
                patience.look(held, now, was_read=connection not in self._held_back)
            self._patience[connection] = patience
            large.append(Large(connection, held, patience))
        verdict = judge(large, memory)
        for one in verdict.cut:
            self._cut(one)
        self._hold_back(set(verdict.held_back))

    def _hold_back(self, wanted: set[Connection]) -> None:
        before, self._held_back = self._held_back, wanted
        for connection in wanted - before:
            connection.hold_back(True)
        for connection in before - wanted:
            connection.hold_back(False)

    def _cut(self, one: Large[Connection]) -> None:
        memory, connection, held = self.memory, one.key, one.held
        self._metrics.connection_cut()
        self._events.warning(
            "connection_cut_for_memory",
            connection.state.client_host,
            peer=connection.peer,
            reason=one.reason,
            held_bytes=held.total,
            receiving_bytes=held.receiving,
            unsent_bytes=held.unsent,
            waiting_bytes=held.waiting,
            waited_seconds=round(one.seconds, 1),
            connections=len(self._connections),
            connections_bytes=memory.taken_bytes,
            queued_max_bytes=memory.bound_bytes,
            advice=_ADVICE,
        )
        del self._patience[connection]
        connection.cut()


def unread_bytes(transport: asyncio.BaseTransport) -> int:
    """How many bytes of the client wait in its socket."""
    try:
        handle = transport.get_extra_info("socket").fileno()
        return int.from_bytes(fcntl.ioctl(handle, termios.FIONREAD, bytes(4)), sys.byteorder)
    except (OSError, ValueError):
        return 0  # The socket is being closed.


def has_ended(transport: asyncio.BaseTransport) -> bool:
    """Whether the client has closed its side, which a connection that is not read does not notice."""
    try:
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), _ENDED)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True  # The socket is being closed.
