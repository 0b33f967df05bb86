"""What documents on Kafka's transactions promise, flow by flow: each test is named after one of them.

The flows of offsets that are committed with results, and of commits whose answers are lost, are in
test_client_transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.conformance.several import EmbeddedBroker
from tests.conformance.test_client_transactions import QUICK, committed, producer
from tests.waiting import DEADLINE_SECONDS
from tidelog.client import Consumer, Producer, ProducerFencedError

HUNG_MS = 2_000


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    quickly = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 20}
    async with EmbeddedBroker(settings=quickly) as running:
        yield running


def reader(broker: EmbeddedBroker, *topics: str, isolation_level: str = "read_committed") -> Consumer:
    return Consumer(
        *topics,
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
        fetch_max_wait_ms=20,
        **QUICK,  # type: ignore[arg-type]
    )


async def values(consumer: Consumer, count: int) -> list[bytes | None]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        return [(await consumer.getone()).value for _ in range(count)]


async def test_who_subscribed_to_half_of_a_transaction_s_topics_gets_half_of_its_records(
    broker: EmbeddedBroker,
) -> None:
    first, second = await broker.create_topic(), await broker.create_topic()
    async with producer(broker) as writer:
        for number in range(3):
            async with writer.transaction():
                await writer.send(first, b"first %d" % number)
                await writer.send(second, b"second %d" % number)
        async with reader(broker, first) as half:
            assert await values(half, 3) == [b"first 0", b"first 1", b"first 2"]
        async with reader(broker, first, second) as whole:
            assert len(await values(whole, 6)) == 6


async def test_a_restarted_producer_keeps_its_producer_id_and_gets_a_later_epoch(
    broker: EmbeddedBroker,
) -> None:
    topic = await broker.create_topic()
    found = []
    for _ in range(3):
        async with producer(broker) as writer, writer.transaction():
            written = await writer.send_and_wait(topic, b"value")
            found.append((written.producer_id, written.producer_epoch))
    assert len({producer_id for producer_id, _ in found}) == 1
    assert found == sorted(set(found))


async def test_a_zombie_can_neither_send_nor_commit_nor_abort(broker: EmbeddedBroker) -> None:
    topic = await broker.create_topic()
    zombies = [producer(broker, f"app-{number}") for number in range(3)]
    successors = []
    for number, zombie in enumerate(zombies):
        await zombie.start()
        await zombie.begin_transaction()
        await zombie.send_and_wait(topic, b"zombie")
        successors.append(producer(broker, f"app-{number}"))
        await successors[-1].start()
    with pytest.raises(ProducerFencedError):
        await (await zombies[0].send(topic, b"again"))
    with pytest.raises(ProducerFencedError):
        await zombies[1].commit_transaction()
    with pytest.raises(ProducerFencedError):
        await zombies[2].abort_transaction()
    for successor in successors:
        async with successor.transaction():
            await successor.send(topic, b"successor")
    for each in (*zombies, *successors):
        await each.stop()
    assert await committed(broker, topic) == [b"successor"] * 3


async def test_a_reader_of_committed_records_gets_none_behind_an_open_transaction_until_it_ends(
    broker: EmbeddedBroker,
) -> None:
    topic = await broker.create_topic()
    async with producer(broker) as writer, Producer(bootstrap_servers=broker.bootstrap_servers) as plain:
        await plain.send_and_wait(topic, b"before")
        await writer.begin_transaction()
        await writer.send_and_wait(topic, b"within")
        await plain.send_and_wait(topic, b"behind")
        async with (
            reader(broker, topic) as strict,
            reader(broker, topic, isolation_level="read_uncommitted") as loose,
        ):
            assert await values(loose, 3) == [b"before", b"within", b"behind"]
            assert await values(strict, 1) == [b"before"]
            assert not await strict.getmany(timeout_ms=100)
            await writer.commit_transaction()
            assert await values(strict, 2) == [b"within", b"behind"]


async def test_a_hung_transaction_is_aborted_after_its_timeout_and_readers_go_on(
    broker: EmbeddedBroker,
) -> None:
    topic = await broker.create_topic()
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as plain, reader(broker, topic) as strict:
        async with producer(broker, transaction_timeout_ms=HUNG_MS) as hung:
            await hung.begin_transaction()
            await hung.send_and_wait(topic, b"hung")
            await plain.send_and_wait(topic, b"behind")
            assert await values(strict, 1) == [b"behind"]
            with pytest.raises(ProducerFencedError):
                await hung.commit_transaction()
        async with producer(broker) as next_one, next_one.transaction():
            await next_one.send(topic, b"next")
        assert await values(strict, 1) == [b"next"]
