"""Java's own clients push their metrics (KIP-714), as `make frameworks` runs them: operators see the errors
of a producer behind a network that is broken, and ask for them with Kafka's own tool.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from faults.proxy import FaultProxy
from tests.conformance.client_site import TOPIC, Site
from tests.conformance.telemetry import until_gone, until_shown
from tests.frameworks.java import fetch_jars, java
from tests.frameworks.java_client import jvm_with_kafka
from tests.waiting import DEADLINE_SECONDS

_STRINGS = "org.apache.kafka.common.serialization.String"
_TOOL = "org.apache.kafka.tools.ClientMetricsCommand"
_OF_PRODUCER = "kafka_client_producer_record_"
_INTERVAL_MS = 20_000
"""Longer than the network is broken: after a push without an answer, Java waits for five minutes."""


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    fetch_jars()
    with jvm_with_kafka() as running:
        yield running


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with FaultProxy("127.0.0.1", 0) as proxy:
        made = Site(proxy, tmp_path / "data")
        await made.start()
        try:
            yield made
        finally:
            await made.broker.stop()


async def tool(site: Site, *arguments: str) -> str:
    """What kafka-client-metrics prints."""
    command = java(_TOOL, "--bootstrap-server", site.address, *arguments)
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


async def test_an_operator_sees_the_errors_of_a_java_producer_through_a_broken_network(
    site: Site, jvm: Any
) -> None:
    await site.create()
    given = ("--name", "all", "--metrics", "org.apache.kafka.producer.", "--interval", str(_INTERVAL_MS))
    await tool(site, "--alter", *given)
    assert "all" in (await tool(site, "--list")).split()
    assert f"interval.ms={_INTERVAL_MS}" in await tool(site, "--describe", "--name", "all")
    clients, port = jvm.org.apache.kafka.clients, site.broker.http_port
    settings = {
        "bootstrap.servers": site.address,
        "client.id": "orders",
        "linger.ms": "0",
        "request.timeout.ms": "3000",
        "delivery.timeout.ms": "6000",
        **{f"{part}.serializer": f"{_STRINGS}Serializer" for part in ("key", "value")},
    }
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS

    def send(value: str) -> None:
        producer.send(clients.producer.ProducerRecord(TOPIC, value)).get(int(DEADLINE_SECONDS), seconds)

    with closing(await asyncio.to_thread(clients.producer.KafkaProducer, settings)) as producer:
        await asyncio.to_thread(send, "stored")
        await until_shown(port, "orders", f"{_OF_PRODUCER}send_total", 1)
        site.proxy.hold_responses()
        with pytest.raises(Py4JJavaError):
            await asyncio.to_thread(send, "uncertain")
        site.proxy.heal()
        found = await until_shown(port, "orders", f"{_OF_PRODUCER}error_total", 1)
        assert found[f"{_OF_PRODUCER}error_rate"] > 0
        assert found[f"{_OF_PRODUCER}retry_total"] >= 1
        await tool(site, "--delete", "--name", "all")
    await until_gone(port, "orders")
