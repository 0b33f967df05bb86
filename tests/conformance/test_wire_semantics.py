"""A running broker, asked with raw requests over sockets: one test for each rule that clients live by.

The flows are those of idempotent producers whose network breaks. A lost acknowledgement is a connection that
is cut before the answer is read; a lost request is one that was never sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from faults.process import BrokerProcess
from tests.conformance.raw import PRODUCE_VERSION, SECONDS, Batch, RawClient, batch, batches, connected
from tests.waiting import until
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import ProduceRequest, encode_produce_request
from tidelog.protocol.schema import ApiKey
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


async def test_below_the_window_can_be_answered_as_kafka_does(start: Start) -> None:
    broker = await start(producer_duplicate_below_window=False)
    async with connected(broker.port) as client:
        await client.create()
        six = batches("ABCDEF", await client.producer_id())
        await pipelined(client, six)
        assert (await client.produce(six[0]))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


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


async def test_a_new_epoch_begins_at_sequence_0(client: RawClient) -> None:
    producer_id = await client.producer_id()
    await client.produce(batch("a", producer_id, 0))
    refused = await client.produce(batch("b", producer_id, 1, epoch=1))
    assert refused == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


async def test_an_unknown_producer_that_does_not_begin_at_0_is_refused(client: RawClient) -> None:
    producer_id = await client.producer_id()
    assert await client.produce(batch("a", producer_id, 3)) == (ErrorCode.UNKNOWN_PRODUCER_ID, -1)
    assert await client.produce(batch("a", producer_id, 0)) == (0, 0)


async def test_a_producer_id_that_was_never_issued_is_unknown(client: RawClient) -> None:
    producer_id = await client.producer_id()
    assert await client.produce(batch("a", producer_id + 1, 0)) == (ErrorCode.UNKNOWN_PRODUCER_ID, -1)
    assert (await client.fetch()).high_watermark == 0


async def test_kafkas_own_behaviour_with_unknown_producers_can_be_chosen(start: Start) -> None:
    broker = await start(producer_id_unknown_sequence="accept")
    async with connected(broker.port) as client:
        await client.create()
        assert await client.produce(batch("a", 77, 3)) == (0, 0)


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


async def test_a_new_process_with_the_same_payload_is_stored_again(client: RawClient) -> None:
    first, second = await client.producer_id(), await client.producer_id()
    assert first != second
    assert await client.produce(batch("a", first, 0)) == (0, 0)
    assert await client.produce(batch("a", second, 0)) == (0, 1)
    assert await client.log() == [b"a", b"a"]


async def test_a_restart_keeps_five_batches(start: Start) -> None:
    broker = await start()
    async with connected(broker.port) as client:
        await client.create()
        producer_id = await client.producer_id()
        six = batches("ABCDEF", producer_id)
        await pipelined(client, six)
    await broker.stop()
    broker = await start()
    async with connected(broker.port) as client:
        answers = await pipelined(client, six)
        assert answers == [
            (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1),
            *((0, offset) for offset in range(1, 6)),
        ]
        assert await client.produce(batch("G", producer_id, 6)) == (0, 6)
        assert await client.producer_id() > producer_id
        assert await client.log() == [b"A", b"B", b"C", b"D", b"E", b"F", b"G"]


@pytest.mark.parametrize("acks_all_durable", ["true", "false"])
async def test_kill_9_with_five_in_flight_stores_each_once_in_order(
    tmp_path: Path, acks_all_durable: str
) -> None:
    process = BrokerProcess(tmp_path / "data", settings={"acks.all.durable": acks_all_durable})
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


async def test_answers_come_in_the_order_of_the_requests(client: RawClient) -> None:
    await client.send_batch(batch("a", -1, -1))
    await client.send_request(ApiKey.API_VERSIONS, 3, {})
    await client.send_batch(batch("b", -1, -1))
    assert (await client.receive_result()).base_offset == 0
    assert (await client.receive()).error_code == ErrorCode.NONE
    assert (await client.receive_result()).base_offset == 1


async def test_acks_0_has_no_answer_and_acks_1_one(client: RawClient) -> None:
    request = ProduceRequest(None, 0, 1000, [("t", [(0, batch("a", -1, -1))])])
    await client.send(ApiKey.PRODUCE, PRODUCE_VERSION, encode_produce_request(PRODUCE_VERSION, request))
    client._sent.pop()
    assert await client.produce(batch("b", -1, -1), acks=1) == (0, 1)


async def test_a_long_poll_is_answered_when_the_batch_is_durable(start: Start) -> None:
    broker = await start()
    async with connected(broker.port) as reader, connected(broker.port) as writer:
        await writer.create()
        polling = asyncio.create_task(reader.fetch(max_wait_ms=60_000))
        replica = broker.services.replicas["t", 0]
        await until(lambda: replica._watchers)
        assert await writer.produce(batch("a", -1, -1)) == (0, 0)
        assert (await asyncio.wait_for(polling, SECONDS)).high_watermark == 1


async def test_a_client_that_goes_away_takes_its_long_polls_along(start: Start) -> None:
    broker = await start()
    async with connected(broker.port) as client:
        await client.create()
        replica = broker.services.replicas["t", 0]
        polling = asyncio.create_task(client.fetch(max_wait_ms=60_000))
        await until(lambda: replica._watchers)
        client.cut()
        await asyncio.gather(polling, return_exceptions=True)
        await until(lambda: not replica._watchers)


async def test_metadata_names_the_advertised_address(start: Start) -> None:
    broker = await start(advertised_host="broker.example", advertised_port=1234)
    async with connected(broker.port) as client:
        answer = await client.ask(ApiKey.METADATA, 9, {"topics": []})
        assert [(held.host, held.port) for held in answer.brokers] == [("broker.example", 1234)]


@pytest.mark.parametrize("api_key", [-5, 18, 3])
async def test_bad_bytes_close_only_their_own_connection(start: Start, api_key: int) -> None:
    broker = await start()
    async with connected(broker.port) as other, connected(broker.port) as client:
        await client.send(ApiKey.API_VERSIONS, 0, b"")
        await client.receive()
        client._writer.write(
            b"\0\0\0\x0c" + api_key.to_bytes(2, "big", signed=True) + b"\0\x01\0\0\0\0\x7f\xff\0\0"
        )
        assert await asyncio.wait_for(client._reader.read(), SECONDS) == b""
        assert (await other.ask(ApiKey.API_VERSIONS, 0)).error_code == ErrorCode.NONE
