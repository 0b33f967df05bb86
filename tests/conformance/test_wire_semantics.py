"""A running broker, asked with raw requests over sockets: one test for each rule that clients live by.

The flows are those of idempotent producers whose network breaks. A lost acknowledgement is a connection that
is cut before the answer is read; a lost request is one that was never sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.app import Broker
from broker.config import BrokerConfig
from faults.process import BrokerProcess
from protocol.errors import ErrorCode
from protocol.framing import decode_response_header, encode_request_frame
from protocol.hot import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    ProducePartitionResult,
    ProduceRequest,
    decode_fetch_response,
    decode_produce_response,
    encode_fetch_request,
    encode_produce_request,
)
from protocol.records import RecordBatchBuilder, decode_batch, iter_batches
from protocol.schema import ApiKey, decode_response, encode_request
from protocol.types import MAX_SEQUENCE

PRODUCE_VERSION, FETCH_VERSION = 9, 11
SECONDS = 20
NOW_MS = 1_700_000_000_000
Batch = bytes
Start = Callable[..., Awaitable[Broker]]


class RawClient:
    """One connection that sends what it is told and reads answers in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sent: list[tuple[int, int, int]] = []
        self._correlation_id = 0

    async def send(self, key: ApiKey, version: int, body: Any) -> None:
        """Send one request; `body` is encoded, or buffers."""
        self._correlation_id += 1
        self._sent.append((self._correlation_id, key, version))
        self._writer.writelines(encode_request_frame(key, version, self._correlation_id, "raw", body))
        await self._writer.drain()

    async def receive(self) -> Any:
        """The answer to the oldest request not answered yet."""
        expected, key, version = self._sent.pop(0)
        async with asyncio.timeout(SECONDS):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            frame = await self._reader.readexactly(size)
        correlation_id, position = decode_response_header(key, version, frame)
        assert correlation_id == expected
        body = frame[position:]
        if key == ApiKey.PRODUCE:
            return decode_produce_response(version, body)
        if key == ApiKey.FETCH:
            return decode_fetch_response(version, memoryview(body))
        return decode_response(key, version, body)

    async def ask(self, key: ApiKey, version: int, values: Mapping[str, Any] | None = None) -> Any:
        await self.send(key, version, encode_request(key, version, values or {}))
        return await self.receive()

    async def send_batch(self, batch: Batch, *, topic: str = "t", acks: int = -1) -> None:
        request = ProduceRequest(None, acks, 30_000, [(topic, [(0, batch)])])
        await self.send(ApiKey.PRODUCE, PRODUCE_VERSION, encode_produce_request(PRODUCE_VERSION, request))

    async def receive_result(self) -> ProducePartitionResult:
        answer = await self.receive()
        result = answer.topics[0][1][0]
        assert isinstance(result, ProducePartitionResult)
        return result

    async def produce(self, batch: Batch, **more: Any) -> tuple[int, int]:
        """(error code, base offset) of one batch."""
        await self.send_batch(batch, **more)
        result = await self.receive_result()
        return result.error_code, result.base_offset

    async def fetch(self, offset: int = 0, *, max_wait_ms: int = 0, topic: str = "t") -> FetchPartitionResult:
        partition = FetchPartition(0, -1, offset, -1, -1, 1 << 20)
        request = FetchRequest(-1, max_wait_ms, 1, 1 << 20, 0, 0, -1, [(topic, [partition])])
        await self.send(ApiKey.FETCH, FETCH_VERSION, encode_fetch_request(FETCH_VERSION, request))
        answer = await self.receive()
        assert isinstance(answer, FetchResponse)
        return answer.topics[0][1][0]

    async def log(self) -> list[bytes]:
        """Every value of the topic `t`, in order; their offsets follow each other from 0."""
        records = (await self.fetch()).records
        assert isinstance(records, bytes | memoryview)
        data = bytes(records)
        values, offsets = [], []
        for position, header in iter_batches(data):
            for record in decode_batch(data[position : position + header.size_bytes]):
                values.append(record.value or b"")
                offsets.append(record.offset)
        assert offsets == list(range(len(offsets)))
        return values

    async def producer_id(self) -> int:
        answer = await self.ask(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None})
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
        return int(answer.producer_id)

    async def create(self, name: str = "t") -> None:
        wanted = {"name": name, "num_partitions": 1, "replication_factor": 1}
        answer = await self.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [wanted]})
        assert answer.topics[0].error_code == ErrorCode.NONE

    async def close(self) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    def cut(self) -> None:
        """End the connection without a farewell, answers unread."""
        self._writer.transport.abort()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[RawClient]:
    client = RawClient(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield client
    finally:
        await client.close()


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


def batch(value: str, producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1) -> Batch:
    builder = RecordBatchBuilder()
    for number in range(count):
        builder.append(NOW_MS, None, value.encode() if count == 1 else f"{value}{number}".encode())
    return bytes(builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def batches(names: str, producer_id: int, *, first: int = 0, epoch: int = 0) -> list[Batch]:
    return [batch(name, producer_id, first + number, epoch=epoch) for number, name in enumerate(names)]


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


async def until(condition: Callable[[], object]) -> None:
    """Return when the condition holds; TimeoutError when it never does."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110  (a broker has no event for what is asked here)
            await asyncio.sleep(0.001)


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


async def test_kill_9_with_five_in_flight_stores_each_once_in_order(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data")
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
    await client.send(ApiKey.API_VERSIONS, 3, encode_request(ApiKey.API_VERSIONS, 3, {}))
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
