"""The broker's two clocks: the time of day, and the time that has passed.

Owns the difference. `clock_ms` is the wall clock. It is written into records and compared with their
timestamps, and it jumps when it is set. `SteadyClock` starts at the time of the wall clock and then counts
the time that really passes (CLOCK_MONOTONIC, so a suspended machine does not count). Producers expire by the
steady clock, so a wall clock that is set forward expires no active producer. Retention and the log cleaner
use the earlier of the two clocks, so a clock that is set forward deletes neither records nor tombstones.
"""

import time
from collections.abc import Callable


def clock_ms() -> int:
    """Wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class SteadyClock:
    """Milliseconds: the wall clock when this was made, plus the time that has passed since then."""

    __slots__ = ("_ahead_ms", "_monotonic_ns")

    def __init__(
        self, wall_ms: Callable[[], int] = clock_ms, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`monotonic_ns`: nanoseconds since some time before the start, never set and never going back."""
        self._monotonic_ns = monotonic_ns
        self._ahead_ms = wall_ms() - monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._monotonic_ns() // 1_000_000 + self._ahead_ms
