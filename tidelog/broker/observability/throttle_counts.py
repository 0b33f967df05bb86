"""How often and for how long clients were throttled, by quota and for the clients first throttled by name.

Owns these counts and their exposition. Invariant: names that peers choose make at most `MOST_CLIENTS` series
per quota; all further clients are counted together.

Source: throttle-time of kafka.server:type=Produce, type=Fetch and type=Request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from tidelog.broker.observability.series import Metric, counter

MOST_CLIENTS: Final = 100
OTHERS: Final = ("(others)", "(others)")


class ThrottleCounts:
    """Counts how often and for how long one broker throttled clients."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._seconds: Counter[tuple[str, str, str]] = Counter()
        self._clients: Counter[str] = Counter()

    def throttled(self, quota: str, user: str, client_id: str, seconds: float) -> None:
        """A request of a client was above `quota`; its connection waits for `seconds`."""
        key = (quota, user, client_id)
        if key not in self._requests:
            if self._clients[quota] < MOST_CLIENTS:
                self._clients[quota] += 1
            else:
                key = (quota, *OTHERS)
        self._requests[key] += 1
        self._seconds[key] += seconds  # type: ignore[assignment]

    def collect(self) -> Iterator[Metric]:
        labels = ("quota", "user", "client_id")
        waited = "Requests after which a client above its quota had to wait."
        yield counter("tidelog_throttled_requests", waited, self._requests, *labels)
        duration = "How long clients above their quota had to wait (throttle-time)."
        yield counter("tidelog_throttle_time_seconds", duration, self._seconds, *labels)
