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
    DeliveryTimeoutError,
    DeliveryUncertainError,
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


async def test_a_broker_that_is_killed_and_comes_back_on_its_port(process: BrokerProcess) -> None:
    async def trouble() -> None:
        await process.kill_9()
        await process.start()

    await through([address(process.port)], trouble)


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


async def test_a_producer_whose_broker_never_answers_again_says_what_is_uncertain(
    process: BrokerProcess,
) -> None:
    async with (
        asyncio.timeout(SECONDS),
        Producer(
            bootstrap_servers=address(process.port), request_timeout_ms=3_000, delivery_timeout_ms=5_000
        ) as producer,
    ):
        await producer.send_and_wait(TOPIC, b"before")
        process.pause()
        sent = await producer.send(TOPIC, b"on the wire")
        with pytest.raises(DeliveryUncertainError, match="first sequence 1"):
            await sent
        never_sent = await producer.send(TOPIC, b"kept here")
        with pytest.raises(DeliveryTimeoutError):
            await never_sent


async def test_many_partitions_added_are_found_by_age_alone(process: BrokerProcess) -> None:
    async with (
        asyncio.timeout(SECONDS),
        Producer(bootstrap_servers=address(process.port), metadata_max_age_ms=50) as producer,
        Admin(bootstrap_servers=address(process.port)) as admin,
    ):
        await producer.send_and_wait(TOPIC, b"one partition")
        await admin.create_partitions({TOPIC: 8})
        await until(lambda: len(producer._cluster.image.topics[TOPIC].partitions) == 8)
        deliveries = [await producer.send(TOPIC, b"x", key=b"%d" % key) for key in range(64)]
        assert {(await delivery).partition for delivery in deliveries} == set(range(8))
