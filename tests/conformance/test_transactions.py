"""Transactions of clients that others wrote: what is committed is read, what is aborted is not."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka import KafkaProducer
from kafka.errors import ProducerFencedError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PurePartition

from tests.conformance.conftest import RunningBroker
from tests.conformance.peers.confluent import ConfluentKafka
from tests.waiting import DEADLINE_SECONDS

_PATIENCE_S = DEADLINE_SECONDS
PEER = ConfluentKafka()


def read(address: str, topic: str, isolation_level: str = "read_committed") -> list[bytes]:
    """All values of the topic's partition that a consumer of librdkafka gets, up to the end.

    A transaction that was ended is open until its markers are written, which is after the answer.
    """
    where = TopicPartition(topic, 0)
    admin = AdminClient({"bootstrap.servers": address})
    end = admin.list_offsets({where: OffsetSpec.latest()})[where].result(_PATIENCE_S).offset
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"reader of {topic}",
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while True:
            message = consumer.poll(_PATIENCE_S)
            assert message is not None
            if message.error() is None:
                values.append(message.value())
            else:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                if message.offset() >= end:
                    return values
    finally:
        consumer.close()


def committed(broker: RunningBroker, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=_PATIENCE_S)
        return int(found.offset)
    finally:
        consumer.close()


def confluent(broker: RunningBroker, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": transactional_id})
    producer.init_transactions(_PATIENCE_S)
    return producer


def test_librdkafka_commits_and_aborts(broker: RunningBroker) -> None:
    PEER.create_topics(broker.address, {"confluent": 1, "confluent-in": 1})
    producer = confluent(broker, "confluent")
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "confluent"})
    for number in range(4):
        producer.begin_transaction()
        for part in range(3):
            producer.produce("confluent", f"{number}-{part}".encode())
        producer.send_offsets_to_transaction(
            [TopicPartition("confluent-in", 0, number + 1)], consumer.consumer_group_metadata(), _PATIENCE_S
        )
        if number % 2:
            producer.abort_transaction(_PATIENCE_S)
        else:
            producer.commit_transaction(_PATIENCE_S)
    consumer.close()
    assert read(broker.address, "confluent") == [f"{n}-{part}".encode() for n in (0, 2) for part in range(3)]
    assert (
        len(read(broker.address, "confluent", "read_uncommitted")) >= 6
    )  # It sends nothing of what it aborts soon.
    assert committed(broker, "confluent", "confluent-in") == 3


def test_librdkafka_s_zombie_is_fenced_and_its_transaction_aborted(broker: RunningBroker) -> None:
    PEER.create_topics(broker.address, {"fenced": 1})
    zombie = confluent(broker, "fenced")
    zombie.begin_transaction()
    zombie.produce("fenced", b"zombie")
    zombie.flush(_PATIENCE_S)
    producer = confluent(broker, "fenced")
    producer.begin_transaction()
    producer.produce("fenced", b"successor")
    producer.commit_transaction(_PATIENCE_S)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(_PATIENCE_S)
    assert fenced.value.args[0].fatal()
    assert read(broker.address, "fenced") == [b"successor"]


async def test_aiokafka_commits_aborts_and_is_fenced(broker: RunningBroker) -> None:
    await asyncio.to_thread(PEER.create_topics, broker.address, {"aio": 1, "aio-in": 1})

    def producer() -> AIOKafkaProducer:
        return AIOKafkaProducer(bootstrap_servers=broker.address, transactional_id="aio")

    async with producer() as zombie:
        async with zombie.transaction():
            await zombie.send_and_wait("aio", b"first", partition=0)
            await zombie.send_offsets_to_transaction({AioPartition("aio-in", 0): 5}, "aio")
        await zombie.begin_transaction()
        await zombie.send_and_wait("aio", b"aborted", partition=0)
        await zombie.send_offsets_to_transaction({AioPartition("aio-in", 0): 6}, "aio")
        await zombie.abort_transaction()
        await zombie.begin_transaction()
        await zombie.send_and_wait("aio", b"zombie", partition=0)
        async with producer() as successor:
            async with successor.transaction():
                await successor.send_and_wait("aio", b"second", partition=0)
            with pytest.raises(ProducerFenced):
                await zombie.commit_transaction()
    assert await asyncio.to_thread(read, broker.address, "aio") == [b"first", b"second"]
    assert await asyncio.to_thread(committed, broker, "aio", "aio-in") == 5


def test_kafka_python_commits_aborts_and_is_fenced(broker: RunningBroker) -> None:
    PEER.create_topics(broker.address, {"pure": 1, "pure-in": 1})

    def producer() -> Any:
        made = KafkaProducer(bootstrap_servers=broker.address, transactional_id="pure")
        made.init_transactions()
        return made

    zombie = producer()
    ends: list[tuple[bytes, Callable[[], object]]] = [
        (b"first", zombie.commit_transaction),
        (b"aborted", zombie.abort_transaction),
        (b"second", zombie.commit_transaction),
    ]
    for number, (value, end) in enumerate(ends):
        zombie.begin_transaction()
        zombie.send("pure", value, partition=0).get(_PATIENCE_S)
        offsets = {PurePartition("pure-in", 0): OffsetAndMetadata(number + 1, "", -1)}
        zombie.send_offsets_to_transaction(offsets, "pure")
        end()
    zombie.begin_transaction()
    zombie.send("pure", b"zombie", partition=0).get(_PATIENCE_S)
    successor = producer()
    with pytest.raises(ProducerFencedError):
        zombie.commit_transaction()
    for each in (zombie, successor):
        each.close(timeout=0)
    assert read(broker.address, "pure") == [b"first", b"second"]
    assert committed(broker, "pure", "pure-in") == 3
