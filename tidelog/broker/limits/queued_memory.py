"""How much memory all connections hold together, and which are held back or cut off when it is too much.

Owns the account of `queued.max.bytes`: receive buffers of frames that have begun to arrive, requests that
wait, unsent answers, fetch sessions, batches decompressed in a thread. Pure: bytes and times are passed in.

The account is exact when it is measured. Between two measurements it is an upper bound: memory that is taken
is added, memory that is freed is not subtracted. So a request costs one addition.

Invariants:
- above half of the bound memory is short: answers of Fetch, and what one connection may hold, are reduced to
  a fair share; a connection that holds no more than that is served as always;
- a connection above its share is not read until it holds less. One with an unfinished frame is read if the
  rest of the frame fits: first the clients that do not keep the broker waiting, and of these the oldest
  frame. So frames that keep arriving are completed, whatever other connections hold;
- the connection that holds the most is cut off, each byte weighted by how long the broker has waited for that
  client: at once while the bound is passed, and after `PATIENCE_SECONDS` while memory is short. Time in which
  the broker did not read a client does not count against it.

Source: Kafka's queued.max.request.bytes, which counts requests only and stops reading from every client.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

PATIENCE_SECONDS = 10.0
"""How long a client may hold more than its share while memory is short."""
TURN_SECONDS = 0.25
"""How long the broker waits for a client before other clients have priority."""
_LOOK_EVERY = 16
"""Memory is measured again after at most this part of the bound was taken."""
_NEVER = 1 << 62

_Key = TypeVar("_Key")


class QueuedMemory:
    """The account of one broker. Call `passed` once `taken_bytes` is above `look_at_bytes`."""

    __slots__ = (
        "beside_bytes", "bound_bytes", "decompressed_bytes", "is_exhausted", "is_short", "look_at_bytes",
        "share_bytes", "short_bytes", "taken_bytes",
    )  # fmt: skip

    def __init__(self, bound_bytes: int) -> None:
        self.bound_bytes = bound_bytes
        self.short_bytes = bound_bytes // 2
        """Above this value memory is short."""
        self.beside_bytes: Callable[[], int] = int
        """Memory that is kept for clients outside their connections."""
        self.decompressed_bytes: Callable[[], int] = int
        """Memory of a batch that a thread has decompressed to inspect it."""
        self.taken_bytes = 0
        """Upper bound of the memory that is held."""
        self.is_short = False
        self.is_exhausted = False
        """The bound may be passed: nothing is served until memory was measured."""
        self.share_bytes = bound_bytes
        """What each connection may hold, and an answer of Fetch may return, while memory is short."""
        self.look_at_bytes = self.short_bytes
        """At this value of `taken_bytes` memory is measured."""

    @property
    def room_bytes(self) -> int:
        """Memory left for frames that have begun to arrive; the rest of the bound is for everything else."""
        return self.bound_bytes * 3 // 4 - self.taken_bytes

    @property
    def decompressed_most_bytes(self) -> int:
        """What one batch may yield when it is decompressed: what `room_bytes` leaves."""
        return self.bound_bytes // 4

    def passed(self, connections: int) -> None:
        """`look_at_bytes` was passed: apply the limits until `measured`."""
        self.share_bytes = self._share(connections)
        self.is_short = True
        self.is_exhausted = self.taken_bytes > self.bound_bytes
        self.look_at_bytes = _NEVER if self.is_exhausted else self.bound_bytes

    def measured(self, total_bytes: int, connections: int) -> None:
        """All connections hold `total_bytes`."""
        self.taken_bytes = total_bytes
        self.share_bytes = self._share(connections)
        self.is_short = total_bytes > self.short_bytes
        self.is_exhausted = False
        soon = total_bytes + self.bound_bytes // _LOOK_EVERY
        self.look_at_bytes = max(soon, self.bound_bytes if self.is_short else self.short_bytes)

    def _share(self, connections: int) -> int:
        return self.short_bytes // max(1, connections)


@dataclass(slots=True)
class Held:
    """What one connection holds. All are byte counts except `completed` and `is_sending`."""

    receiving: int
    """The buffer of a frame that has begun to arrive, or of frames that wait."""
    missing: int
    """Bytes of that frame that have not arrived; 0 when no frame has begun to arrive."""
    unsent: int
    """Answers that the client has not read."""
    waiting: int
    """Requests that wait for their answers, and the answers after them."""
    handed: int
    """All answers so far."""
    completed: int
    """A number that changes when a large frame is complete."""
    is_sending: bool
    """Whether bytes arrived lately, or have arrived and were not read yet."""
    is_left: bool = False
    """Whether the client has disconnected, so that the frame cannot be completed."""

    @property
    def total(self) -> int:
        return self.receiving + self.unsent + self.waiting


class Patience:
    """How long the broker has waited for one client: for the rest of a frame, or until it reads answers.

    Time does not count while a frame arrives fast enough to be complete within `PATIENCE_SECONDS`.
    """

    __slots__ = (
        "_completed", "_handed", "_looked_at", "_missing", "_unsent_mark", "began", "receiving_seconds",
        "unsent_seconds",
    )  # fmt: skip

    def __init__(self, held: Held, now: float) -> None:
        self.began = now
        """When the frame was first seen."""
        self.receiving_seconds = 0.0
        self.unsent_seconds = 0.0
        self._looked_at = now
        self._missing = held.missing
        self._completed = held.completed
        self._handed = held.handed
        self._unsent_mark = held.handed

    def look(self, held: Held, now: float, *, was_read: bool) -> None:
        """It holds `held` now. `was_read`: since the last call the broker read all that the client sent."""
        seconds, self._looked_at = now - self._looked_at, now
        came, self._missing = self._missing - held.missing, held.missing
        if held.completed != self._completed or held.handed != self._handed or not held.missing:
            self._completed, self._handed = held.completed, held.handed
            self.began = now
            self.receiving_seconds = 0.0
        elif was_read and came * PATIENCE_SECONDS < (held.missing + came) * seconds:
            self.receiving_seconds += seconds
        if held.handed - held.unsent >= self._unsent_mark:
            self._unsent_mark = held.handed
            self.unsent_seconds = 0.0
        else:
            self.unsent_seconds += seconds


class Large(NamedTuple, Generic[_Key]):
    """A connection that holds more memory than its share."""

    key: _Key
    held: Held
    patience: Patience

    @property
    def seconds(self) -> float:
        """How long the broker has waited for the client."""
        return max(self.patience.receiving_seconds, self.patience.unsent_seconds)

    @property
    def turn(self) -> tuple[bool, float, float]:
        """Sort key for reading: clients that send, then those waited for least, then the oldest frame."""
        turns = self.patience.receiving_seconds // TURN_SECONDS
        return not self.held.is_sending, turns, self.patience.began

    @property
    def greed(self) -> float:
        """Bytes times seconds; one second is added for all, so that a new connection counts too."""
        held, patience = self.held, self.patience
        waited = held.receiving * patience.receiving_seconds + held.unsent * patience.unsent_seconds
        return held.total + waited

    @property
    def reason(self) -> str:
        """The kind of memory that it holds most of."""
        held = self.held
        parts = {
            "a frame does not arrive completely": held.receiving,
            "answers are not read": held.unsent,
            "requests wait": held.waiting,
        }
        return max(parts, key=parts.__getitem__)


class Verdict(NamedTuple, Generic[_Key]):
    """The connections that are not read until the next measurement, and those that are cut off."""

    held_back: list[_Key]
    cut: list[Large[_Key]]


def judge(large: Iterable[Large[_Key]], memory: QueuedMemory) -> Verdict[_Key]:
    """What to do while memory is short, just after measuring: `large` are connections above their share."""
    total_bytes = memory.taken_bytes
    cut: list[Large[_Key]] = []
    staying: list[Large[_Key]] = []
    for one in sorted(large, key=lambda each: each.greed, reverse=True):
        is_too_long = one.seconds > PATIENCE_SECONDS and total_bytes > memory.short_bytes
        if is_too_long or total_bytes > memory.bound_bytes:
            total_bytes -= one.held.total
            cut.append(one)
        else:
            staying.append(one)
    room_bytes = memory.room_bytes + sum(one.held.total for one in cut)
    return Verdict(_held_back(staying, room_bytes, memory.share_bytes), cut)


def _held_back(large: Iterable[Large[_Key]], room_bytes: int, share_bytes: int) -> list[_Key]:
    """Connections that hold enough, or whose unfinished frame is not yet to be read."""
    held_back = []
    is_first = True
    for one in sorted(large, key=lambda each: each.turn):
        held = one.held
        if held.unsent + held.waiting > share_bytes:
            held_back.append(one.key)
        elif held.missing:
            if is_first or held.missing <= room_bytes:
                room_bytes -= held.missing
                is_first = False
            else:
                held_back.append(one.key)
    return held_back
