"""A log that lost a closed segment while its broker was down: what clients of every kind are told."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, KafkaError
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PurePartition
from kafka.errors import CorruptRecordError
from structlog.testing import capture_logs

from tests.conformance.commands import Type
from tests.conformance.conftest import RunningBroker
from tests.conformance.raw import NOW_MS, batch, connected
from tests.waiting import DEADLINE_SECONDS
from tidelog import Consumer, RecordsLostError, TopicPartition
from tidelog.protocol.errors import ErrorCode

_PATIENCE_S = DEADLINE_SECONDS
_SETTINGS = {"log_segment_bytes": 1000, "log_index_interval_bytes": 100}
RECORDS = 40


@pytest.fixture(scope="module")
def holed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """A data folder whose topic `t` lost its second segment, the first lost offset, that behind the last."""
    folder = tmp_path_factory.mktemp("holed") / "data"
    asyncio.run(_write(folder))
    logs = sorted((folder / "t-0").glob("*.log"))
    assert len(logs) == 3
    logs[1].unlink()
    return folder, int(logs[1].stem), int(logs[2].stem)


async def _write(folder: Path) -> None:
    running = RunningBroker(folder, **_SETTINGS)
    try:
        async with connected(running.broker.port) as client:
            await client.create("t")
            producer_id = await client.producer_id()
            for number in range(RECORDS):
                assert await client.produce(batch(f"{number}", producer_id, number)) == (0, number)
    finally:
        running.stop()


@pytest.fixture(scope="module")
def broker(holed: tuple[Path, int, int]) -> Iterator[RunningBroker]:
    with capture_logs():
        running = RunningBroker(holed[0], **_SETTINGS)
    yield running
    running.stop()


async def test_the_start_and_the_first_read_in_a_hole_say_what_is_lost(
    holed: tuple[Path, int, int], tmp_path: Path
) -> None:
    folder, first, end = holed
    shutil.copytree(folder, tmp_path / "data")
    with capture_logs() as events:
        running = RunningBroker(tmp_path / "data", **_SETTINGS)
        try:
            async with connected(running.broker.port) as client:
                for _ in range(3):
                    assert (await client.fetch(first, max_wait_ms=10_000)).error_code == 2
                assert (await client.fetch(end - 1)).error_code == ErrorCode.CORRUPT_MESSAGE
                assert (await client.fetch(first - 1)).records
                assert (await client.fetch(end)).records
        finally:
            running.stop()
    (found,) = [event for event in events if event["event"] == "log_damage_found"]
    assert (found["log_level"], found["holes"]) == ("error", [f"{first} to {end - 1}"])
    assert "DeleteRecords" in found["advice"]
    (read,) = [event for event in events if event["event"] == "read_failed"]
    assert f"the records at offsets {first} to {end - 1} are lost" in read["error"]
    assert f"delete the records before offset {end}" in read["error"]


async def test_our_consumer_reads_up_to_the_hole_and_raises(
    broker: RunningBroker, holed: tuple[Path, int, int]
) -> None:
    _, first, end = holed
    async with (
        Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer,
        asyncio.timeout(_PATIENCE_S),
    ):
        consumer.assign([TopicPartition("t", 0)])
        assert [(await anext(consumer)).offset for _ in range(first)] == list(range(first))
        for _ in range(2):
            with pytest.raises(RecordsLostError, match=f"from offset {first} on"):
                await anext(consumer)
        with pytest.raises(RecordsLostError, match="offsets of t-0"):
            await consumer.offsets_for_times({TopicPartition("t", 0): NOW_MS + 1})
        consumer.seek(TopicPartition("t", 0), end)
        assert (await anext(consumer)).offset == end


def test_librdkafka_tells_its_application_and_skips_nothing(
    broker: RunningBroker, holed: tuple[Path, int, int]
) -> None:
    _, first, _ = holed
    consumer = ConfluentConsumer(
        {"bootstrap.servers": broker.address, "group.id": "g", "auto.offset.reset": "latest"}
    )
    consumer.assign([ConfluentTopicPartition("t", 0, OFFSET_BEGINNING)])
    offsets: list[int | None] = []
    for _ in range(1000):
        message = consumer.poll(_PATIENCE_S)
        assert message is not None
        error = message.error()
        if error is not None:
            break
        offsets.append(message.offset())
    assert error is not None
    assert error.code() == KafkaError._BAD_MSG or error.code() == ErrorCode.CORRUPT_MESSAGE
    assert offsets == list(range(first))
    consumer.close()


def test_kafka_python_raises_and_skips_nothing(broker: RunningBroker, holed: tuple[Path, int, int]) -> None:
    _, first, _ = holed
    consumer = KafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="latest")
    partition = PurePartition("t", 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    offsets = [next(consumer).offset for _ in range(first)]
    assert offsets == list(range(first))
    with pytest.raises(CorruptRecordError):
        next(consumer)
    consumer.close()


async def test_aiokafka_stays_before_the_hole(broker: RunningBroker, holed: tuple[Path, int, int]) -> None:
    _, first, _ = holed
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="latest")
    await consumer.start()
    try:
        partition = AioTopicPartition("t", 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        async with asyncio.timeout(_PATIENCE_S):
            assert [(await consumer.getone()).offset for _ in range(first)] == list(range(first))
        assert await consumer.getmany(timeout_ms=500) == {}
        assert await consumer.position(partition) == first
    finally:
        await consumer.stop()


def test_a_topic_that_lost_records_is_described_all_the_same(broker: RunningBroker, tidelog: Type) -> None:
    code, shown, error = tidelog("topic", "describe", "t")
    assert (code, error) == (0, "")
    heading, _, row, warning = shown.splitlines()
    assert heading.startswith("t  id ")
    assert row.split()[-1] == str(RECORDS)
    assert warning.startswith("warning: the ages of the records cannot be looked up: ")
