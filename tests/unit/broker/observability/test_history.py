"""What is measured on virtual time without a visitor: each second, bounded, with gaps, also of topics."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.simulation.virtual_loop import VirtualLoop
from tidelog.broker.observability import history as module
from tidelog.broker.observability.history import (
    LATELY_SECONDS,
    MOST_COLUMNS,
    MOST_TOPICS,
    SPANS,
    History,
    Ring,
)
from tidelog.broker.observability.metrics import Metrics

LONG_AGO_MS = -10 * int(LATELY_SECONDS) * 1000
DAY_SECONDS = 86_400


def run(body: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(1)) as runner:
        runner.run(body)


async def later(seconds: float) -> None:
    """By the loop's clock; just after the measurements of that moment."""
    loop = asyncio.get_running_loop()
    come = loop.create_future()
    loop.call_later(seconds + 0.01, come.set_result, None)
    await come


def begun(metrics: Metrics, start_ms: int = LONG_AGO_MS) -> History:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    history = History(metrics, lambda: round((loop.time() - begin) * 1000), start_ms)
    history.start()
    return history


def test_each_second_is_a_point_without_anybody_who_looks() -> None:
    async def body() -> None:
        metrics = Metrics()
        history = begun(metrics)
        metrics.batch_appended("t", 10, 100)
        await later(3)
        series = history.series("10min")
        assert series["times"] == [1000, 2000, 3000]
        assert series["columns"]["bytes_in"] == [100.0, 0.0, 0.0]
        history.stop()
        await later(5)
        assert history.series("10min") == series

    run(body())


def test_the_longer_spans_have_averages() -> None:
    async def body() -> None:
        metrics = Metrics()
        history = begun(metrics)
        for _ in range(60):
            metrics.batch_appended("t", 1, 100)
            await later(0.99)
        await later(1)
        assert history.series("2h")["times"] == [10_000 * each for each in range(1, 7)]
        assert history.series("24h")["columns"]["bytes_in"] == [100.0]
        assert history.series("24h", "t")["columns"] == {
            "messages_in": [1.0],
            "bytes_in": [100.0],
            "bytes_out": [0.0],
        }
        assert history.series("24h", "u")["times"] == []
        assert history.topic_rates == {"t": (100.0, 0.0)}
        history.stop()

    run(body())


def test_all_who_wait_get_the_same_point() -> None:
    async def body() -> None:
        metrics = Metrics()
        history = begun(metrics)
        metrics.batch_appended("t", 10, 100)
        points = await asyncio.gather(*(history.next_point() for _ in range(10)))
        assert all(each is points[0] for each in points)
        assert points[0]["messages_in"] == 10
        history.stop()

    run(body())


def test_a_day_with_all_errors_and_many_topics_takes_less_than_two_megabytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A twentieth of a day: rings take their memory at once, and keep it however many points come.
    spans = {name: (period_seconds, size // 20) for name, (period_seconds, size) in SPANS.items()}

    def size_bytes(ring: Ring) -> int:
        return sum(memoryview(each).nbytes for each in (ring._times, *ring._columns.values()))

    async def body() -> None:
        monkeypatch.setattr(module, "SPANS", spans)
        metrics = Metrics()
        history = begun(metrics)
        for step in range(DAY_SECONDS // 20 // 600 + 2):
            for topic in range(3 * MOST_TOPICS):
                if (topic + step) % 3 == 0:
                    metrics.batch_appended(f"t{topic}", 1, 100)
            for code in range(1, 2 * MOST_COLUMNS):
                metrics.request_finished("Produce", 9, [(code, 1)], 0.001)
            await later(600)
        history.stop()
        for span, (period_seconds, size) in spans.items():
            series = history.series(span)
            assert len(series["times"]) == size
            assert len(series["columns"]) == MOST_COLUMNS
            assert {
                late - early for early, late in zip(series["times"], series["times"][1:], strict=False)
            } == {period_seconds * 1000}
        rings = [
            *history._rings.values(),
            *(ring for each in history._topics.values() for ring in each.values()),
        ]
        assert len(history._topics) == MOST_TOPICS
        assert 1_000_000 < 20 * sum(map(size_bytes, rings)) < 2_000_000

    run(body())


def test_what_was_not_measured_is_a_gap() -> None:
    ring = Ring(3)
    ring.add(1, {"a": 1.0, "b": None})
    ring.add(9, {"a": None, "c": 2.0})
    assert ring.since(0, 1) == {
        "period_ms": 1,
        "times": [1, 9],
        "columns": {"a": [1.0, None], "b": [None, None], "c": [None, 2.0]},
    }
    assert ring.since(1, 1)["times"] == [9]
    for at_ms in (10, 11, 12):
        ring.add(at_ms, {})
    assert ring.since(0, 1)["times"] == [10, 11, 12]


def test_lately_are_the_last_minutes_and_of_a_young_broker_all_since_its_start() -> None:
    async def body() -> None:
        metrics = Metrics()
        metrics.fenced()
        young, old = begun(metrics, start_ms=-10_000), begun(metrics)
        assert young.lately().events == {"tidelog_fenced_batches": 1}
        assert young.lately().seconds == 10
        assert old.lately().events == {}
        await later(1)
        metrics.request_finished("Produce", 9, [(45, 3)], 0.001)
        await later(LATELY_SECONDS / 2)
        assert old.lately().errors == {"OUT_OF_ORDER_SEQUENCE_NUMBER": 3}
        await later(LATELY_SECONDS)
        assert old.lately().errors == {}
        assert old.lately().seconds <= LATELY_SECONDS
        young.stop()
        old.stop()

    run(body())
