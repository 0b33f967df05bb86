"""One connection that sends requests as the caller gives them, for those that no client library can send.

Owns correlation ids and the order of answers; it retries nothing and hides no error code. Invariant: answers
are taken in the order of the requests, as the broker sends them.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self, cast

from tidelog.protocol import hot
from tidelog.protocol.framing import decode_response_header, encode_request_frame
from tidelog.protocol.schema import ApiKey, decode_response, encode_request
from tidelog.protocol.types import Buffer

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 11
LIST_OFFSETS_VERSION: Final = 8
ANSWER_SECONDS: Final = 120.0
_FETCH_BYTES: Final = 1 << 20
_PRODUCE_MS: Final = 30_000
_EARLIEST: Final = -2
_LATEST: Final = -1


class Wire:
    """Made by `connected`. Every method raises ConnectionError, IncompleteReadError (the broker is gone) or
    TimeoutError (it does not answer)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sent: list[tuple[int, int, int]] = []
        self._correlation_id = 0

    @classmethod
    @asynccontextmanager
    async def connected(cls, port: int, host: str = "127.0.0.1") -> AsyncIterator[Self]:
        """A connection to a broker, closed at the end."""
        wire = cls(*await asyncio.open_connection(host, port))
        try:
            yield wire
        finally:
            await wire.close()

    async def send(self, key: ApiKey, version: int, body: Buffer | list[Buffer]) -> None:
        """Send one request whose body is encoded."""
        self._correlation_id += 1
        self._sent.append((self._correlation_id, key, version))
        self._writer.writelines(encode_request_frame(key, version, self._correlation_id, "wire", body))
        await self._writer.drain()

    async def receive_body(self) -> tuple[int, int, bytes]:
        """API, version and bytes of the answer to the oldest request that was not answered yet."""
        expected, key, version = self._sent.pop(0)
        async with asyncio.timeout(ANSWER_SECONDS):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            frame = await self._reader.readexactly(size)
        correlation_id, position = decode_response_header(key, version, frame)
        if correlation_id != expected:
            raise ConnectionError(f"expected the answer to request {expected}, got that to {correlation_id}")
        return key, version, frame[position:]

    async def receive(self) -> Any:
        """The next answer as values."""
        key, version, body = await self.receive_body()
        if key == ApiKey.PRODUCE:
            return hot.decode_produce_response(version, body)
        if key == ApiKey.FETCH:
            return hot.decode_fetch_response(version, memoryview(body))
        return decode_response(key, version, body)

    async def ask(self, key: ApiKey, version: int, values: Mapping[str, Any] | None = None) -> Any:
        """Send one request of values and wait for its answer."""
        await self.send(key, version, encode_request(key, version, values or {}))
        return await self.receive()

    async def append(
        self, topic: str, batches: Mapping[int, Buffer], transactional_id: str | None = None
    ) -> dict[int, hot.ProducePartitionResult]:
        """Send one batch to each partition in one request; the answers by partition."""
        request = hot.ProduceRequest(transactional_id, -1, _PRODUCE_MS, [(topic, list(batches.items()))])
        await self.send(ApiKey.PRODUCE, PRODUCE_VERSION, hot.encode_produce_request(PRODUCE_VERSION, request))
        answer = await self.receive()
        return {result.index: result for result in answer.topics[0][1]}

    async def read(
        self, topic: str, partition: int, offset: int, max_bytes: int = _FETCH_BYTES, isolation_level: int = 0
    ) -> hot.FetchPartitionResult:
        """What the broker answers, at once, to a Fetch from `offset`."""
        wanted = hot.FetchPartition(partition, -1, offset, -1, -1, max_bytes)
        request = hot.FetchRequest(-1, 0, 0, max_bytes, isolation_level, 0, -1, [(topic, [wanted])])
        await self.send(ApiKey.FETCH, FETCH_VERSION, hot.encode_fetch_request(FETCH_VERSION, request))
        answer = await self.receive()
        return cast(hot.FetchPartitionResult, answer.topics[0][1][0])

    async def offset_at(self, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        """Error code and offset that ListOffsets answers."""
        wanted = {"partition_index": partition, "timestamp": timestamp}
        values = {"replica_id": -1, "topics": [{"name": topic, "partitions": [wanted]}]}
        answer = await self.ask(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, values)
        result = answer.topics[0].partitions[0]
        return int(result.error_code), int(result.offset)

    async def ends(self, topic: str, partition: int) -> tuple[int, int, int]:
        """Error code, first and next offset of a partition; of an error the offsets mean nothing."""
        code, first = await self.offset_at(topic, partition, _EARLIEST)
        if code:
            return code, -1, -1
        code, after_last = await self.offset_at(topic, partition, _LATEST)
        return code, first, after_last

    async def new_producer_id(self) -> tuple[int, int]:
        """Error code and producer id of an InitProducerId."""
        answer = await self.ask(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None})
        return int(answer.error_code), int(answer.producer_id)

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> int:
        """The error code of a CreateTopics."""
        settings = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        wanted = {"name": name, "num_partitions": partitions, "replication_factor": -1, "configs": settings}
        answer = await self.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [wanted], "timeout_ms": _PRODUCE_MS})
        return int(answer.topics[0].error_code)

    async def delete_records(self, topic: str, before: Mapping[int, int]) -> list[int]:
        """The error codes of a DeleteRecords of everything before an offset of each partition."""
        wanted = [{"partition_index": index, "offset": offset} for index, offset in before.items()]
        values = {"topics": [{"name": topic, "partitions": wanted}], "timeout_ms": _PRODUCE_MS}
        answer = await self.ask(ApiKey.DELETE_RECORDS, 1, values)
        return [int(result.error_code) for result in answer.topics[0].partitions]

    async def topic_names(self) -> dict[str, int]:
        """Topic -> number of partitions, as Metadata says."""
        answer = await self.ask(ApiKey.METADATA, 8, {"topics": None})
        return {topic.name: len(topic.partitions) for topic in answer.topics if not topic.error_code}

    async def newest_versions(self) -> dict[int, int]:
        """API -> newest version, as ApiVersions says."""
        answer = await self.ask(ApiKey.API_VERSIONS, 3)
        return {int(each.api_key): int(each.max_version) for each in answer.api_keys}

    async def close(self) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)


def records_of(result: hot.FetchPartitionResult) -> bytes:
    """The bytes that a partition was answered with, whole batches and perhaps a part of one."""
    return bytes(cast(Buffer, result.records or b""))
