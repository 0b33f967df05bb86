"""Pushes of clients that are passed on to an endpoint, one that fails and one that is slow."""

from structlog.testing import capture_logs

from tests.unit.broker.telemetry.collector import collector
from tests.unit.broker.telemetry.payloads import payload
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.telemetry.otlp_exporter import MOST_WAITING, OtlpExporter


async def test_a_push_is_passed_on_in_order_and_the_last_ones_at_the_end() -> None:
    async with collector() as endpoint:
        exporter = OtlpExporter(endpoint.endpoint)
        for number in range(3):
            exporter.add(payload(("a", number)))
        await exporter.close(DEADLINE_SECONDS)
        taken = [endpoint.taken.get_nowait() for _ in range(endpoint.taken.qsize())]
        points = [each.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0] for each in taken]
        assert [each.as_double for each in points] == [0, 1, 2]


async def test_an_endpoint_that_fails_is_logged_once_and_once_more_when_it_takes_again() -> None:
    async with collector() as endpoint:
        exporter = OtlpExporter(endpoint.endpoint)
        with capture_logs() as logged:
            for status in (503, 429, 200, 200):
                endpoint.status = status
                exporter.add(payload(("a", 1)))
                await exporter.close(DEADLINE_SECONDS)
        assert [each["event"] for each in logged] == ["telemetry_not_exported", "telemetry_exported_again"]
        assert logged[0]["error"].startswith("503 ")
        assert len(logged[0]["error"]) < 300


async def test_an_endpoint_that_refuses_connections_is_logged_and_stops_nothing() -> None:
    exporter = OtlpExporter("http://127.0.0.1:1/v1/metrics")
    with capture_logs() as logged:
        exporter.add(payload(("a", 1)))
        await exporter.close(DEADLINE_SECONDS)
    assert [each["event"] for each in logged] == ["telemetry_not_exported"]


async def test_pushes_that_wait_are_bounded() -> None:
    async with collector() as endpoint:
        exporter = OtlpExporter(endpoint.endpoint)
        for number in range(MOST_WAITING + 10):  # Nothing is sent before this test yields.
            exporter.add(payload(("a", number)))
        await exporter.close(DEADLINE_SECONDS)
        assert endpoint.taken.qsize() == MOST_WAITING
