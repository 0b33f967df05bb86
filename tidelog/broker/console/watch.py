"""What the console measures of a broker while a page is open: the points of its charts.

Owns the points, and the counts of some minutes ago by which something has happened lately. Invariants:
nothing is measured before the first visitor, nor later than `IDLE_SECONDS` after the last one looked; all
pages that are open share one measurement; at most `MOST_POINTS` points are kept.

Event loop only.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.console.rates import Point, growth, point
from tidelog.broker.observability.metrics import Reading

if TYPE_CHECKING:
    from tidelog.broker.services import Services

PERIOD_SECONDS: Final = 2.0
MOST_POINTS: Final = 450
"""Those of a quarter of an hour."""
IDLE_SECONDS: Final = 15.0
LATELY_SECONDS: Final = 300.0
_READINGS: Final = 10
"""How many of the last minutes are kept, at even distances."""
_STATM: Final = Path("/proc/self/statm")
_NOTHING: Final = Reading(0, 0, 0, {}, {}, {}, 0, 0, {})
"""What a broker has counted at its start."""


class Lately(NamedTuple):
    """What happened in the last `seconds`, at most LATELY_SECONDS: less if no page was open that long."""

    seconds: float
    events: dict[str, int]
    """As in `Reading`, without those that did not happen."""
    errors: dict[str, int]


class _Moment(NamedTuple):
    seconds: float
    cpu_seconds: float
    reading: Reading


class Watch:
    """Measures one broker while a page is open, and keeps the points of its charts."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._points: deque[Point] = deque(maxlen=MOST_POINTS)
        self._earlier: deque[_Moment] = deque(maxlen=_READINGS)
        uptime_seconds = max(0, services.clock_ms() - services.start_ms) / 1000
        if uptime_seconds < LATELY_SECONDS:
            self._earlier.append(_Moment(self._loop.time() - uptime_seconds, 0.0, _NOTHING))
        self._last = self._now()
        self._looked = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._next: asyncio.Future[Point] | None = None

    def look(self) -> None:
        """A page is open: measure for a while from now on."""
        self._looked = self._loop.time()
        if self._timer is None:
            # A gap: what happened while no page was open is not spread over it.
            self._last = self._now()
            self._remember(self._last)
            self._timer = self._loop.call_later(PERIOD_SECONDS, self._measure)

    @property
    def points(self) -> Sequence[Point]:
        """Those of the last quarter of an hour, oldest first."""
        earliest_ms = self._services.clock_ms() - MOST_POINTS * PERIOD_SECONDS * 1000
        return [each for each in self._points if each["at_ms"] > earliest_ms]

    async def next_point(self) -> Point:
        """The next one that is measured."""
        self.look()
        if self._next is None:
            self._next = self._loop.create_future()
        return await asyncio.shield(self._next)

    def lately(self) -> Lately:
        """Up to this moment."""
        self.look()
        now = self._now()
        known = [each for each in self._earlier if now.seconds - each.seconds <= LATELY_SECONDS] or [now]
        before = known[0]
        return Lately(
            now.seconds - before.seconds,
            growth(before.reading.events, now.reading.events),
            growth(before.reading.errors, now.reading.errors),
        )

    def _now(self) -> _Moment:
        return _Moment(self._loop.time(), time.process_time(), self._services.metrics.reading())

    def _remember(self, moment: _Moment) -> None:
        if not self._earlier or moment.seconds - self._earlier[-1].seconds >= LATELY_SECONDS / _READINGS:
            self._earlier.append(moment)

    def _measure(self) -> None:
        before, now = self._last, self._now()
        self._last = now
        self._remember(now)
        metrics = self._services.metrics
        measured = point(
            before.reading,
            now.reading,
            now.seconds - before.seconds,
            at_ms=self._services.clock_ms(),
            connections=metrics.connections,
            resident_bytes=resident_bytes(),
            cpu_seconds=now.cpu_seconds - before.cpu_seconds,
        )
        self._points.append(measured)
        waiting, self._next = self._next, None
        if waiting is not None and not waiting.done():
            waiting.set_result(measured)
        self._timer = None
        if now.seconds - self._looked < IDLE_SECONDS:
            self._timer = self._loop.call_later(PERIOD_SECONDS, self._measure)


def resident_bytes() -> int | None:
    """Memory of this process; None if the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return None
