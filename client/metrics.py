"""The metrics of a client, by Kafka's names.

Owns: counters and windows that cost a few additions per request and nothing per record; the snapshot of them,
and a callback at intervals. Invariants: totals only grow; a rate, an average or a maximum covers the last 30
to 60 seconds; an average without values is 0. `ClientMetrics` gets the time as an argument: no I/O, no clock.
Applications read it through `Producer.metrics()` and `Consumer.metrics()`, `MetricsReporter` or
`client.prometheus`. Rates are per second, times are milliseconds unless the name says otherwise. Source:
Kafka's producer-metrics.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol, Self, TypeAlias

from tidelog.client.events import logger

__all__ = ["ClientMetrics", "Measured", "MetricsCallback", "MetricsReporter"]

MetricsCallback: TypeAlias = Callable[[Mapping[str, float]], None]

_WINDOW_S: Final = 30.0


class _Window:
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


class ClientMetrics:
    """One per client. `now` is in seconds of the loop's clock."""

    def __init__(self) -> None:
        self.requests_in_flight = 0
        # One value per batch: its number of records.
        self._sent = _Window()
        self._failed = _Window()
        self._retried = _Window()
        self._batch_sizes = _Window()
        self._requests = _Window()
        self._latencies_ms = _Window()
        self._waits_s = _Window()
        self._epoch_bumps = 0

    # Events

    def request_sent(self, now: float) -> None:
        self.requests_in_flight += 1
        self._requests.add(1, now)

    def request_ended(self, seconds: float | None, now: float) -> None:
        """Answered after `seconds`, or never (None)."""
        self.requests_in_flight -= 1
        if seconds is not None:
            self._latencies_ms.add(seconds * 1000, now)

    def batch_sent(self, records: int, size_bytes: int, attempt: int, now: float) -> None:
        """A batch went out; `attempt` counts from 1."""
        self._sent.add(records, now)
        self._batch_sizes.add(size_bytes, now)
        if attempt > 1:
            self._retried.add(records, now)

    def records_failed(self, records: int, now: float) -> None:
        self._failed.add(records, now)

    def bufferpool_waited(self, seconds: float, now: float) -> None:
        """A send waited `seconds` for memory."""
        self._waits_s.add(seconds, now)

    def epoch_bumped(self) -> None:
        self._epoch_bumps += 1

    # Results

    def snapshot(self, now: float) -> dict[str, float]:
        """Every metric by its name."""
        return {
            "record-send-rate": self._sent.rate(now),
            "record-send-total": self._sent.total,
            "record-error-rate": self._failed.rate(now),
            "record-error-total": self._failed.total,
            "record-retry-rate": self._retried.rate(now),
            "record-retry-total": self._retried.total,
            "batch-size-avg": self._batch_sizes.average(now),
            "batch-size-max": self._batch_sizes.maximum(now),
            "records-per-batch-avg": self._sent.average(now),
            "request-rate": self._requests.rate(now),
            "request-total": self._requests.total,
            "request-latency-avg": self._latencies_ms.average(now),
            "request-latency-max": self._latencies_ms.maximum(now),
            "requests-in-flight": self.requests_in_flight,
            "bufferpool-wait-ratio": self._waits_s.rate(now),
            "bufferpool-wait-time-ns-total": self._waits_s.total * 1e9,
            "producer-epoch-bump-total": self._epoch_bumps,
        }


class Measured(Protocol):
    """A client with metrics."""

    def metrics(self) -> dict[str, float]: ...


class MetricsReporter:
    """`async with MetricsReporter(producer, callback):` calls `callback(metrics)` every `interval_ms`, and
    once more at the end. What the callback raises is logged and stops nothing."""

    def __init__(self, client: Measured, callback: MetricsCallback, interval_ms: int = 10_000) -> None:
        if interval_ms <= 0:
            raise ValueError(f"interval_ms is {interval_ms}, expected more than 0")
        self._client = client
        self._callback = callback
        self._interval = interval_ms / 1000
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._arm()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._tell()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._on_timer)

    def _on_timer(self) -> None:
        self._arm()
        self._tell()

    def _tell(self) -> None:
        try:
            self._callback(self._client.metrics())
        except Exception:
            logger.exception("metrics_callback_failed")
