"""Our client against Tansu, a Kafka-compatible broker by others, with its in-memory engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.tansu import running_tansu
from tidelog.client import Admin, Consumer, NewTopic, Producer, TopicPartition


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_tansu(tmp_path_factory.mktemp("tansu")) as address:
        yield address


async def read(address: str, topic: str, partitions: int = 1) -> list[object]:
    found: list[object] = []
    async with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        for index in range(partitions):
            key = TopicPartition(topic, index)
            consumer.assign([key])
            end = (await consumer.end_offsets([key]))[key]
            while (await consumer.position(key)) < end:
                for records in (await consumer.getmany(timeout_ms=5_000)).values():
                    found += [record.value for record in records]
    return found


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_what_was_produced_is_consumed_in_order(address: str, compression: str | None) -> None:
    topic = f"plain-{compression}"
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1)])
    values = [b"%04d" % number for number in range(500)]
    async with Producer(
        bootstrap_servers=address, max_batch_size=500, compression_type=compression
    ) as producer:
        deliveries = [await producer.send(topic, value, partition=int(value) % 2) for value in values]
        metadata = [await delivery for delivery in deliveries]
    assert [each.sequence for each in metadata] == [number // 2 for number in range(500)]
    assert {each.producer_epoch for each in metadata} == {0}
    assert await read(address, topic, 2) == values[::2] + values[1::2]


async def test_a_session_is_resumed_from_the_log_where_the_broker_describes_no_producers(
    address: str, tmp_path: Path
) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic("resumed", 1, 1)])
    values = [b"%04d" % number for number in range(60)]
    async with Producer(bootstrap_servers=address, max_batch_size=200) as producer:
        saved = await producer.session()
        for value in values[:35]:
            await producer.send("resumed", value)
    async with Producer(bootstrap_servers=address, max_batch_size=500, session=saved) as producer:
        deliveries = [await producer.send("resumed", value) for value in values]
        assert [(await each).sequence for each in deliveries] == list(range(60))
    assert await read(address, "resumed") == values
