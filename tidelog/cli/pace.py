"""A limit on records per second, and a line on a terminal that shows the progress.

Owns `Pace`, pure except for its caller's clock, and `Progress`, which writes to standard error, and only if
that is a terminal.
"""

import sys
import time

_SHOWN_EVERY_S = 0.25
_CLEAR_LINE = "\r\x1b[K"


class Pace:
    """At most `rate` records per second from the first call on; None for no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began: float | None = None

    @property
    def is_unlimited(self) -> bool:
        return self._rate is None

    def delay(self, done: int, now: float) -> float:
        """Seconds to wait before the record after `done` others."""
        if self._rate is None:
            return 0.0
        if self._began is None:
            self._began = now
        return max(0.0, self._began + done / self._rate - now)


class Progress:
    """How many records of `total` (None: not known) are done, on one line that is replaced."""

    def __init__(self, verb: str, total: int | None = None, *, wanted: bool = True) -> None:
        self.is_shown = wanted and sys.stderr.isatty()
        self._verb = verb
        self._total = total
        self._began = self._shown_at = time.monotonic()

    def show(self, done: int) -> None:
        """Show it, a few times per second at most."""
        if not self.is_shown:
            return
        now = time.monotonic()
        if now - self._shown_at < _SHOWN_EVERY_S:
            return
        self._shown_at = now
        share = f" of {self._total:,} ({100 * done // self._total} %)" if self._total else ""
        rate = done / (now - self._began)
        sys.stderr.write(f"{_CLEAR_LINE}{self._verb} {done:,}{share}, {rate:,.0f}/s")
        sys.stderr.flush()

    def end(self) -> None:
        if self.is_shown:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
