"""What one connection has taken and not sent yet: the order of its answers, and when it takes no more.

Owns the rules of a connection without its socket. Invariants:
- answers are sent in the order of their requests, in whatever order the handlers finish; an empty answer ends
  the connection at its place in that order;
- nothing is dispatched while an earlier request holds it back (`Waiting.holds_back`), while as many requests
  wait as may, while the answers that wait for earlier ones, and what waiting Fetches may return, are too
  large, or while something outside says so: a full transport, a quota, the turns of others, scarce memory;
- what a request holds is counted from its dispatch to its answer, and nothing is left when all are answered.

Pure.
"""

from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from tidelog.broker.limits.queued_memory import QueuedMemory
from tidelog.protocol.types import Buffer

_REQUEST_BYTES: Final = 1024
"""Memory of a request that waits for its answer, without its frame and `Waiting.held_bytes`."""


class Waiting(ABC):
    """A request that is not answered yet, or some that arrived together: its place in the connection's queue.

    `answer` is None until it is final, then the frame's buffers; an empty list ends the connection.
    """

    answer: list[Buffer] | None
    requests: int = 1
    holds_back: bool = False
    """No later request may be dispatched."""
    keeps_frame: bool = False
    """Nothing may be received, because the request is still read from the receive buffer."""
    held_bytes: int = 0
    """Memory that it holds while it waits, where that may be much."""
    reserved_bytes: int = 0
    """The most that a Fetch may return."""

    @abstractmethod
    def abandon(self) -> None:
        """The client has disconnected: the answer is dropped."""

    @abstractmethod
    def interrupt(self) -> None:
        """The broker stops: a request that waits for other clients is answered now."""


class RequestQueue:
    """The requests of one connection from their dispatch until their answers are sent."""

    __slots__ = (
        "_held_bytes", "_joined_requests", "_max_bytes", "_max_requests", "_memory", "_most_reserved_bytes",
        "_parked_bytes", "_reserved_bytes", "holder", "is_ended", "is_held_back", "is_muted",
        "is_writing_paused", "waiting", "waits_for_turn",
    )  # fmt: skip

    def __init__(
        self, max_requests: int, max_bytes: int, most_reserved_bytes: int, memory: QueuedMemory
    ) -> None:
        """`most_reserved_bytes` is the most that one Fetch may return."""
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._most_reserved_bytes = most_reserved_bytes
        self._memory = memory
        self.waiting: deque[Waiting | list[Buffer]] = deque()
        """Requests that are not answered yet, and answers that wait for earlier ones."""
        self._joined_requests = 0  # How many more wait than `waiting` has elements.
        self._held_bytes = 0  # Of answers that wait for an earlier one.
        self._reserved_bytes = 0  # What waiting Fetches may return.
        self._parked_bytes = 0  # What requests hold while they wait.
        self.holder: Waiting | None = None
        """The request that holds back later ones."""
        self.is_ended = False
        """The turn of an empty answer has come: nothing after it is answered."""
        self.is_muted = False
        """The client is above a quota."""
        self.is_writing_paused = False
        """The transport's buffer is full."""
        self.is_held_back = False
        """All connections together hold too much memory."""
        self.waits_for_turn = False
        """Other clients are served first."""

    def room(self) -> int:
        """How many more requests may wait for their answers."""
        return self._max_requests - len(self.waiting) - self._joined_requests

    def is_full(self) -> bool:
        """Whether nothing may be dispatched, for another reason than `holder`."""
        memory = self._memory
        return (
            self.is_writing_paused
            or self.waits_for_turn
            or self.is_held_back
            or self.is_muted
            or self._max_requests - len(self.waiting) - self._joined_requests <= 0
            or self._held_bytes + self._reserved_bytes > self._max_bytes
            or (
                memory.is_short
                and (memory.is_exhausted or self._held_bytes + self._parked_bytes > memory.share_bytes)
            )
        )

    def stops_reading(self, backlog: object | None) -> bool:
        """Whether the socket is not read: a frame of the `backlog` waits, or is still read from the receive
        buffer, or nothing may be dispatched."""
        holder = self.holder
        return backlog is not None or (holder is not None and holder.keeps_frame) or self.is_full()

    @property
    def held_bytes(self) -> int:
        """Memory of what waits here."""
        return self._held_bytes + self._parked_bytes + _REQUEST_BYTES * len(self.waiting)

    def add(self, waiting: Waiting) -> int:
        """A request is answered later; how much memory it holds meanwhile."""
        self.waiting.append(waiting)
        self._joined_requests += waiting.requests - 1
        if waiting.holds_back:
            self.holder = waiting
        if waiting.reserved_bytes or waiting.held_bytes:
            waiting.reserved_bytes = min(waiting.reserved_bytes, self._most_reserved_bytes)
            self._reserved_bytes += waiting.reserved_bytes
            self._parked_bytes += waiting.held_bytes
        return waiting.held_bytes

    def add_answer(self, answer: list[Buffer]) -> int:
        """A request was answered at once, and waits for those before it; the size of its answer."""
        self.waiting.append(answer)
        size = sum(map(len, answer))
        self._held_bytes += size
        return size

    def hold(self, more_held_bytes: int, more_reserved_bytes: int) -> None:
        """A request in the queue holds and reserves so much more memory, or less."""
        self._parked_bytes += more_held_bytes
        self._reserved_bytes += more_reserved_bytes

    def effect_taken(self, waiting: Waiting, freed_bytes: int) -> bool:
        """A request holds so much less memory; whether it held back later ones until now."""
        self._parked_bytes -= freed_bytes
        if waiting is not self.holder:
            return False
        self.holder = None
        return True

    def answered(self, waiting: Waiting, out: list[Buffer]) -> int:
        """A request has its answer: add to `out` what may be sent now. The size of what waits for others."""
        requests, answer = self.waiting, waiting.answer
        self._reserved_bytes -= waiting.reserved_bytes
        self._parked_bytes -= waiting.held_bytes
        self._joined_requests -= waiting.requests - 1
        if waiting is self.holder:
            self.holder = None
        if answer is None or requests[0] is not waiting:
            size = sum(map(len, answer or ()))
            self._held_bytes += size
            return size
        requests.popleft()
        while answer:
            out += answer
            if not requests:
                return 0
            head = requests[0]
            answer = head if isinstance(head, list) else head.answer
            if answer is None:
                return 0
            requests.popleft()
            self._held_bytes -= sum(map(len, answer))
        self.is_ended = True
        return 0

    def interrupt(self) -> None:
        """The broker stops: those that wait for other clients are answered now."""
        for waiting in self.waiting:
            if isinstance(waiting, Waiting):
                waiting.interrupt()

    def abandon(self) -> None:
        """No more answers are sent."""
        for waiting in self.waiting:
            if isinstance(waiting, Waiting):
                waiting.abandon()
        self.waiting.clear()
        self._held_bytes = self._reserved_bytes = self._parked_bytes = self._joined_requests = 0
