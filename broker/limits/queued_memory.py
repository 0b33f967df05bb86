"""How much memory all connections hold together, and who gives way when it is too much.

Owns the account of `queued.max.bytes`: receive buffers of frames that have begun to arrive, requests that
wait, answers that have not left, fetch sessions. Pure: bytes and moments are passed in.

The account is exact when it is measured, and between two measurements an upper bound: what is taken is added,
what is given back is not. So a request costs it one addition.

Invariants:
- above half of the bound memory is short: answers of Fetch and what one connection may hold go down to a fair
  share, so that whoever holds no more than that is served as always;
- a connection above its share is not read until it holds less. One that is in the midst of a frame is read
  where the rest of the frame has room, the oldest first, and before them all who are not waited for, so
  that frames that arrive get through, whatever others hold back;
- cut off is who holds the most, each byte weighted by how long the broker has waited for that client: at once
  while the bound is passed, and while memory is short after `PATIENCE_SECONDS`. Time in which the broker did
  not read a client does not count against it.

Source: Kafka's queued.max.request.bytes, which counts requests only and stops to read everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

PATIENCE_SECONDS = 10.0
"""How long a client may hold more than its share while memory is short."""
TURN_SECONDS = 0.25
"""How long a client is waited for until others come first."""
_LOOK_EVERY = 16
"""Memory is measured again after so small a part of the bound was taken, or less often."""
_NEVER = 1 << 62

_Key = TypeVar("_Key")


class QueuedMemory:
    """The account of one broker. `passed` is to be called once `taken_bytes` is above `look_at_bytes`."""

    __slots__ = (
        "beside_bytes", "bound_bytes", "is_exhausted", "is_short", "look_at_bytes", "share_bytes",
        "taken_bytes",
    )  # fmt: skip

    def __init__(self, bound_bytes: int) -> None:
        self.bound_bytes = bound_bytes
        self.beside_bytes: Callable[[], int] = int
        """What is kept for clients beside their connections."""
        self.taken_bytes = 0
        """What is held at most."""
        self.is_short = False
        self.is_exhausted = False
        """The bound may be passed: nothing is served until that was measured."""
        self.share_bytes = bound_bytes
        """What each connection may hold, and what an answer of Fetch may bring, while memory is short."""
        self.look_at_bytes = self.short_bytes
        """`taken_bytes` at which it is to be measured what is really held."""

    @property
    def short_bytes(self) -> int:
        """Memory is short above it."""
        return self.bound_bytes // 2

    @property
    def room_bytes(self) -> int:
        """What frames may still take that have begun to arrive; the rest of the bound is for all others."""
        return self.bound_bytes * 3 // 4 - self.taken_bytes

    def passed(self, connections: int) -> None:
        """`look_at_bytes` was passed: be careful until `measured`."""
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
    """What one connection holds. Byte counts, but for `completed`."""

    receiving: int
    """Of the buffer of a frame that has begun to arrive, or of frames that wait."""
    missing: int
    """Of that frame, still to come; 0 when none has begun to arrive."""
    unsent: int
    """Of answers that wait for the client to read."""
    waiting: int
    """Of requests that wait for their answers, and answers behind them."""
    handed: int
    """Of all answers so far."""
    completed: int
    """A number that changes when a large frame is complete."""
    is_sending: bool
    """Something came lately, or has come and was not read yet."""

    @property
    def total(self) -> int:
        return self.receiving + self.unsent + self.waiting


class Patience:
    """How long the broker has waited for one client: for the rest of a frame, for answers to be read.

    A frame that is on the way to its end within `PATIENCE_SECONDS` is not waited for.
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
        """It holds this now. `was_read`: the broker read since the last look whatever the client sent."""
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
    """A connection above its share."""

    key: _Key
    held: Held
    patience: Patience

    @property
    def seconds(self) -> float:
        """How long the broker has waited for the client."""
        return max(self.patience.receiving_seconds, self.patience.unsent_seconds)

    @property
    def turn(self) -> tuple[bool, float, float]:
        """Whose frame is read first: of those who send, and were waited for the least, the oldest."""
        turns = self.patience.receiving_seconds // TURN_SECONDS
        return not self.held.is_sending, turns, self.patience.began

    @property
    def greed(self) -> float:
        """Bytes times seconds; one second more for all, so that what is new counts too."""
        held, patience = self.held, self.patience
        waited = held.receiving * patience.receiving_seconds + held.unsent * patience.unsent_seconds
        return held.total + waited

    @property
    def reason(self) -> str:
        """What the most of it is."""
        held = self.held
        parts = {
            "a frame does not come to its end": held.receiving,
            "answers are not read": held.unsent,
            "requests wait": held.waiting,
        }
        return max(parts, key=parts.__getitem__)


class Verdict(NamedTuple, Generic[_Key]):
    """Which connections are not read until the next look, and which are cut off."""

    held_back: list[_Key]
    cut: list[Large[_Key]]


def judge(large: Iterable[Large[_Key]], memory: QueuedMemory) -> Verdict[_Key]:
    """What to do while memory is short, just after it was measured: `large` are all above their share."""
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
    """Who has enough to wait for, or is in the midst of a frame whose turn has not come.

    The first turn is given in any case, so that something moves.
    """
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
