"""Raw requests over a socket to a running broker, for what no client library lets a test say."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from faults.wire import FETCH_VERSION, PRODUCE_VERSION, Wire
from tests.unit.broker.handlers.transactional import transactional_batch
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.hot import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    ProducePartitionResult,
    ProduceRequest,
    encode_fetch_request,
    encode_produce_request,
)
from tidelog.protocol.records import RecordBatchBuilder, decode_batch, iter_batches
from tidelog.protocol.schema import ApiKey, encode_request
from tidelog.protocol.types import Buffer

SECONDS = DEADLINE_SECONDS
NOW_MS = 1_700_000_000_000
Batch = bytes


class RawClient(Wire):
    """A connection with words for what tests ask, most of it of the topic `t`."""

    async def send_request(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> None:
        await self.send(key, version, encode_request(key, version, values))

    async def send_together(self, requests: Iterable[tuple[ApiKey, int, Mapping[str, Any]]]) -> None:
        """Send several requests in one write, so that they arrive together."""
        frames: list[Buffer] = []
        for key, version, values in requests:
            self._correlation_id += 1
            self._sent.append((self._correlation_id, key, version))
            body = encode_request(key, version, values)
            frames += encode_request_frame(key, version, self._correlation_id, "raw", body)
        self._writer.write(b"".join(frames))
        await self._writer.drain()

    async def send_batch(
        self,
        batch: Batch,
        *,
        topic: str = "t",
        acks: int = -1,
        transactional_id: str | None = None,
        version: int = PRODUCE_VERSION,
    ) -> None:
        request = ProduceRequest(transactional_id, acks, 30_000, [(topic, [(0, batch)])])
        await self.send(ApiKey.PRODUCE, version, encode_produce_request(version, request))

    def cut(self) -> None:
        """End the connection without a farewell, answers unread."""
        self._writer.transport.abort()

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

    async def begin(self, name: str, topic: str, *, is_prepared: bool = False) -> Any:
        """A transaction with one record, perhaps prepared; the answer to its InitProducerId."""
        await self.create_topic(topic, 1)
        await self.ask(ApiKey.FIND_COORDINATOR, 3, {"key": name, "key_type": 1})
        wanted = {"transactional_id": name, "transaction_timeout_ms": 600_000, "enable2_pc": is_prepared}
        given = await self.ask(ApiKey.INIT_PRODUCER_ID, 6, wanted)
        if not given.error_code:
            records = transactional_batch(Producer(given.producer_id, given.producer_epoch))
            await self.send_batch(records, topic=topic, transactional_id=name, version=12)
            assert (await self.receive_result()).error_code == ErrorCode.NONE
        return given

    async def create(self, name: str = "t") -> None:
        wanted = {"name": name, "num_partitions": 1, "replication_factor": 1}
        answer = await self.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [wanted]})
        assert answer.topics[0].error_code == ErrorCode.NONE

    async def closed(self) -> bool:
        """Whether the broker ends the connection without another byte."""
        async with asyncio.timeout(SECONDS):
            return await self._reader.read() == b""


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[RawClient]:
    client = RawClient(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield client
    finally:
        await client.close()


def batch(value: str, producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1) -> Batch:
    builder = RecordBatchBuilder()
    for number in range(count):
        builder.append(NOW_MS, None, value.encode() if count == 1 else f"{value}{number}".encode())
    return bytes(builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def batches(names: str, producer_id: int, *, first: int = 0, epoch: int = 0) -> list[Batch]:
    return [batch(name, producer_id, first + number, epoch=epoch) for number, name in enumerate(names)]
