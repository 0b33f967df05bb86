"""A test of an application whose broker is a container."""

from collections.abc import Iterator

import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HealthcheckWaitStrategy

from tidelog import Consumer, Producer


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    # The port must be the one that the broker advertises.
    container = DockerContainer("tidelog:0.1.0").with_bind_ports(9092, 9092)
    with container.waiting_for(HealthcheckWaitStrategy()):
        yield "localhost:9092"


@pytest.mark.asyncio
async def test_an_order_is_read_back(broker: str) -> None:
    async with Producer(bootstrap_servers=broker) as producer:
        await producer.send_and_wait("orders", b"order 1")
    async with Consumer("orders", bootstrap_servers=broker, auto_offset_reset="earliest") as consumer:
        assert (await consumer.getone()).value == b"order 1"
