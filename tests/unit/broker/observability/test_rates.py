"""The points of the console's charts: what happened between two readings, per second."""

import pytest

from tidelog.broker.observability.metrics import LATENCY_BUCKETS_MS, Metrics, Reading
from tidelog.broker.observability.rates import Point, percentiles, point


def between(before: Reading, after: Reading, seconds: float = 2.0) -> Point:
    return point(before, after, seconds, at_ms=5, connections=3, resident_bytes=None, cpu_seconds=0.5)


def test_a_point_has_rates_and_only_what_happened_between_the_readings() -> None:
    metrics = Metrics()
    metrics.batch_appended("a", 100, 1_000)
    metrics.request_finished("Produce", 9, [(45, 7)], 0.001)
    before = metrics.reading()
    metrics.batch_appended("a", 10, 300)
    metrics.bytes_out("b", 50)
    metrics.request_finished("Produce", 9, [(0, 1), (47, 3)], 0.0007)
    metrics.group_commit(4)
    metrics.group_commit(1)
    found = between(before, metrics.reading())
    assert (found["messages_in"], found["bytes_in"], found["bytes_out"]) == (5, 150, 25)
    assert found["requests"] == 0.5
    assert found["errors"] == {"INVALID_PRODUCER_EPOCH": 1.5}
    assert found["commit_batches"] == 2.5
    assert found["produce_ms"] is not None
    assert 0.5 <= found["produce_ms"]["p50"] <= 1
    assert found["fetch_ms"] is None
    assert (found["at_ms"], found["connections"], found["cpu"]) == (5, 3, 0.25)


def test_a_broker_that_does_nothing_has_zeros() -> None:
    reading = Metrics().reading()
    found = between(reading, reading)
    assert (found["messages_in"], found["requests"], found["errors"]) == (0, 0, {})
    assert found["commit_batches"] is None


@pytest.mark.parametrize("bucket", [*range(len(LATENCY_BUCKETS_MS))])
def test_a_percentile_is_within_the_bucket_that_holds_it(bucket: int) -> None:
    counts = [0] * (len(LATENCY_BUCKETS_MS) + 1)
    counts[bucket] = 10
    found = percentiles((), counts)
    assert found is not None
    lower = LATENCY_BUCKETS_MS[bucket - 1] if bucket else 0
    assert lower < found["p50"] < found["p95"] < found["p99"] <= LATENCY_BUCKETS_MS[bucket]


def test_percentiles_rank_all_buckets_and_end_at_the_last_bound() -> None:
    counts = [0] * (len(LATENCY_BUCKETS_MS) + 1)
    counts[0], counts[4], counts[-1] = 90, 8, 2
    found = percentiles([0] * len(counts), counts)
    assert found is not None
    assert found["p50"] < 0.1
    assert 1.0 < found["p95"] <= 2.5
    assert found["p99"] == LATENCY_BUCKETS_MS[-1]
