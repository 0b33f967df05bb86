"""A test of an application whose broker is a container."""

from collections.abc import Iterator

import pytest

from tidelog import Consumer, Producer
from tidelog.testcontainers import TidelogContainer


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    with TidelogContainer("tidelog:0.1.0").with_env("TIDELOG_TOPICS", "orders:3") as container:
        yield container.get_bootstrap_server()


@pytest.mark.asyncio
async def test_an_order_is_read_back(broker: str) -> None:
    async with Producer(bootstrap_servers=broker) as producer:
        await producer.send_and_wait("orders", b"order 1")
    async with Consumer("orders", bootstrap_servers=broker, auto_offset_reset="earliest") as consumer:
        assert (await consumer.getone()).value == b"order 1"
