"""The planner of a stream asks the brokers once per trigger, and shows a group how far the stream is."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidelog.broker.testing.embedded import ThreadedBroker
from tidelog.client import Admin, Consumer, Producer
from tidelog.pipeline.data_source import TidelogDataSource
from tidelog.pipeline.schema import SCHEMA
from tidelog.pipeline.source import clients, reading, stream_source

TOPIC = "t"
EVERYTHING = ReadAllAvailable()


@pytest.fixture
def broker() -> Iterator[ThreadedBroker]:
    with ThreadedBroker() as broker:
        broker.create_topic(TOPIC, partitions=2)
        append(broker, 10)
        yield broker
        clients.close_idle()


def append(broker: ThreadedBroker, records: int) -> None:
    """To both partitions in turn."""

    async def send() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(records):
                _ = await producer.send(TOPIC, b"x", partition=number % 2)

    asyncio.run(send())


def reader_of(broker: ThreadedBroker, **options: str) -> Any:
    topics = {} if "subscribePattern" in options else {"subscribe": TOPIC}
    given = {"bootstrap.servers": broker.bootstrap_servers, **topics, **options}
    return TidelogDataSource({"startingOffsets": "earliest", **given}).streamReader(SCHEMA)


def read(reader: Any, start: Any) -> tuple[Any, list[int]]:
    """One trigger, as Spark asks: its end, and the sizes of its ranges."""
    end = reader.latestOffset(start, EVERYTHING)
    assert {topic: offsets for topic, offsets in end.items() if offsets} == reader.reportLatestOffset()
    tasks = reader.partitions(start, end) if end != start else []
    return end, [offsets.size for task in tasks for offsets, _ in task.ranges]


def test_a_trigger_looks_the_logs_up_once(broker: ThreadedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = []
    original = reading.logs_of

    def logs_of(options: Any) -> Any:
        lookups.append(options)
        return original(options)

    monkeypatch.setattr(reading, "logs_of", logs_of)
    monkeypatch.setattr(stream_source, "_KNOWN_SECONDS", float("inf"))
    reader = reader_of(broker)
    start = reader.initialOffset()
    lookups.clear()
    end, sizes = read(reader, start)
    assert (sizes, len(lookups)) == ([5, 5], 1)
    end, sizes = read(reader, end)
    assert (sizes, len(lookups)) == ([], 1)
    append(broker, 4)
    end, sizes = read(reader, end)
    assert (sizes, len(lookups)) == ([2, 2], 2)


def test_a_stream_without_new_records_asks_for_new_partitions_now_and_then(
    broker: ThreadedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_source, "_KNOWN_SECONDS", -1.0)
    reader = reader_of(broker, subscribePattern=f"{TOPIC}.*")
    end, _ = read(reader, reader.initialOffset())
    broker.create_topic(f"{TOPIC}-2")
    assert read(reader, end)[0].keys() > end.keys()


async def _committed(broker: ThreadedBroker) -> dict[int, int]:
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = await admin.groups.offsets("shown")
    return {where.partition: each.offset for where, each in found.items()}


def test_a_group_sees_what_the_stream_has_finished(broker: ThreadedBroker) -> None:
    """Spark begins a trigger where the last micro-batch ended: only then is that batch finished."""
    reader = reader_of(broker, **{"commit.group.id": "shown"})
    start = reader.initialOffset()
    end, _ = read(reader, start)
    assert asyncio.run(_committed(broker)) == {0: 0, 1: 0}
    read(reader, end)
    assert asyncio.run(_committed(broker)) == {0: 5, 1: 5}


def test_a_group_with_members_keeps_its_offsets_and_the_stream_goes_on(
    broker: ThreadedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def read_beside_a_member() -> None:
        async with Consumer(
            TOPIC, bootstrap_servers=broker.bootstrap_servers, group_id="shown", enable_auto_commit=False
        ) as consumer:
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)
            reader = reader_of(broker, **{"commit.group.id": "shown"})
            for _ in range(2):
                await asyncio.to_thread(read, reader, {TOPIC: {"0": 5, "1": 5}})
            assert await _committed(broker) == {}

    with caplog.at_level(logging.WARNING, "tidelog.pipeline"):
        asyncio.run(read_beside_a_member())
    (warning,) = [text for text in caplog.messages if "commit.group.id=shown" in text]
    assert "UNKNOWN_MEMBER_ID" in warning
