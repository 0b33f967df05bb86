"""A running broker, asked with raw requests over sockets: one test for each rule that clients live by.

The flows are those of idempotent producers whose network breaks. A lost acknowledgement is a connection that
is cut before the answer is read; a lost request is one that was never sent.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from faults.process import BrokerProcess
from tests.conformance.raw import Batch, RawClient, batch, batches, connected
from tests.waiting import until
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import MAX_SEQUENCE

Start = Callable[..., Awaitable[Broker]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a broker on the test's folder; stops it at the end."""
    running: list[Broker] = []

    async def start_one(**settings: Any) -> Broker:
        broker = await Broker.start(
            BrokerConfig(data_dir=tmp_path / "data", port=0, http_port=-1, **settings)
        )
        running.append(broker)
        return broker

    yield start_one
    for broker in running:
        await broker.stop()


@pytest.fixture
async def client(start: Start) -> AsyncIterator[RawClient]:
    broker = await start()
    async with connected(broker.port) as connection:
        await connection.create()
        yield connection


async def pipelined(client: RawClient, wanted: list[Batch]) -> list[tuple[int, int]]:
    """Send all before the first answer is read, as a producer with requests in flight does."""
    for one in wanted:
        await client.send_batch(one)
    results = [await client.receive_result() for _ in wanted]
    return [(result.error_code, result.base_offset) for result in results]


async def test_success_each_once_in_order(client: RawClient) -> None:
    producer_id = await client.producer_id()
    assert await pipelined(client, batches("ABC", producer_id)) == [(0, 0), (0, 1), (0, 2)]
    assert await pipelined(client, batches("DE", producer_id, first=3)) == [(0, 3), (0, 4)]
    assert await client.log() == [b"A", b"B", b"C", b"D", b"E"]


async def test_lost_acks_are_acknowledged_again_with_the_first_offsets(start: Start) -> None:
    broker = await start()
    async with connected(broker.port) as client:
        await client.create()
        producer_id = await client.producer_id()
        sent = batches("ABCDE", producer_id)
        assert len(await pipelined(client, sent[:3])) == 3
        for one in sent[3:]:
            await client.send_batch(one)
        await until(lambda: broker.services.replicas["t", 0].log.end_offset == 5)
        client.cut()
    async with connected(broker.port) as client:
        assert await pipelined(client, sent[3:]) == [(0, 3), (0, 4)]
        assert await client.log() == [b"A", b"B", b"C", b"D", b"E"]


async def test_a_lost_request_makes_the_later_ones_out_of_order(client: RawClient) -> None:
    producer_id = await client.producer_id()
    a, b, c, d, e = batches("ABCDE", producer_id)
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await pipelined(client, [a, b, d, e]) == [(0, 0), (0, 1), (out_of_order, -1), (out_of_order, -1)]
    assert await pipelined(client, [c, d, e]) == [(0, 2), (0, 3), (0, 4)]
    assert await client.log() == [b"A", b"B", b"C", b"D", b"E"]


async def test_a_cache_miss_is_a_duplicate_below_the_window(client: RawClient) -> None:
    producer_id = await client.producer_id()
    six = batches("ABCDEF", producer_id)
    assert len(await pipelined(client, six)) == 6
    assert await client.produce(six[0]) == (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
    assert await client.produce(six[1]) == (ErrorCode.NONE, 1)
    assert await client.log() == [b"A", b"B", b"C", b"D", b"E", b"F"]


async def test_a_partial_overlap_is_out_of_order(client: RawClient) -> None:
    producer_id = await client.producer_id()
    await client.produce(batch("a", producer_id, 0, count=3))
    overlapping = batch("b", producer_id, 2, count=3)
    assert (await client.produce(overlapping))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await client.log() == [b"a0", b"a1", b"a2"]


async def test_a_zombie_is_fenced_and_the_new_one_unaffected(client: RawClient) -> None:
    producer_id = await client.producer_id()
    assert await client.produce(batch("old", producer_id, 0)) == (0, 0)
    assert await client.produce(batch("new", producer_id, 0, epoch=1)) == (0, 1)
    assert await client.produce(batch("zombie", producer_id, 1)) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert await client.produce(batch("newer", producer_id, 1, epoch=1)) == (0, 2)
    assert await client.log() == [b"old", b"new", b"newer"]


async def test_after_the_last_sequence_comes_0(start: Start) -> None:
    broker = await start(producer_id_unknown_sequence="accept")
    async with connected(broker.port) as client:
        await client.create()
        producer_id = await client.producer_id()
        across = batch("a", producer_id, MAX_SEQUENCE - 9, count=20)
        assert await client.produce(across) == (0, 0)
        assert await client.produce(across) == (0, 0)
        assert await client.produce(batch("b", producer_id, 10)) == (0, 20)
        assert await client.produce(across) == (0, 0)
        last = batch("c", producer_id + 1, MAX_SEQUENCE)
        assert await client.produce(last) == (0, 21)
        assert await client.produce(batch("d", producer_id + 1, 0)) == (0, 22)


async def test_kill_9_with_five_in_flight_stores_each_once_in_order(tmp_path: Path) -> None:
    """Though nothing was made durable: what the system has in memory outlives the process."""
    process = BrokerProcess(tmp_path / "data", settings={"acks.all.durable": "false"})
    try:
        await process.start()
        async with connected(process.port) as client:
            await client.create()
            producer_id = await client.producer_id()
            five = batches("ABCDE", producer_id)
            for one in five:
                await client.send_batch(one)
            await process.kill_9()
        await process.start()
        async with connected(process.port) as client:
            assert await pipelined(client, five) == [(0, offset) for offset in range(5)]
            assert await client.log() == [b"A", b"B", b"C", b"D", b"E"]
            assert await client.producer_id() > producer_id
    finally:
        await process.kill_9()
