"""A record without a timestamp gets the clock's, whatever the clock does within a batch."""

import pytest

import tidelog.client.producer.producer
from tests.unit.wire.scripted import TOPIC, ScriptedBroker
from tidelog.client import Producer
from tidelog.protocol.records import decode_batch
from tidelog.protocol.schema import ApiKey

BEGAN_NS = 1_700_000_000_000_400_000
MS = 1_000_000


async def test_records_of_a_batch_bear_the_time_of_their_send(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [BEGAN_NS]
    monkeypatch.setattr(tidelog.client.producer.producer, "time_ns", lambda: now_ns[0])
    monkeypatch.setattr(tidelog.client.producer.producer, "time", lambda: now_ns[0] / 1e9)
    steps = [0, 0, 0, 0, MS, 0, 0, -3 * MS, 0, 0, 60_000 * MS, 0, 0, 0]
    expected, given = [], []
    async with (
        ScriptedBroker() as broker,
        Producer(bootstrap_servers=broker.address, linger_ms=60_000) as producer,
    ):
        deliveries = []
        for number, step in enumerate(steps):
            now_ns[0] += step
            deliveries.append(await producer.send(TOPIC, b"%d" % number))
            expected.append(now_ns[0] // MS)
        # In a future of its own choice, whose records are not joined by those of the present.
        for _ in range(3):
            await producer.send(TOPIC, b"later", timestamp_ms=expected[-1] + 5_000)
        last = await producer.send(TOPIC, b"last")
        keyed = await producer.send(TOPIC, b"value", b"key")
        await producer.flush()
        given = [(await each).timestamp for each in deliveries]
        assert ((await last).timestamp, (await keyed).timestamp) == (expected[-1], expected[-1])
        (request,) = broker.seen(ApiKey.PRODUCE)
        records = decode_batch(request.values.topic_data[0].partition_data[0].records)
    assert given == expected
    assert [each.timestamp for each in records] == [
        *expected,
        *[expected[-1] + 5_000] * 3,
        expected[-1],
        expected[-1],
    ]
    assert [each.value for each in records[:14]] == [b"%d" % number for number in range(14)]
    assert (records[-1].key, records[-1].value) == (b"key", b"value")


async def test_an_open_batch_takes_no_record_beyond_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidelog.client.producer.producer, "time_ns", lambda: BEGAN_NS)
    monkeypatch.setattr(tidelog.client.producer.producer, "time", lambda: BEGAN_NS / 1e9)
    async with (
        ScriptedBroker() as broker,
        Producer(bootstrap_servers=broker.address, max_batch_size=1_000) as producer,
    ):
        for number in range(200):
            await producer.send(TOPIC, b"%03d" % number + bytes(number % 50))
        await producer.flush()
        sent = [
            partition.records
            for request in broker.seen(ApiKey.PRODUCE)
            for topic in request.values.topic_data
            for partition in topic.partition_data
        ]
    assert all(len(records) <= 1_000 for records in sent)
    values = [record.value[:3] for records in sent for record in decode_batch(records)]
    assert values == [b"%03d" % number for number in range(200)]
