"""The broker's two clocks: what time it is, and how much time has passed.

Owns the difference. `clock_ms` is the wall clock: it goes into records and is compared with their timestamps,
and whoever sets it makes it jump. `SteadyClock` starts where the wall clock stands and from then on counts
what really passed (CLOCK_MONOTONIC, so a suspended machine does not count). Producers grow old by the steady
clock, so that a clock that is set forward expires nobody who is alive; retention goes by the one of both that
is behind, so that it deletes nothing too early.

Tests give clocks of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def clock_ms() -> int:
    """Wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class SteadyClock:
    """Milliseconds: the wall clock at its making, plus what passed since."""

    __slots__ = ("_ahead_ms", "_monotonic_ns")

    def __init__(
        self,
        wall_ms: Callable[[], int] = clock_ms,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`monotonic_ns`: nanoseconds since some moment before the start; never set, never back."""
        self._monotonic_ns = monotonic_ns
        self._ahead_ms = wall_ms() - monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._monotonic_ns() // 1_000_000 + self._ahead_ms
