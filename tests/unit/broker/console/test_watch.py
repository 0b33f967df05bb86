"""What is measured while somebody looks, on virtual time: shared by all who look, bounded, and over soon
after the last look."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from tests.simulation.virtual_loop import VirtualLoop
from tidelog.broker.console.watch import IDLE_SECONDS, LATELY_SECONDS, MOST_POINTS, PERIOD_SECONDS, Watch
from tidelog.broker.observability.metrics import Metrics

LONG_AGO_MS = -10 * int(LATELY_SECONDS) * 1000


class Counted(Metrics):
    """Counts how often it was read."""

    readings = 0

    def reading(self) -> Any:
        self.readings += 1
        return super().reading()


def run(body: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(1)) as runner:
        runner.run(body)


async def later() -> None:
    """Much later, by the loop's clock."""
    loop = asyncio.get_running_loop()
    come = loop.create_future()
    loop.call_later(1_000, come.set_result, None)
    await come


def watched(metrics: Metrics, start_ms: int = LONG_AGO_MS) -> Watch:
    services: Any = SimpleNamespace(metrics=metrics, start_ms=start_ms, clock_ms=lambda: 0)
    return Watch(services)


def test_nothing_is_measured_unless_somebody_looks_and_soon_after_the_last_look_no_more() -> None:
    async def body() -> None:
        metrics = Counted()
        watch = watched(metrics)
        before = metrics.readings
        await later()
        assert metrics.readings == before
        watch.look()
        await later()
        after = metrics.readings
        assert len(watch.points) == IDLE_SECONDS // PERIOD_SECONDS + 1
        await later()
        assert metrics.readings == after

    run(body())


def test_all_who_wait_get_the_same_point() -> None:
    async def body() -> None:
        metrics = Counted()
        watch = watched(metrics)
        watch.look()
        before = metrics.readings
        metrics.batch_appended("t", 10, 100)
        points = await asyncio.gather(*(watch.next_point() for _ in range(10)))
        assert metrics.readings == before + 1
        assert all(each is points[0] for each in points)
        assert points[0]["messages_in"] == 10 / PERIOD_SECONDS

    run(body())


def test_what_happened_while_nobody_looked_is_not_in_the_next_point() -> None:
    async def body() -> None:
        metrics = Metrics()
        watch = watched(metrics)
        watch.look()
        await later()
        metrics.batch_appended("t", 10, 100)
        await later()
        assert (await watch.next_point())["messages_in"] == 0

    run(body())


def test_at_most_a_quarter_of_an_hour_is_kept() -> None:
    async def body() -> None:
        watch = watched(Metrics())
        for _ in range(MOST_POINTS + 10):
            await watch.next_point()
        assert len(watch.points) == MOST_POINTS

    run(body())


def test_lately_are_the_last_minutes_and_of_a_young_broker_all_since_its_start() -> None:
    async def body() -> None:
        metrics = Metrics()
        metrics.fenced()
        young, old = watched(metrics, start_ms=-10_000), watched(metrics)
        assert young.lately().events == {"tidelog_fenced_batches": 1}
        assert young.lately().seconds == 10
        assert old.lately().events == {}
        metrics.request_finished("Produce", 9, [(45, 3)], 0.001)
        for _ in range(int(LATELY_SECONDS / PERIOD_SECONDS / 2)):
            await old.next_point()
        assert old.lately().errors == {"OUT_OF_ORDER_SEQUENCE_NUMBER": 3}
        for _ in range(int(LATELY_SECONDS / PERIOD_SECONDS)):
            await old.next_point()
        assert old.lately().errors == {}
        assert old.lately().seconds <= LATELY_SECONDS

    run(body())


def test_the_points_are_those_of_a_quarter_of_an_hour_though_nobody_looked_meanwhile() -> None:
    async def body() -> None:
        now_ms = 0
        services: Any = SimpleNamespace(metrics=Metrics(), start_ms=LONG_AGO_MS, clock_ms=lambda: now_ms)
        watch = Watch(services)
        await watch.next_point()
        now_ms = int(MOST_POINTS * PERIOD_SECONDS * 1000) - 1
        await watch.next_point()
        assert [each["at_ms"] for each in watch.points] == [0, now_ms]
        now_ms += 1
        assert [each["at_ms"] for each in watch.points] == [now_ms - 1]

    run(body())
