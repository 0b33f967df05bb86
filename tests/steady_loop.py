"""An event loop for tests whose two sides share it: its clock leaves out when the process did not run.

On a busy machine a process may not run for longer than a short timeout. Here both sides of a connection would
have missed that time, so nothing times out because of it.

Owns the clock. Invariants: it never goes back, and never faster than the machine's; a wait counts for no more
than was asked for, and what the loop runs between two waits for `_LONGEST_STEP_S` at most.
"""

import asyncio
import selectors
import time

_LONGEST_STEP_S = 0.001


class _Selector(selectors.DefaultSelector):
    """Stands where the loop waits, so it knows how long the loop wanted to wait."""

    def __init__(self) -> None:
        super().__init__()
        self._moment = self._began = time.monotonic()

    def now(self) -> float:
        return self._moment + min(time.monotonic() - self._began, _LONGEST_STEP_S)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._moment, began = self.now(), time.monotonic()
        ready = super().select(timeout)
        self._began = time.monotonic()
        waited = self._began - began
        self._moment += waited if timeout is None else min(waited, max(timeout, 0))
        return ready


class SteadyLoop(asyncio.SelectorEventLoop):
    """`time()` is the clock; timers follow it."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now()
