"""Clients push their metrics (KIP-714), so an operator sees how they fare without access to them."""

import asyncio
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import Consumer, Producer

from tests.conformance.client_site import TOPIC, Site
from tests.conformance.telemetry import subscribe, until_gone, until_shown
from tests.unit.broker.telemetry.collector import collector
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.testing.embedded import EmbeddedBroker
from tidelog.client import Admin, DeliveryError
from tidelog.client import Producer as TidelogProducer

OF_PRODUCER = "kafka_client_producer_"
DELAY_MS = 500


_PROGRAM = """
import asyncio, sys
from tidelog.broker.testing.embedded import EmbeddedBroker
from tidelog.client import Producer

def loaded():
    late = ("google.protobuf", "opentelemetry", "tidelog.broker.telemetry")
    return [each for each in late if each in sys.modules]

async def main():
    async with EmbeddedBroker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await (await producer.send("t", b"x"))
        print(loaded(), file=sys.stderr)
        await producer._telemetry._ask()
        print(loaded(), file=sys.stderr)

asyncio.run(main())
"""


def test_nothing_is_imported_before_a_client_asks_and_no_format_before_one_pushes() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["[]", "['tidelog.broker.telemetry']"]


def page_of_clients(port: int | None) -> str:
    url = f"http://127.0.0.1:{port}/console/clients"
    with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as answer:
        return str(answer.read().decode())


@asynccontextmanager
async def working(producer: Producer) -> AsyncIterator[None]:
    """It sends records until the block ends."""
    is_over = False

    def send() -> None:
        while not is_over:
            producer.produce(TOPIC, b"x")
            producer.poll(0.01)

    work = asyncio.create_task(asyncio.to_thread(send))
    try:
        yield
    finally:
        is_over = True
        await work


async def test_an_operator_sees_how_slow_the_network_of_librdkafka_is(site: Site) -> None:
    await site.create()
    async with site.admin() as admin:
        await subscribe(admin)
    settings = {"bootstrap.servers": site.address, "client.id": "orders"}
    producer, port = Producer(settings), site.broker.http_port
    async with working(producer):
        await until_shown(port, "orders", f"{OF_PRODUCER}node_request_latency_max", 0)
        site.proxy.delay_ms = DELAY_MS
        site.proxy.cut_connections()
        await until_shown(port, "orders", f"{OF_PRODUCER}node_request_latency_max", DELAY_MS)
        site.proxy.heal()
    await asyncio.to_thread(producer.flush)


async def test_a_consumer_of_librdkafka_shows_its_group_and_ends_with_its_last_push(site: Site) -> None:
    await site.create()
    async with site.admin() as admin:
        await subscribe(admin, "org.apache.kafka.consumer.coordinator.")
    settings = {"bootstrap.servers": site.address, "client.id": "billing", "group.id": "g"}
    consumer, port = Consumer(settings), site.broker.http_port
    consumer.subscribe([TOPIC])
    reading = asyncio.create_task(asyncio.to_thread(consumer.poll, 5.0))
    found = await until_shown(port, "billing", "kafka_client_consumer_coordinator_assigned_partitions", 1)
    assert all(each.startswith("kafka_client_consumer_coordinator_") for each in found)
    await reading
    await asyncio.to_thread(consumer.close)
    del consumer
    await until_gone(port, "billing")


async def test_the_errors_of_our_producer_are_seen_while_its_network_is_broken(site: Site) -> None:
    await site.create()
    async with site.admin() as admin:
        await subscribe(admin)
    async with site.producer(client_id="ours", delivery_timeout_ms=200) as producer:
        delivered = await producer.send(TOPIC, b"stored")
        await delivered
        port, rate = site.broker.http_port, f"{OF_PRODUCER}record_error_rate"
        assert (await until_shown(port, "ours", rate, 0))[rate] == 0
        site.proxy.hold_responses()
        with pytest.raises(DeliveryError):
            await (await producer.send(TOPIC, b"uncertain"))
        site.proxy.release_responses()
        found = await until_shown(port, "ours", rate, 0.001)
        assert found[f"{OF_PRODUCER}record_error_total"] == 1
        assert " 1 errors (" in " ".join((await asyncio.to_thread(page_of_clients, port)).split())
    await until_gone(port, "ours")


async def test_pushes_are_passed_on_to_an_opentelemetry_endpoint_with_the_client_they_are_of() -> None:
    async with (
        collector() as endpoint,
        EmbeddedBroker(settings={"telemetry.otlp.endpoint": endpoint.endpoint}) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        await subscribe(admin)
        async with TidelogProducer(bootstrap_servers=broker.bootstrap_servers, client_id="ours") as producer:
            await (await producer.send(TOPIC, b"x"))
            async with asyncio.timeout(DEADLINE_SECONDS):
                while True:
                    pushed = await endpoint.taken.get()
                    [resource] = pushed.resource_metrics
                    of = {each.key: each.value.string_value for each in resource.resource.attributes}
                    if of["client_id"] == "ours":
                        break
        names = {each.name for scope in resource.scope_metrics for each in scope.metrics}
        assert of["client_software_name"] == "tidelog"
        assert of["client_source_address"] == "127.0.0.1"
        assert "org.apache.kafka.producer.record.error.rate" in names
