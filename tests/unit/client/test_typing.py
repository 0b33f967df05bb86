"""What a type checker knows of the records that a consumer reads: `make types` checks this file too."""

import json
from collections.abc import AsyncIterator
from typing import Any, assert_type

import pytest

from tidelog import Consumer, ConsumerRecord, Producer, ShareConsumer, ShareRecord, TopicPartition
from tidelog.broker.testing.embedded import EmbeddedBroker
from tidelog.protocol.types import Buffer


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    async with EmbeddedBroker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"5", key=b"key")
        yield broker.bootstrap_servers


def number(raw: bytes | None) -> int:
    return int(raw or b"0")


def encoded(number: int) -> bytes:
    return number.to_bytes(4, "big")


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


async def test_a_producer_takes_what_its_serializers_take_and_without_them_bytes(servers: str) -> None:
    async def write(producer: Producer) -> None:
        await producer.send_and_wait("orders", bytearray(b"6"), key=None)

    async with Producer(bootstrap_servers=servers) as producer:
        assert_type(producer, Producer[Buffer | None, Buffer | None])
        await write(producer)
        with pytest.raises(TypeError, match="expected bytes"):
            await producer.send_and_wait("orders", "text")  # type: ignore[arg-type]
    async with Producer(bootstrap_servers=servers, value_serializer=encoded) as numbers:
        assert_type(numbers, Producer[Buffer | None, int])
        await numbers.send_and_wait("orders", 7, key=b"key")
        with pytest.raises(AttributeError):
            await numbers.send_and_wait("orders", b"7")  # type: ignore[arg-type]


async def test_a_lambda_as_a_serializer_takes_anything(servers: str) -> None:
    async with Producer(
        bootstrap_servers=servers, value_serializer=lambda value: json.dumps(value).encode()
    ) as producer:
        await producer.send_and_wait("orders", {"any": "value"})


async def test_a_share_consumer_has_the_types_of_its_deserializers(servers: str) -> None:
    async with ShareConsumer(
        "orders", bootstrap_servers=servers, group_id="workers", value_deserializer=number
    ) as consumer:
        assert_type(consumer, ShareConsumer[bytes | None, int])
        for records in (await consumer.getmany()).values():
            assert_type(records, list[ShareRecord[bytes | None, int]])
    async with ShareConsumer("orders", bootstrap_servers=servers, group_id="workers") as plain:
        assert_type(plain, ShareConsumer[bytes | None, bytes | None])
