"""What a client tells about itself, and what it costs to be told."""

import asyncio
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from tests.unit.wire.scripted import TOPIC, Answer, Request, ScriptedBroker
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import DeliveryError, Producer
from tidelog.client.metrics import ClientMetrics, MetricsReporter
from tidelog.client.prometheus import PrometheusMetrics
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey


def answering(*codes: ErrorCode) -> object:
    """Produce requests are answered with these, then with success."""
    left = list(codes)

    def script(request: Request) -> Answer:
        return ScriptedBroker.produced(request, left.pop(0) if left else 0)

    return script


def producer(broker: ScriptedBroker, **settings: object) -> Producer:
    return Producer(bootstrap_servers=broker.address, retry_backoff_ms=1, **settings)  # type: ignore[arg-type]


def test_rates_cover_the_last_minute_at_most() -> None:
    metrics = ClientMetrics()
    for second in range(10):
        metrics.batch_sent(100, 1_000, 1, float(second))
    told = metrics.snapshot(10.0)
    assert told["record-send-rate"] == pytest.approx(100)
    assert (told["record-send-total"], told["batch-size-avg"], told["batch-size-max"]) == (
        1_000,
        1_000,
        1_000,
    )
    told = metrics.snapshot(45.0)
    assert 0 < told["record-send-rate"] < 100
    told = metrics.snapshot(200.0)
    assert (told["record-send-rate"], told["record-send-total"], told["batch-size-avg"]) == (0, 1_000, 0)


async def test_what_was_sent_retried_and_refused_is_counted_by_kafkas_names(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.PRODUCE] = answering(  # type: ignore[assignment]
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    async with producer(broker, linger_ms=1) as it:
        deliveries = [await it.send(TOPIC, b"a"), await it.send(TOPIC, b"b")]
        await asyncio.gather(*deliveries)
        with pytest.raises(DeliveryError):
            await it.send_and_wait(TOPIC, b"c")
        told = it.metrics()
    assert (told["record-send-total"], told["record-retry-total"], told["record-error-total"]) == (5, 2, 1)
    assert told["record-send-rate"] > 0
    assert told["record-error-rate"] > 0
    assert told["record-retry-rate"] > 0
    assert 0 < told["request-latency-avg"] <= told["request-latency-max"]
    assert told["batch-size-avg"] > 61
    assert told["requests-in-flight"] == 0
    assert told["bufferpool-wait-ratio"] == 0


async def test_waiting_for_memory_and_for_answers_is_seen(broker: ScriptedBroker) -> None:
    gate = asyncio.Event()

    async def late(request: Request) -> Answer:
        await gate.wait()
        return ScriptedBroker.produced(request)

    broker.scripts[ApiKey.PRODUCE] = late
    async with producer(broker, buffer_memory=2_000, max_batch_size=1_000) as it:
        waiting = asyncio.gather(*(it.send(TOPIC, b"x" * 800) for _ in range(4)))
        await until(lambda: it.metrics()["requests-in-flight"])
        assert it.metrics()["bufferpool-wait-time-ns-total"] == 0
        gate.set()
        await waiting
        assert it.metrics()["bufferpool-wait-time-ns-total"] > 0


async def test_a_callback_gets_them_at_intervals_and_once_at_the_end() -> None:
    told: list[float] = []
    enough = asyncio.Event()

    class Client:
        def metrics(self) -> dict[str, float]:
            return {"record-send-total": len(told)}

    def callback(metrics: object) -> None:
        told.append(metrics["record-send-total"])  # type: ignore[index]
        if len(told) == 3:
            enough.set()
        if len(told) == 2:
            raise ValueError("a callback that fails")

    async with MetricsReporter(Client(), callback, interval_ms=1):
        await asyncio.wait_for(enough.wait(), DEADLINE_SECONDS)
        before_the_end = len(told)
    assert told == list(range(before_the_end + 1))


async def test_prometheus_sees_them_when_it_scrapes() -> None:
    registry = CollectorRegistry()
    adapter = PrometheusMetrics(registry)
    async with ScriptedBroker() as broker, producer(broker) as it:
        adapter.add(it, "orders")
        with pytest.raises(ValueError, match="orders"):
            adapter.add(it, "orders")
        await it.send_and_wait(TOPIC, b"a")
        text = generate_latest(registry).decode()
    assert 'tidelog_client_record_send_total{client_id="orders"} 1.0' in text
    assert "# TYPE tidelog_client_request_latency_avg gauge" in text
    adapter.remove("orders")
    assert "orders" not in generate_latest(registry).decode()
    adapter.close()


def test_importing_the_client_imports_no_prometheus_client() -> None:
    code = "import sys, client; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_retries_and_epoch_bumps_are_structlog_events(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.PRODUCE] = answering(  # type: ignore[assignment]
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    with capture_logs() as events:
        async with producer(broker) as it:
            await it.send_and_wait(TOPIC, b"a")
            told = it.metrics()
    retried = [each for each in events if each["event"] == "batch_retried"]
    assert retried[0]["topic"] == TOPIC
    assert "NOT_ENOUGH_REPLICAS" in retried[0]["cause"]
    (left,) = [each for each in events if each["event"] == "producer_identity_left"]
    assert left["old"] == (5, 0)
    assert "(5, 1)" in left["new"]
    assert told["producer-epoch-bump-total"] == 1
