"""What loads by librdkafka (confluent-kafka) have in common: the settings, and its time for an answer."""

import json
from statistics import median
from typing import Any

from bench.wire import HOST, WireError

_INTERVAL_MS = 400


class RoundTrips:
    """The 99th percentile of the time from a request to its answer, as librdkafka itself measures it."""

    def __init__(self) -> None:
        self._p99_us: list[float] = []

    def add(self, statistics: str) -> None:
        """Called by librdkafka each interval, with the answers of that interval."""
        brokers = json.loads(statistics)["brokers"].values()
        self._p99_us += [broker["rtt"]["p99"] for broker in brokers if broker["rtt"]["cnt"]]

    def p99_ms(self) -> float:
        """The middle one of the intervals. Raises WireError without any."""
        if not self._p99_us:
            raise WireError("librdkafka reported no round trip; let it run for longer")
        return median(self._p99_us) / 1000


def settings(port: int, round_trips: RoundTrips, errors: list[str]) -> dict[str, Any]:
    """Of a client; fatal errors go to `errors`."""
    return {
        "bootstrap.servers": f"{HOST}:{port}",
        "error_cb": lambda error: errors.append(str(error)) if error.fatal() else None,
        "statistics.interval.ms": _INTERVAL_MS,
        "stats_cb": round_trips.add,
        "log_level": 0,
    }
