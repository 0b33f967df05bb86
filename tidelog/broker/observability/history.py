"""What a broker measured in the last 24 hours: the points of the console's charts.

Owns the rings: a point per second for ten minutes, per ten seconds for two hours, per minute for a day, of
the broker; and the two longer ones of the topics with traffic. Also what has happened lately. Invariants:
memory is bounded (numbers of four bytes, `MOST_COLUMNS` of the broker, `MOST_TOPICS` topics); a moment
without a measurement is a gap, not a number; nobody has to look.

Event loop only.
"""

import asyncio
import resource
import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from math import isnan, nan
from pathlib import Path
from typing import Final, NamedTuple, TypedDict

from tidelog.broker.observability.metrics import Metrics, Reading
from tidelog.broker.observability.rates import Point, growth, point

SPANS: Final[Mapping[str, tuple[int, int]]] = {"10min": (1, 600), "2h": (10, 720), "24h": (60, 1440)}
"""Name -> seconds between two points, number of points."""
MOST_COLUMNS: Final = 32
"""Of the broker: its numbers, and one for each error code that occurs, as long as there is room."""
MOST_TOPICS: Final = 24
LATELY_SECONDS: Final = 300.0
_READINGS: Final = 10
"""How many of the last minutes are kept, at even distances."""
_TREND_POINTS: Final = 60
_STATM: Final = Path("/proc/self/statm")
_NOTHING: Final = Reading(0, 0, 0, {}, {}, {}, 0, 0, {})
"""What a broker has counted at its start."""


class Series(TypedDict):
    """Points of charts, oldest first."""

    period_ms: int
    """How far apart two points are; further apart where nothing was measured."""
    times: list[int]
    """Milliseconds since the epoch."""
    columns: dict[str, list[float | None]]
    """Name -> a number for each time; null: there was none."""


class Lately(NamedTuple):
    """What happened in the last `seconds`, at most LATELY_SECONDS: less if the broker is younger."""

    seconds: float
    events: dict[str, int]
    """As in `Reading`, without those that did not happen."""
    errors: dict[str, int]


class Ring:
    """The last points of some numbers at one distance."""

    def __init__(self, size: int, most_columns: int = MOST_COLUMNS) -> None:
        self._times = array("Q", bytes(8 * size))
        self._columns: dict[str, array[float]] = {}
        self._most_columns = most_columns
        self._count = 0

    def add(self, at_ms: int, values: Mapping[str, float | None]) -> None:
        """Numbers beyond `most_columns` are left out."""
        size = len(self._times)
        place = self._count % size
        for name in values.keys() - self._columns.keys():
            if len(self._columns) < self._most_columns:
                self._columns[name] = array("f", [nan]) * size
        for name, column in self._columns.items():
            value = values.get(name)
            column[place] = nan if value is None else value
        self._times[place] = at_ms
        self._count += 1

    def last(self, points: int, *names: str) -> list[float]:
        """The sums of some numbers at the last points; 0 where there was none."""
        size = len(self._times)
        places = [each % size for each in range(max(0, self._count - points), self._count)]
        columns = [self._columns[name] for name in names if name in self._columns]
        return [round(sum(each[at] for each in columns if not isnan(each[at])), 1) for at in places]

    def since(self, at_ms: int, period_ms: int) -> Series:
        """The points after a time."""
        size = len(self._times)
        places = [each % size for each in range(max(0, self._count - size), self._count)]
        places = [each for each in places if self._times[each] > at_ms]
        columns = {
            name: [None if isnan(column[each]) else round(column[each], 3) for each in places]
            for name, column in self._columns.items()
        }
        return {"period_ms": period_ms, "times": [self._times[each] for each in places], "columns": columns}


class _Moment(NamedTuple):
    seconds: float
    cpu_seconds: float
    reading: Reading


class History:
    """Measures one broker from `start` on."""

    def __init__(self, metrics: Metrics, clock_ms: Callable[[], int], start_ms: int) -> None:
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._loop = asyncio.get_running_loop()
        self._rings = {name: Ring(size) for name, (_, size) in SPANS.items()}
        self._topics: dict[str, dict[str, Ring]] = {}
        self.topic_rates: Mapping[str, tuple[float, float]] = {}
        """Of each topic with traffic in the last ten seconds: bytes per second, in and out."""
        now = self._now()
        self._before = dict.fromkeys(SPANS, now)
        self._earlier: deque[_Moment] = deque(maxlen=_READINGS)
        uptime_seconds = max(0, clock_ms() - start_ms) / 1000
        if uptime_seconds < LATELY_SECONDS:
            self._earlier.append(_Moment(now.seconds - uptime_seconds, 0.0, _NOTHING))
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._next: asyncio.Future[Point] = self._loop.create_future()

    def start(self) -> None:
        """Measure once per second from now on."""
        self._timer = self._loop.call_later(1.0, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def series(self, span: str, topic: str = "") -> Series:
        """The points of a span, of the broker or of a topic; none if it had no traffic."""
        period_seconds, size = SPANS[span]
        ring = self._topics.get(topic, {}).get(span) if topic else self._rings[span]
        earliest_ms = self._clock_ms() - period_seconds * size * 1000
        return (ring or Ring(0)).since(earliest_ms, period_seconds * 1000)

    def trend(self, topic: str) -> list[float]:
        """Bytes per second of a topic in the last ten minutes, in and out; empty if it had no traffic."""
        ring = self._topics.get(topic, {}).get("2h")
        return [] if ring is None else ring.last(_TREND_POINTS, "bytes_in", "bytes_out")

    async def next_point(self) -> Point:
        """That of the next second."""
        return await asyncio.shield(self._next)

    def lately(self) -> Lately:
        """Up to this moment."""
        now = self._now()
        known = [each for each in self._earlier if now.seconds - each.seconds <= LATELY_SECONDS] or [now]
        before = known[0]
        return Lately(
            now.seconds - before.seconds,
            growth(before.reading.events, now.reading.events),
            growth(before.reading.errors, now.reading.errors),
        )

    def _now(self) -> _Moment:
        return _Moment(self._loop.time(), time.process_time(), self._metrics.reading())

    def _tick(self) -> None:
        self._timer = self._loop.call_later(1.0, self._tick)
        self._ticks += 1
        now = self._now()
        if not self._earlier or now.seconds - self._earlier[-1].seconds >= LATELY_SECONDS / _READINGS:
            self._earlier.append(now)
        for span, (period_seconds, _) in SPANS.items():
            if self._ticks % period_seconds == 0:
                before, self._before[span] = self._before[span], now
                measured = self._point(before, now)
                self._rings[span].add(measured["at_ms"], _columns(measured))
                if period_seconds == 1:
                    waiting, self._next = self._next, self._loop.create_future()
                    waiting.set_result(measured)
                else:
                    self._measure_topics(span, now.seconds - before.seconds)

    def _point(self, before: _Moment, now: _Moment) -> Point:
        return point(
            before.reading,
            now.reading,
            now.seconds - before.seconds,
            at_ms=self._clock_ms(),
            connections=self._metrics.connections,
            resident_bytes=resident_bytes(),
            cpu_seconds=now.cpu_seconds - before.cpu_seconds,
        )

    def _measure_topics(self, span: str, seconds: float) -> None:
        grown = self._metrics.topic_growth(span)
        if span == "2h":
            self.topic_rates = {
                name: (size_in / seconds, size_out / seconds)
                for name, (_, size_in, size_out) in grown.items()
            }
        for name in sorted(grown.keys() - self._topics.keys(), key=lambda name: -sum(grown[name])):
            if len(self._topics) >= MOST_TOPICS:
                silent = next((each for each in self._topics if each not in grown), None)
                if silent is None:
                    break
                del self._topics[silent]
            self._topics[name] = {each: Ring(size, 3) for each, (period, size) in SPANS.items() if period > 1}
        at_ms = self._clock_ms()
        for name, rings in self._topics.items():
            records, size_in, size_out = grown.get(name, (0, 0, 0))
            values = {"messages_in": records, "bytes_in": size_in, "bytes_out": size_out}
            rings[span].add(at_ms, {each: value / seconds for each, value in values.items()})


def _columns(measured: Point) -> dict[str, float | None]:
    """The numbers of a point by name: `produce_ms.p50`, `errors.NAME`."""
    values: dict[str, float | None] = {}
    for name, value in measured.items():
        if isinstance(value, Mapping):
            values |= {f"{name}.{each}": number for each, number in value.items()}
        elif name != "at_ms" and not (value is None and name.endswith("_ms")):
            values[name] = value  # type: ignore[assignment]
    return values


def resident_bytes() -> int | None:
    """Memory of this process; None if the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return None
