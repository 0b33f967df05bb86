"""Batches that the application fills itself."""

from typing import Any

import pytest

from tests.unit.wire.scripted import TOPIC, ScriptedBroker
from tidelog.client import Producer, RecordTooLargeError
from tidelog.protocol.records import decode_batch
from tidelog.protocol.schema import ApiKey


def stored(broker: ScriptedBroker) -> list[list[tuple[bytes | None, bytes | None, int]]]:
    return [
        [(record.key, record.value, record.timestamp) for record in decode_batch(partition.records)]
        for request in broker.seen(ApiKey.PRODUCE)
        for topic in request.values.topic_data
        for partition in topic.partition_data
    ]


async def test_a_batch_goes_out_whole_between_what_was_sent_before_and_after() -> None:
    async with (
        ScriptedBroker() as broker,
        Producer(bootstrap_servers=broker.address, linger_ms=60_000) as producer,
    ):
        batch = producer.create_batch()
        assert batch.append(key=b"k", value=b"1", timestamp=5)
        assert batch.append(value=b"2", timestamp=7)
        first = await producer.send(TOPIC, b"0", timestamp_ms=1)
        delivery = await producer.send_batch(batch, TOPIC, partition=0)
        last = await producer.send(TOPIC, b"3", timestamp_ms=1)
        await producer.flush()
        assert stored(broker) == [[(None, b"0", 1)], [(b"k", b"1", 5), (None, b"2", 7)], [(None, b"3", 1)]]
        assert [(await each).sequence for each in (first, delivery, last)] == [0, 1, 3]
        assert (await delivery).timestamp == 5


async def test_a_batch_is_sent_once_and_takes_nothing_after_it() -> None:
    async with ScriptedBroker() as broker, Producer(bootstrap_servers=broker.address) as producer:
        batch = producer.create_batch()
        with pytest.raises(ValueError, match="no record"):
            await producer.send_batch(batch, TOPIC, partition=0)
        assert batch.append(value=b"1")
        await (await producer.send_batch(batch, TOPIC, partition=0))
        assert not batch.append(value=b"2")
        with pytest.raises(ValueError, match="sent before"):
            await producer.send_batch(batch, TOPIC, partition=0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"value": "text"}, "value: expected bytes or None, got str"),
        ({"key": 5}, "key: expected bytes or None, got int"),
        ({"headers": {"a": b"x"}}, "headers: expected a list .*, got dict"),
    ],
)
async def test_a_batch_refuses_what_is_no_record_and_takes_the_next(fields: Any, message: str) -> None:
    async with ScriptedBroker() as broker, Producer(bootstrap_servers=broker.address) as producer:
        batch = producer.create_batch()
        with pytest.raises(TypeError, match=message):
            batch.append(**fields)
        assert batch.append(value=b"1", timestamp=1)
        with pytest.raises(TypeError, match=message):
            batch.append(**fields)
        with pytest.raises(TypeError, match="partition: expected a whole number, got '0'"):
            await producer.send_batch(batch, TOPIC, partition="0")  # type: ignore[arg-type]
        await (await producer.send_batch(batch, TOPIC, partition=0))
        assert stored(broker) == [[(None, b"1", 1)]]


async def test_append_says_where_a_record_is_and_none_once_the_batch_is_full() -> None:
    async with (
        ScriptedBroker() as broker,
        Producer(bootstrap_servers=broker.address, max_batch_size=16_384) as producer,
    ):
        batch = producer.create_batch()
        taken = []
        while (record := batch.append(key=None, value=bytes(1_000), timestamp=7)) is not None:
            taken.append(record)
        assert [(each.offset, each.timestamp) for each in taken] == [(number, 7) for number in range(16)]
        assert batch.size() == 61 + sum(each.size for each in taken) <= 16_384
        assert batch.record_count() == 16
        assert batch.closed()
        assert batch.append(value=b"would still fit") is None


async def test_a_batch_applies_the_producers_serializers() -> None:
    async with (
        ScriptedBroker() as broker,
        Producer(
            bootstrap_servers=broker.address, key_serializer=str.encode, value_serializer=lambda n: b"%d" % n
        ) as producer,
    ):
        batch = producer.create_batch()
        assert batch.append(key="k", value=5, timestamp=1)
        await (await producer.send_batch(batch, TOPIC, partition=0))
        assert stored(broker) == [[(b"k", b"5", 1)]]


async def test_a_batch_larger_than_a_request_is_refused_and_not_spent() -> None:
    async with (
        ScriptedBroker() as broker,
        Producer(bootstrap_servers=broker.address, max_request_size=100) as producer,
    ):
        batch = producer.create_batch()
        batch.append(value=bytes(200))
        for _ in range(2):
            with pytest.raises(RecordTooLargeError):
                await producer.send_batch(batch, TOPIC, partition=0)


async def test_a_batch_for_a_partition_that_was_added_is_sent_after_a_look_at_the_metadata() -> None:
    async with ScriptedBroker() as broker, Producer(bootstrap_servers=broker.address) as producer:
        await producer.send_and_wait(TOPIC, b"x")
        broker.partitions = 3
        batch = producer.create_batch()
        batch.append(value=b"y")
        assert (await (await producer.send_batch(batch, TOPIC, partition=2))).partition == 2
        unsent = producer.create_batch()
        unsent.append(value=b"z")
        with pytest.raises(ValueError, match="expected a partition of 0 to 2 of topic"):
            await producer.send_batch(unsent, TOPIC, partition=3)
