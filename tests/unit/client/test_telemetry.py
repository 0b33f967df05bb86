"""When a client pushes its metrics, and what a broker is sent."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from tests.unit.wire.scripted import Answer, Request, ScriptedBroker
from tests.waiting import until
from tidelog.broker.telemetry.metrics_data import Series, Value, decoded, series
from tidelog.client import Consumer, Producer, telemetry
from tidelog.client.telemetry import encode
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

GET, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY
ID = UUID(int=7)
MOST_BYTES = 1 << 20


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_FIRST_SECONDS", 0.0)


def subscription(*metrics: str, **more: object) -> Callable[[Request], Answer]:
    return lambda _: {
        "client_instance_id": ID,
        "subscription_id": 5,
        "accepted_compression_types": [9, Compression.LZ4],
        "push_interval_ms": 10,
        "requested_metrics": metrics,
        **more,
    }


def pushed(request: Request) -> dict[Series, Value]:
    return series(decoded(request.values.compression_type, request.values.metrics, MOST_BYTES))


async def test_a_producer_pushes_what_is_asked_for_until_it_stops(
    broker: ScriptedBroker,
) -> None:
    broker.scripts |= {GET: subscription("org.apache.kafka.producer.record."), PUSH: lambda _: {}}
    async with Producer(bootstrap_servers=broker.address):
        await until(lambda: len(broker.seen(PUSH)) > 2)
    [asked] = broker.seen(GET)
    assert asked.values.client_instance_id == UUID(int=0)
    first, *_, last = broker.seen(PUSH)
    sent = first.values
    assert (sent.client_instance_id, sent.subscription_id, sent.compression_type) == (ID, 5, Compression.LZ4)
    names = {series.name: value for series, value in pushed(first).items()}
    assert names["org.apache.kafka.producer.record.error.rate"] == Value(0.0, False)
    assert names["org.apache.kafka.producer.record.error.total"] == Value(0.0, True)
    assert all(name.startswith("org.apache.kafka.producer.record.") for name in names)
    assert [first.values.terminating, last.values.terminating] == [False, True]


async def test_a_consumer_names_its_group_and_its_lag(broker: ScriptedBroker) -> None:
    broker.scripts |= {GET: subscription("*"), PUSH: lambda _: {}}
    async with Consumer(bootstrap_servers=broker.address, group_id="g"):
        await until(lambda: broker.seen(PUSH))
    series = pushed(broker.seen(PUSH)[0])
    assert Series("org.apache.kafka.consumer.fetch.manager.records.lag.max", (("group", "g"),)) in series


async def test_without_a_subscription_or_when_told_so_nothing_is_pushed(broker: ScriptedBroker) -> None:
    async with Producer(bootstrap_servers=broker.address):
        await until(lambda: broker.seen(GET))
    async with Producer(bootstrap_servers=broker.address, enable_metrics_push=False) as quiet:
        await quiet.partitions_for("t")
    assert (len(broker.seen(GET)), broker.seen(PUSH)) == (1, [])


async def test_a_broker_without_telemetry_is_not_asked(broker: ScriptedBroker) -> None:
    broker.versions |= {"GetTelemetrySubscriptions": (9, 9)}
    async with Producer(bootstrap_servers=broker.address) as producer:
        task = producer._telemetry._task
        assert task is not None
        await asyncio.wait([task])
    assert broker.seen(GET) == []


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.TELEMETRY_TOO_LARGE])
async def test_a_refused_push_makes_the_client_ask_again_with_its_id(
    broker: ScriptedBroker, code: ErrorCode
) -> None:
    broker.scripts |= {GET: subscription("*"), PUSH: lambda _: {"error_code": code}}
    async with Producer(bootstrap_servers=broker.address):
        await until(lambda: len(broker.seen(GET)) > 1)
    assert broker.seen(GET)[1].values.client_instance_id == ID


async def test_to_a_broker_that_adds_up_only_what_is_new_is_pushed(broker: ScriptedBroker) -> None:
    broker.scripts |= {GET: subscription("*", delta_temporality=True), PUSH: lambda _: {}}
    async with Producer(bootstrap_servers=broker.address) as producer:
        await producer.partitions_for("t")
        await until(lambda: len(broker.seen(PUSH)) > 3)
        total = producer.metrics()["request-total"]
    numbers = [
        value.number
        for request in broker.seen(PUSH)
        for series, value in pushed(request).items()
        if series.name == "org.apache.kafka.producer.request.total"
    ]
    assert sum(numbers[:4]) <= total < sum(numbers) + 2


@pytest.mark.parametrize("codec", Compression)
def test_metrics_are_gauges_and_totals_monotonic_sums(codec: Compression) -> None:
    sent = encode({"a.rate": 1.5, "a.total": 2.0}, {"group_id": "g"}, is_delta=False, codec=codec)
    group = (("group", "g"),)
    assert series(decoded(codec, sent, MOST_BYTES)) == {
        Series("a.rate", group): Value(1.5, False),
        Series("a.total", group): Value(2.0, True),
    }
