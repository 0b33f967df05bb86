"""Batches whose records are not what their header says, sent over a socket: no consumer ever meets one."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.conformance.conftest import RunningBroker
from tests.conformance.peers import Peer
from tests.conformance.peers.aio import AioKafka
from tests.conformance.peers.confluent import ConfluentKafka
from tests.conformance.peers.pure import KafkaPython
from tests.conformance.raw import NOW_MS, batch, connected
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.protocol.compression import Compression, compress
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    Record,
    RecordBatchBuilder,
    decode_batch,
    read_batch_header,
)
from tidelog.protocol.records.header import write_header

PEERS: tuple[Peer, ...] = (ConfluentKafka(), AioKafka(), KafkaPython())
BATCHES = 150
LONG = 20_000


def some_batch(random: Random, codec: Compression) -> bytes:
    """A batch whose records were changed in some bytes, with the right CRC."""
    builder = RecordBatchBuilder()
    size = random.choice([3, 70])
    for number in range(random.choice([1, 3, 40])):
        key = random.choice([None, b"key"])
        headers = (("name", b"value"),) if random.random() < 0.2 else ()
        builder.append(NOW_MS, key, b"%d" % number * random.randint(1, size), headers)
    batch = builder.build()
    records = batch[BATCH_HEADER_SIZE:]
    for _ in range(random.choice([0, 1, 1, 2])):
        place = random.randrange(len(records))
        records[place : place + random.choice([0, 1, 1, 1, 2])] = random.randbytes(
            random.choice([0, 1, 1, 1])
        )
    packed = compress(codec, records)
    if random.random() < 0.2:
        packed = packed[: random.randrange(len(packed))]
    changed = bytearray(batch[:BATCH_HEADER_SIZE] + packed)
    header = read_batch_header(batch)
    write_header(changed, header._replace(batch_length=len(changed) - 12, attributes=codec.value))
    return bytes(changed)


async def send(port: int, topic: str, codec: Compression) -> list[Record]:
    """Many such batches; the records of those that were taken, as they are to be read."""
    random = Random(codec.name)
    taken: list[Record] = []
    async with connected(port) as client:
        for _ in range(BATCHES):
            sent = some_batch(random, codec)
            code, base_offset = await client.produce(sent, topic=topic)
            if code == ErrorCode.NONE:
                assert base_offset == len(taken)
                taken += [
                    record._replace(offset=base_offset + record.offset) for record in decode_batch(sent)
                ]
            else:
                assert code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
    assert len(taken) > BATCHES // 10
    return taken


@pytest.fixture(scope="module")
def stored(broker: RunningBroker) -> dict[str, list[Record]]:
    """Topic of each codec -> what it holds."""
    topics = {f"records-{codec.name.lower()}": codec for codec in Compression}
    PEERS[0].create_topics(broker.address, dict.fromkeys(topics, 1))
    return {topic: asyncio.run(send(broker.broker.port, topic, codec)) for topic, codec in topics.items()}


@pytest.mark.parametrize("reader", PEERS, ids=[peer.name for peer in PEERS])
def test_every_consumer_reads_all_that_was_taken(
    broker: RunningBroker, stored: dict[str, list[Record]], reader: Peer
) -> None:
    found = reader.read(broker.address, {(topic, 0): len(taken) for topic, taken in stored.items()})
    for topic, taken in stored.items():
        assert [(each.offset, each.message.key, each.message.value) for each in found[topic]] == [
            (record.offset, record.key, record.value) for record in taken
        ]


def long_batch(producer_id: int, sequence: int) -> bytes:
    """Takes longer to inspect than the loop may be held."""
    builder = RecordBatchBuilder()
    for number in range(LONG):
        builder.append(NOW_MS, None, bytes(number % 5))
    return bytes(builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=sequence))


async def test_a_batch_that_takes_long_to_inspect_keeps_its_place_among_five_in_flight(
    tmp_path: Path,
) -> None:
    config = BrokerConfig(data_dir=tmp_path, port=0, http_port=-1)
    async with await Broker.start(config) as broker, connected(broker.port) as client:
        await client.create()
        producer_id = await client.producer_id()
        sequence = 0
        for _ in range(5):
            expected = []
            for number in range(5):
                is_long = number in (0, 3)
                expected.append(sequence)
                if is_long:
                    await client.send_batch(long_batch(producer_id, sequence))
                else:
                    await client.send_batch(batch("v", producer_id, sequence))
                sequence += LONG if is_long else 1
            results = [await client.receive_result() for _ in range(5)]
            assert [(each.error_code, each.base_offset) for each in results] == [(0, at) for at in expected]
