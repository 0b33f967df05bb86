"""What librdkafka does beyond writing and reading: administration, errors, size, and a broker that dies."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.conformance.conftest import RunningBroker
from tests.conformance.peers import Message
from tests.conformance.peers.confluent import ConfluentKafka
from tests.conformance.several import BrokerProcess
from tests.waiting import DEADLINE_SECONDS

_PATIENCE_S = DEADLINE_SECONDS
PEER = ConfluentKafka()


@pytest.fixture(scope="module")
def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


@pytest.mark.one_broker("counts brokers")
def test_metadata_names_the_broker_its_topics_and_no_unknown_one(
    broker: RunningBroker, admin: AdminClient
) -> None:
    PEER.create_topics(broker.address, {"known": 3})
    seen = admin.list_topics(timeout=_PATIENCE_S)
    assert {f"{node.host}:{node.port}" for node in seen.brokers.values()} == {broker.address}
    assert sorted(seen.topics["known"].partitions) == [0, 1, 2]
    consumer = PEER.consumer(broker.address)  # Which, unlike the others, does not ask to create topics.
    asked = consumer.list_topics("unknown", timeout=_PATIENCE_S).topics["unknown"]
    consumer.close()
    assert asked.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert "unknown" not in admin.list_topics(timeout=_PATIENCE_S).topics


def test_a_refused_topic_says_why(broker: RunningBroker, admin: AdminClient) -> None:
    PEER.create_topics(broker.address, {"taken": 1})
    for topic, code in (
        (NewTopic("taken", 1), KafkaError.TOPIC_ALREADY_EXISTS),
        (NewTopic("bad name", 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("copies", 1, replication_factor=9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("settings", 1, config={"nope": "1"}), KafkaError.INVALID_CONFIG),
    ):
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([topic])[topic.topic].result(_PATIENCE_S)
        assert refused.value.args[0].code() == code


def test_partitions_are_added_and_used(broker: RunningBroker, admin: AdminClient) -> None:
    PEER.create_topics(broker.address, {"growing": 1})
    admin.create_partitions([NewPartitions("growing", 3)])["growing"].result(_PATIENCE_S)
    message = Message(2, 1000, b"k", b"v")
    assert PEER.write(broker.address, {"growing": ("none", [message])})["growing"] == [(2, 0, 1000)]


def test_the_admin_asks_for_offsets_and_deletes_records(broker: RunningBroker, admin: AdminClient) -> None:
    PEER.create_topics(broker.address, {"trimmed": 1})
    messages = [Message(0, 1000 * number, None, b"%d" % number) for number in (1, 3, 2)]
    PEER.write(broker.address, {"trimmed": ("none", messages)})
    where = TopicPartition("trimmed", 0)
    for spec, expected in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 3),
        (OffsetSpec.max_timestamp(), 1),
        (OffsetSpec.for_timestamp(1500), 1),
    ):
        assert admin.list_offsets({where: spec})[where].result(_PATIENCE_S).offset == expected
    deleted = admin.delete_records([TopicPartition("trimmed", 0, 2)])[where].result(_PATIENCE_S)
    assert deleted.low_watermark == 2
    assert PEER.offsets(broker.address, "trimmed", 0, 0) == (2, 3, 2)


def test_a_topic_deleted_and_made_again_is_empty(broker: RunningBroker) -> None:
    for _ in range(2):
        PEER.create_topics(broker.address, {"reborn": 1})
        acknowledged = PEER.write(broker.address, {"reborn": ("none", [Message(0, 1000, None, b"v")])})
        assert acknowledged["reborn"] == [(0, 0, 1000)]
        PEER.delete_topic(broker.address, "reborn")


def test_a_topic_is_created_by_the_first_record_for_it(broker: RunningBroker) -> None:
    acknowledged = PEER.write(broker.address, {"unannounced": ("none", [Message(0, 1000, None, b"v")])})
    assert acknowledged["unannounced"] == [(0, 0, 1000)]


def test_batches_up_to_the_limit_are_stored_and_read(broker: RunningBroker) -> None:
    PEER.create_topics(broker.address, {"large": 1})
    messages = [Message(0, 1000, None, bytes([number]) * 900_000) for number in range(12)]
    PEER.write(broker.address, {"large": ("none", messages)})
    found = PEER.read(broker.address, {("large", 0): len(messages)})["large"]
    assert [stored.message for stored in found] == messages


def test_a_record_past_the_limit_is_refused_and_the_producer_goes_on(broker: RunningBroker) -> None:
    PEER.create_topics(broker.address, {"too-large": 1})
    producer = PEER.producer(broker.address, message_max_bytes=3_000_000)
    failures: list[Any] = []
    producer.produce("too-large", b"x" * 2_000_000, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(_PATIENCE_S) == 0
    assert [error.code() for error in failures] == [KafkaError.MSG_SIZE_TOO_LARGE]
    acknowledged = PEER.write(broker.address, {"too-large": ("none", [Message(0, 1000, None, b"v")])})
    assert acknowledged["too-large"] == [(0, 0, 1000)]


def test_reading_beyond_the_end_is_out_of_range(broker: RunningBroker) -> None:
    PEER.create_topics(broker.address, {"short": 1})
    consumer = PEER.consumer(broker.address)
    consumer.assign([TopicPartition("short", 0, 99)])
    assert consumer.poll(_PATIENCE_S).error().code() == KafkaError._AUTO_OFFSET_RESET
    consumer.close()


@pytest.mark.parametrize("end", ["kill -9", "SIGTERM"])
async def test_each_record_is_stored_once_and_in_order_through_a_restart(tmp_path: Path, end: str) -> None:
    """The broker goes while five batches are in flight; librdkafka sends them again to the next one."""
    count = 1500
    async with BrokerProcess(tmp_path / "data") as process:
        address = f"127.0.0.1:{process.port}"
        await asyncio.to_thread(PEER.create_topics, address, {"survivor": 1})
        first_stored, ends = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, record: Any) -> None:
            if error is not None:
                failures.append(error)
            elif record.offset() >= 100:
                loop.call_soon_threadsafe(first_stored.set)

        def write() -> int:
            # Ten records a batch, so that requests are under way all the time.
            producer = PEER.producer(
                address, batch_num_messages=10, linger_ms=0, reconnect_backoff_max_ms=100, retry_backoff_ms=20
            )
            for number in range(count):
                if number == count // 2:
                    # A quick broker would have stored them all before its end comes.
                    while not ends.is_set():
                        producer.poll(0.01)
                producer.produce("survivor", b"%d" % number, partition=0, on_delivery=delivered)
                producer.poll(0)
            return int(producer.flush(_PATIENCE_S))

        writing = asyncio.create_task(asyncio.to_thread(write))
        await asyncio.wait_for(first_stored.wait(), _PATIENCE_S)
        ends.set()
        if end == "SIGTERM":
            await process.terminate()
        else:
            await process.kill_9()
        await process.start()
        assert await writing == 0
        assert not failures
        found = await asyncio.to_thread(PEER.read, address, {("survivor", 0): count})
    assert [stored.message.value for stored in found["survivor"]] == [b"%d" % n for n in range(count)]
    assert [stored.offset for stored in found["survivor"]] == list(range(count))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.one_broker("applies retention inside the broker")
def test_records_without_timestamps_stay_for_retention_ms(broker: RunningBroker, codec: str) -> None:
    topic = f"untimed-{codec}"
    PEER.create_topics(broker.address, {topic: 1})
    producer = PEER.producer(broker.address, compression_type=codec)
    for number in range(10):
        producer.produce(topic, b"value %d" % number, partition=0, timestamp=-1)
    assert producer.flush(_PATIENCE_S) == 0
    broker.run(broker.broker.services.maintenance.apply_retention())
    assert PEER.offsets(broker.address, topic, 0, 0) == (0, 10, None)
    found = PEER.read(broker.address, {(topic, 0): 10})[topic]
    assert [stored.message.value for stored in found] == [b"value %d" % number for number in range(10)]
