"""Our client and broker processes that die, move to another port, or stop answering."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.conformance.several import BrokerProcess
from tests.ports import free_address
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import (
    Admin,
    BrokerUnavailableError,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)

TOPIC = "events"
FIRST = TopicPartition(TOPIC, 0)
SECONDS = DEADLINE_SECONDS


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    async with BrokerProcess(tmp_path / "data") as started:
        async with Admin(bootstrap_servers=address(started.port)) as admin:
            await admin.create_topics([NewTopic(TOPIC, 1, 1)])
        yield started


def address(port: int) -> str:
    return f"127.0.0.1:{port}"


async def through(servers: list[str], trouble: Callable[[], Awaitable[None]]) -> None:
    """Send and read while `trouble` happens in the middle; every record must come once, in its place."""
    count = 400
    sent = [b"%05d" % number * 20 for number in range(count)]
    async with (
        asyncio.timeout(SECONDS),
        Producer(bootstrap_servers=servers, max_batch_size=1_000, retry_backoff_ms=10) as producer,
        Consumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        reading = asyncio.create_task(read(consumer, count))
        deliveries = [await producer.send(TOPIC, value) for value in sent[: count // 2]]
        troubling = asyncio.ensure_future(trouble())
        deliveries += [await producer.send(TOPIC, value) for value in sent[count // 2 :]]
        await troubling
        metadata = [await delivery for delivery in deliveries]
        assert [each.offset for each in metadata] == list(range(count))
        assert {each.producer_epoch for each in metadata} == {0}
        assert await reading == list(enumerate(sent))


async def read(consumer: Consumer, count: int) -> list[tuple[int, object]]:
    records = [await consumer.getone() for _ in range(count)]
    return [(record.offset, record.value) for record in records]


async def test_a_broker_that_comes_back_on_another_port_is_found_by_the_second_server(
    process: BrokerProcess,
) -> None:
    servers = [address(process.port), free_address()]

    async def trouble() -> None:
        await process.kill_9()
        process.port = int(servers[1].rpartition(":")[2])
        await process.start()

    await through(servers, trouble)
    assert address(process.port) == servers[1]


async def test_a_broker_that_stops_answering_is_left_after_the_request_timeout_and_found_again(
    process: BrokerProcess,
) -> None:
    servers = address(process.port)
    async with (
        asyncio.timeout(SECONDS),
        Producer(bootstrap_servers=servers, request_timeout_ms=4_000) as producer,
        Consumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        await producer.send_and_wait(TOPIC, b"before")
        silent = await producer._cluster.connected(1)
        process.pause()
        deliveries = [await producer.send(TOPIC, b"meanwhile") for _ in range(3)]
        await until(lambda: not silent.is_open)
        with pytest.raises(BrokerUnavailableError, match=f"no broker of {servers} answered within 200 ms"):
            await Admin(bootstrap_servers=servers, request_timeout_ms=200).start()
        assert not any(delivery.done() for delivery in deliveries)
        process.resume()
        assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3]
        assert [value for _, value in await read(consumer, 4)] == [b"before", *[b"meanwhile"] * 3]
        assert await consumer.end_offsets([FIRST]) == {FIRST: 4}
