"""An event loop for tests whose sides share its process: its clock leaves out when the process did not run.

On a busy machine a process may not run for longer than a short timeout. Here both sides of a connection, and
the threads that they wait for, would have missed that time, so nothing times out because of it. A test that
nothing blocks the loop needs another clock.

Owns the clock. Invariants: it never goes back, and never faster than the machine's; a wait counts for no
more than was asked for, and `_LONGEST_WAIT_S` at most; what the loop runs between two waits for
`_LONGEST_STEP_S` at most.
"""

import asyncio
import selectors
import time

_LONGEST_STEP_S = 0.001
_LONGEST_WAIT_S = 0.005


class _Selector(selectors.DefaultSelector):
    """Stands where the loop waits. It waits in short steps: after a stop, threads run in the next step."""

    def __init__(self) -> None:
        super().__init__()
        self._moment = self._began = time.monotonic()

    def now(self) -> float:
        return self._moment + min(time.monotonic() - self._began, _LONGEST_STEP_S)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        longest = _LONGEST_WAIT_S if timeout is None else min(timeout, _LONGEST_WAIT_S)
        self._moment, began = self.now(), time.monotonic()
        ready = super().select(longest)
        self._began = time.monotonic()
        self._moment += min(self._began - began, longest)
        return ready


class SteadyLoop(asyncio.SelectorEventLoop):
    """`time()` is the clock; timers follow it."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now()
