"""What a type checker knows of the records that a consumer reads: `make types` checks this file too."""

import json
from collections.abc import AsyncIterator
from typing import Any, assert_type

import pytest

from tidelog import Consumer, ConsumerRecord, Producer, TopicPartition
from tidelog.broker.testing.embedded import EmbeddedBroker


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    async with EmbeddedBroker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"5", key=b"key")
        yield broker.bootstrap_servers


def number(raw: bytes | None) -> int:
    return int(raw or b"0")


async def test_without_deserializers_keys_and_values_are_bytes(servers: str) -> None:
    def first(records: list[ConsumerRecord]) -> bytes | None:
        return records[0].value

    async with Consumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        assert_type(consumer, Consumer[bytes | None, bytes | None])
        async for record in consumer:
            assert_type(record, ConsumerRecord[bytes | None, bytes | None])
            assert_type(record.topic_partition, TopicPartition)
            assert first([record]) == b"5"
            break


async def test_a_deserializer_gives_keys_or_values_their_type(servers: str) -> None:
    consumer = Consumer(
        "orders", bootstrap_servers=servers, auto_offset_reset="earliest", value_deserializer=number
    )
    async with consumer:
        record = await consumer.getone()
        assert assert_type(record.value, int) + 1 == 6
        assert assert_type(record.key, bytes | None) == b"key"
        await consumer.seek_to_beginning()
        for records in (await consumer.getmany(timeout_ms=60_000)).values():
            assert [assert_type(each, ConsumerRecord[bytes | None, int]).value for each in records] == [5]


async def test_lambdas_and_functions_of_other_libraries_do_too(servers: str) -> None:
    async with Consumer(
        "orders",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        key_deserializer=lambda key: key.decode() if key else "",
        value_deserializer=lambda value: json.loads(value or b"null"),
    ) as consumer:
        assert_type(consumer, Consumer[str, Any])
        record = await consumer.getone()
        assert assert_type(record.key, str).upper() == "KEY"
        assert record.value == 5


async def test_a_consumer_can_be_named_without_its_types(servers: str) -> None:
    async def read(consumer: Consumer) -> bytes:
        return (await consumer.getone()).value or b""

    async with Consumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        assert await read(consumer) == b"5"
