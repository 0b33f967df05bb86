"""Rates and percentiles between two readings of the broker's counts.

Owns what a point of the charts is. Invariants: pure; a point has one number for each chart and for
each error code that occurred, however many topics and clients there are.

Source: the percentile within a bucket is interpolated as Prometheus' `histogram_quantile` does.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

from tidelog.broker.observability.metrics import LATENCY_BUCKETS_MS, Reading

_LOWER_BOUNDS: Final = (0.0, *LATENCY_BUCKETS_MS)


class Percentiles(TypedDict):
    """Milliseconds from a request's arrival to its answer; at most 10,000, the last bound of a bucket."""

    p50: float
    p95: float
    p99: float


class Point(TypedDict):
    """What happened since the point before, per second."""

    at_ms: int
    """Milliseconds since the epoch."""
    messages_in: float
    bytes_in: float
    bytes_out: float
    requests: float
    errors: dict[str, float]
    """Error codes in responses, by name; those that occurred since the point before."""
    produce_ms: Percentiles | None
    """None: there was no such request."""
    fetch_ms: Percentiles | None
    """A Fetch waits for records, so it takes long where there are none."""
    commit_batches: float | None
    """Batches that one fdatasync made durable, on average."""
    connections: int
    resident_bytes: int | None
    """Memory of the process; None: unknown on this system."""
    cpu: float
    """Processor time per second; 1 is one core."""


def growth(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What each count grew by, without those that did not."""
    return {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}


def percentiles(before: Sequence[int], after: Sequence[int]) -> Percentiles | None:
    """Of the requests counted in each of LATENCY_BUCKETS_MS between two readings."""
    counts = [late - early for early, late in zip(before or [0] * len(after), after, strict=True)]
    total = sum(counts)
    if total <= 0:
        return None
    return {
        "p50": _at(counts, 0.5 * total),
        "p95": _at(counts, 0.95 * total),
        "p99": _at(counts, 0.99 * total),
    }


def _at(counts: Sequence[int], rank: float) -> float:
    for lower, upper, count in zip(_LOWER_BOUNDS, LATENCY_BUCKETS_MS, counts, strict=False):
        if rank <= count:
            return round(lower + (upper - lower) * rank / count, 3)
        rank -= count
    return LATENCY_BUCKETS_MS[-1]


def point(
    before: Reading,
    after: Reading,
    seconds: float,
    *,
    at_ms: int,
    connections: int,
    resident_bytes: int | None,
    cpu_seconds: float,
) -> Point:
    """What happened in the `seconds` between two readings, in which the process used `cpu_seconds`."""

    def rate(early: int, late: int) -> float:
        return round((late - early) / seconds, 3)

    def latency(api: str) -> Percentiles | None:
        return percentiles(before.milliseconds.get(api, ()), after.milliseconds.get(api, ()))

    commits = after.commits - before.commits
    batches = after.committed_batches - before.committed_batches
    return {
        "at_ms": at_ms,
        "messages_in": rate(before.messages_in, after.messages_in),
        "bytes_in": rate(before.bytes_in, after.bytes_in),
        "bytes_out": rate(before.bytes_out, after.bytes_out),
        "requests": rate(sum(before.requests.values()), sum(after.requests.values())),
        "errors": {
            name: round(count / seconds, 3) for name, count in growth(before.errors, after.errors).items()
        },
        "produce_ms": latency("Produce"),
        "fetch_ms": latency("Fetch"),
        "commit_batches": round(batches / commits, 2) if commits else None,
        "connections": connections,
        "resident_bytes": resident_bytes,
        "cpu": round(cpu_seconds / seconds, 3),
    }
