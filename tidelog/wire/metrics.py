"""What is measured of a client's requests, by Kafka's names, and the windows for it.

Owns: counters and windows that cost a few additions per request. Invariants: totals only grow; a rate, an
average or a maximum covers the last 30 to 60 seconds; an average without values is 0. No I/O, no clock: the
time is an argument. Rates are per second, times are milliseconds unless the name says otherwise. Source:
Kafka's producer-metrics.

Pure.
"""

from typing import Final

_WINDOW_S: Final = 30.0


class Window:
    """Sum, count and maximum of what was added in the last one to two windows."""

    __slots__ = ("_before", "_began", "_count", "_maximum", "_sum", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self._began: float | None = None
        self._sum = self._count = self._maximum = 0.0
        # The same three values of the window before.
        self._before = (0.0, 0.0, 0.0)

    def add(self, value: float, now: float) -> None:
        if self._began is None or now - self._began >= _WINDOW_S:
            self._roll(now)
        self.total += value
        self._sum += value
        self._count += 1
        if value > self._maximum:
            self._maximum = value

    def rate(self, now: float) -> float:
        """Per second."""
        self._roll(now)
        if self._began is None:
            return 0.0
        before_sum, before_count, _ = self._before
        return (before_sum + self._sum) / max((_WINDOW_S if before_count else 0.0) + now - self._began, 1.0)

    def average(self, now: float) -> float:
        self._roll(now)
        before_sum, before_count, _ = self._before
        count = before_count + self._count
        return (before_sum + self._sum) / count if count else 0.0

    def maximum(self, now: float) -> float:
        self._roll(now)
        return max(self._before[2], self._maximum)

    def _roll(self, now: float) -> None:
        if self._began is None:
            self._began = now
        elapsed = now - self._began
        if elapsed < _WINDOW_S:
            return
        is_next = elapsed < 2 * _WINDOW_S
        self._began += elapsed - elapsed % _WINDOW_S
        self._before = (self._sum, self._count, self._maximum) if is_next else (0.0, 0.0, 0.0)
        self._sum = self._count = self._maximum = 0.0


class RequestMetrics:
    """Measures the requests of one client. `now` is in seconds of the loop's clock."""

    def __init__(self) -> None:
        self.requests_in_flight = 0
        self._requests = Window()
        self._latencies_ms = Window()

    def request_sent(self, now: float) -> None:
        self.requests_in_flight += 1
        self._requests.add(1, now)

    def request_ended(self, seconds: float | None, now: float) -> None:
        """Answered after `seconds`, or never (None)."""
        self.requests_in_flight -= 1
        if seconds is not None:
            self._latencies_ms.add(seconds * 1000, now)

    def snapshot(self, now: float) -> dict[str, float]:
        """Every metric by its name."""
        return {
            "request-rate": self._requests.rate(now),
            "request-total": self._requests.total,
            "request-latency-avg": self._latencies_ms.average(now),
            "request-latency-max": self._latencies_ms.maximum(now),
            "requests-in-flight": self.requests_in_flight,
        }
