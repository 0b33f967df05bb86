"""The metrics of a client, by Kafka's names.

Owns: what is counted of records and batches, at no cost per record (`wire.metrics` has the requests), and a
callback at intervals.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, Self, TypeAlias

from tidelog.wire.events import logger
from tidelog.wire.metrics import RequestMetrics, Window

__all__ = ["ClientMetrics", "Measured", "MetricsCallback", "MetricsReporter"]

MetricsCallback: TypeAlias = Callable[[Mapping[str, float]], None]


class ClientMetrics(RequestMetrics):
    """Measures the records, batches and requests of one client. `now` is in seconds of the loop's clock."""

    def __init__(self) -> None:
        super().__init__()
        # One value per batch: its number of records.
        self._sent = Window()
        self._failed = Window()
        self._retried = Window()
        self._batch_sizes = Window()
        self._waits_s = Window()
        self._epoch_bumps = 0

    # Events

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
        return super().snapshot(now) | {
            "record-send-rate": self._sent.rate(now),
            "record-send-total": self._sent.total,
            "record-error-rate": self._failed.rate(now),
            "record-error-total": self._failed.total,
            "record-retry-rate": self._retried.rate(now),
            "record-retry-total": self._retried.total,
            "batch-size-avg": self._batch_sizes.average(now),
            "batch-size-max": self._batch_sizes.maximum(now),
            "records-per-batch-avg": self._sent.average(now),
            "bufferpool-wait-ratio": self._waits_s.rate(now),
            "bufferpool-wait-time-ns-total": self._waits_s.total * 1e9,
            "producer-epoch-bump-total": self._epoch_bumps,
        }


class Measured(Protocol):
    """A client with metrics."""

    def metrics(self) -> dict[str, float]: ...


class MetricsReporter:
    """`async with MetricsReporter(producer, callback):` calls `callback(metrics)` every `interval_ms`, and
    once more at the end. Exceptions of the callback are logged, and the reports continue."""

    def __init__(self, client: Measured, callback: MetricsCallback, interval_ms: int = 10_000) -> None:
        if interval_ms <= 0:
            raise ValueError(f"interval_ms: expected more than 0, got {interval_ms}")
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
