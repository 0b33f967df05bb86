"""Readers of committed records, ours and others', see of a log what is committed and stable, and no more.

The log is written by raw requests: transactions of three producers that overlap, and plain batches between
them. The last transaction stays open.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from tests.conformance.conftest import RunningBroker
from tests.conformance.raw import NOW_MS, RawClient, connected
from tests.waiting import DEADLINE_SECONDS
from tidelog.client import ClusterConfig, TopicPartition
from tidelog.client import Consumer as TidelogConsumer
from tidelog.pipeline.arrow.columnar import decode_record_batches
from tidelog.pipeline.offsets import OffsetRange, Place
from tidelog.pipeline.source.fetch import find_logs, read_answers
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import ProduceRequest, encode_produce_request
from tidelog.protocol.records import AbortedTransactions, RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

TOPIC = "t"
PRODUCE_VERSION = 9
Values = list[bytes]


class PermitAll:
    """A coordinator of transactions for a test that plays the coordinator itself."""

    def permits(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int
    ) -> ErrorCode:
        return ErrorCode.NONE


@dataclass
class Written:
    """What the log holds, by offset, and what is to be seen of it."""

    values: dict[int, bytes] = field(default_factory=dict)
    of_open: dict[int, list[int]] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)
    end: int = 0

    @property
    def stable(self) -> int:
        return min((offsets[0] for offsets in self.of_open.values()), default=self.end)

    @property
    def committed(self) -> Values:
        return [
            value
            for offset, value in self.values.items()
            if offset < self.stable and offset not in self.hidden
        ]


class Writer:
    """Plays producers and their coordinator over one connection."""

    def __init__(self, client: RawClient, chance: random.Random) -> None:
        self.client = client
        self.written = Written()
        self._sequences: dict[int, int] = {}
        self._chance = chance

    async def send(self, producer_id: int, *, transactional: bool) -> None:
        written, count = self.written, self._chance.randint(1, 3)
        builder = RecordBatchBuilder()
        for offset in range(written.end, written.end + count):
            written.values[offset] = b"%d of %d" % (offset, producer_id)
            builder.append(NOW_MS, None, written.values[offset])
        sequence = self._sequences.get(producer_id, 0)
        batch = builder.build(
            producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=transactional
        )
        self._sequences[producer_id] = sequence + count
        request = ProduceRequest(
            f"app-{producer_id}" if transactional else None, -1, 30_000, [(TOPIC, [(0, bytes(batch))])]
        )
        body = encode_produce_request(PRODUCE_VERSION, request)
        await self.client.send(ApiKey.PRODUCE, PRODUCE_VERSION, body)
        result = await self.client.receive_result()
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, written.end)
        if transactional:
            written.of_open.setdefault(producer_id, []).extend(range(written.end, written.end + count))
        written.end += count

    async def end(self, producer_id: int, *, commit: bool) -> None:
        marker = {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "transaction_result": commit,
            "topics": [{"name": TOPIC, "partition_indexes": [0]}],
            "coordinator_epoch": 0,
        }
        answer = await self.client.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]})
        assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
        offsets = self.written.of_open.pop(producer_id)
        if not commit:
            self.written.hidden.update(offsets)
        self.written.end += 1


async def write_history(port: int) -> Written:
    chance = random.Random(14)
    async with connected(port) as client:
        wanted = {
            "name": TOPIC,
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "segment.bytes", "value": "1000"}],
        }
        answer = await client.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [wanted]})
        assert answer.topics[0].error_code == ErrorCode.NONE
        *producers, plain = [await client.producer_id() for _ in range(4)]
        writer = Writer(client, chance)
        is_open = writer.written.of_open
        for _ in range(60):
            producer_id = chance.choice([*producers, plain])
            if producer_id in is_open and chance.random() < 0.5:
                await writer.end(producer_id, commit=chance.random() < 0.5)
            else:
                await writer.send(producer_id, transactional=producer_id != plain)
        for producer_id in list(is_open):
            await writer.end(producer_id, commit=False)
        await writer.send(plain, transactional=False)
        await writer.send(producers[0], transactional=True)
        await writer.send(plain, transactional=False)
        return writer.written


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Written]]:
    running = RunningBroker(tmp_path_factory.mktemp("broker"))
    running.broker.services.transaction_verifier = PermitAll()
    written = asyncio.run(write_history(running.broker.port))
    assert written.hidden
    assert written.stable < written.end
    yield running.address, written
    running.stop()


def by_tidelog(address: str, count: int) -> Values:
    async def read() -> Values:
        found: Values = []
        place = TopicPartition(TOPIC, 0)
        async with TidelogConsumer(
            bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([place])
            async with asyncio.timeout(DEADLINE_SECONDS):
                while len(found) < count:
                    found += [(await consumer.getone()).value or b""]
            end = (await consumer.end_offsets([place]))[place]
            assert await consumer.getmany(timeout_ms=200) == {}
            assert await consumer.position(place) == end
        return found

    return asyncio.run(read())


def by_librdkafka(address: str, count: int) -> Values:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ConfluentPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: Values = []
    try:
        while True:
            record = consumer.poll(DEADLINE_SECONDS)
            assert record is not None
            if record.error() is None:
                found.append(record.value())
            elif len(found) >= count:
                return found
    finally:
        consumer.close()


def by_aiokafka(address: str, count: int) -> Values:
    async def read() -> Values:
        consumer = AIOKafkaConsumer(bootstrap_servers=address, isolation_level="read_committed")
        await consumer.start()
        try:
            place = AioPartition(TOPIC, 0)
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            async with asyncio.timeout(DEADLINE_SECONDS):
                found = [(await consumer.getone()).value for _ in range(count)]
            assert await consumer.getmany(timeout_ms=200) == {}
            return found
        finally:
            await consumer.stop()

    return asyncio.run(read())


def by_kafka_python(address: str, count: int) -> Values:
    consumer = KafkaConsumer(
        bootstrap_servers=address, isolation_level="read_committed", consumer_timeout_ms=500
    )
    place = KafkaPartition(TOPIC, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    found: Values = []
    while len(found) < count:
        found += [record.value for record in consumer]
    consumer.close()
    return found


def by_the_source(address: str, count: int) -> Values:
    cluster = ClusterConfig(bootstrap_servers=address)
    place = Place(TOPIC, 0)
    start, end = find_logs(cluster, None, [place], read_committed=True).bounds[place]
    found: Values = []
    for answer in read_answers(cluster, OffsetRange(TOPIC, 0, start, end), read_committed=True):
        hidden = AbortedTransactions(answer.aborted) if answer.aborted else None
        for rows in decode_record_batches(
            answer.data, topic=TOPIC, partition=0, end_offset=end, columns=["value"], batch_filter=hidden
        ):
            found += rows.column("value").to_pylist()
    return found


READERS: list[Callable[[str, int], Values]] = [
    by_tidelog,
    by_librdkafka,
    by_aiokafka,
    by_kafka_python,
    by_the_source,
]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__.removeprefix("by_"))
def test_a_reader_sees_what_is_committed_and_stable_and_nothing_else(
    site: tuple[str, Written], read: Callable[[str, int], Values]
) -> None:
    address, written = site
    assert read(address, len(written.committed)) == written.committed
