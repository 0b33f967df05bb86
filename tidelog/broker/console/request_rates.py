"""The rate of requests between two looks at a connection.

Invariant: the counts of at most `MOST_REMEMBERED` connections are remembered.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from tidelog.broker.net.connection import Connection

MOST_REMEMBERED: Final = 1_000
_LEAST_SECONDS: Final = 1.0
"""Looks that are closer together show the same rate."""


class _Seen(NamedTuple):
    at: float
    requests: int
    rate: float


class RequestRates:
    """The rates of the connections on an open page."""

    def __init__(self) -> None:
        self._seen: OrderedDict[int, _Seen] = OrderedDict()

    def of(self, connection: Connection, now: float) -> float:
        """Requests per second of a connection; `now` is of time.perf_counter."""
        before = self._seen.get(connection.connection_id) or _Seen(connection.opened, 0, 0.0)
        seconds = now - before.at
        if seconds < _LEAST_SECONDS and connection.connection_id in self._seen:
            return before.rate
        rate = round((connection.requests - before.requests) / max(seconds, _LEAST_SECONDS), 2)
        self._seen[connection.connection_id] = _Seen(now, connection.requests, rate)
        self._seen.move_to_end(connection.connection_id)
        if len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)
        return rate
