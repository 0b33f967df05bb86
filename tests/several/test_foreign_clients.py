"""Clients of other projects against several brokers: idempotent, in groups and in transactions, also while a
broker is killed and started again."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PurePartition

from tests.several.brokers import Brokers, brokers
from tests.several.test_coordinators import PARTITIONS, coordinated_by
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.cluster.catalog import TRANSACTIONS_TOPIC

T = TypeVar("T")
SECONDS = DEADLINE_SECONDS


class RunningBrokers:
    """Brokers that serve while the test's thread does what it likes."""

    def __init__(self, folder: Path) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="brokers", daemon=True)
        self._thread.start()
        self._stack = AsyncExitStack()
        self.cluster: Brokers = self.run(self._stack.enter_async_context(brokers(folder)))
        self.address = self.cluster.bootstrap_servers
        self.run(self._make_internal_topics())

    async def _make_internal_topics(self) -> None:
        await self.cluster[1].services.groups.make_topic()
        await self.cluster[2].services.transactions.make_topic()
        await self.cluster.agreed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def restart(self, node_id: int) -> None:
        """As kill -9, and a new start."""

        async def restarted() -> None:
            await self.cluster.kill(node_id)
            await self.cluster.start(node_id)

        self.run(restarted())

    def make_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(SECONDS)

    def stop(self) -> None:
        try:
            self.run(self._stack.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(SECONDS)
            self._loop.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBrokers]:
    started = RunningBrokers(tmp_path_factory.mktemp("brokers"))
    yield started
    started.stop()


Between = Callable[[], None]
Write = Callable[[str, str, str, str, int, Between], None]
"""Writes a value to each partition in a transaction, and commits an offset of a group with it: the address,
the transactional id, the topic, the group, the value, and what happens before the end."""


def with_librdkafka(address: str, name: str, topic: str, group: str, value: int, between: Between) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": name})
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for index in range(PARTITIONS):
        producer.produce(topic, b"%d" % value, partition=index)
    producer.flush(SECONDS)
    between()
    offsets = [TopicPartition(topic, 0, value)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
    producer.commit_transaction(SECONDS)
    consumer.close()


def with_aiokafka(address: str, name: str, topic: str, group: str, value: int, between: Between) -> None:
    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=name)
        async with producer, producer.transaction():
            for index in range(PARTITIONS):
                await producer.send_and_wait(topic, b"%d" % value, partition=index)
            await asyncio.to_thread(between)
            await producer.send_offsets_to_transaction({AioPartition(topic, 0): value}, group)

    asyncio.run(asyncio.wait_for(write(), SECONDS))


def with_kafka_python(address: str, name: str, topic: str, group: str, value: int, between: Between) -> None:
    producer: Any = KafkaProducer(bootstrap_servers=address.split(","), transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    for index in range(PARTITIONS):
        producer.send(topic, b"%d" % value, partition=index).get(SECONDS)
    between()
    producer.send_offsets_to_transaction({PurePartition(topic, 0): OffsetAndMetadata(value, "", -1)}, group)
    producer.commit_transaction()
    producer.close()


WRITERS = {"librdkafka": with_librdkafka, "aiokafka": with_aiokafka, "kafka-python": with_kafka_python}


def committed(address: str, topic: str) -> list[int]:
    """What a reader of committed records gets of all partitions, up to their ends."""
    places = [TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": address})
    ends = {
        (where.topic, where.partition): found.result(SECONDS).offset
        for where, found in admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest())).items()
    }
    settings = {
        "bootstrap.servers": address,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    consumer.assign(places)
    values = []
    while ends:
        message = consumer.poll(SECONDS)
        assert message is not None
        if message.error() is None:
            values.append(int(message.value()))
        else:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            where = message.topic(), message.partition()
            if message.offset() >= ends.get(where, 0):
                ends.pop(where, None)
    consumer.close()
    return sorted(values)


def offset_of(address: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS)
    consumer.close()
    return int(found.offset)


@pytest.mark.parametrize("client", WRITERS)
def test_transactions_count_once_over_all_brokers(running: RunningBrokers, client: str) -> None:
    """Of three transactions, one meets a restart of its coordinator, one of the group's."""
    topic = f"transactions-{client}"
    running.make_topic(topic)
    write: Write = WRITERS[client]
    for value, (coordinator, victim) in enumerate([(1, None), (2, 2), (3, 1)], start=1):
        of_group = coordinator % 3 + 1
        name = coordinated_by(running.cluster, coordinator, TRANSACTIONS_TOPIC)
        group = coordinated_by(running.cluster, of_group)

        def between(victim: int | None = victim) -> None:
            if victim is not None:
                running.restart(victim)

        write(running.address, f"{name}", topic, group, value, between)
        assert offset_of(running.address, group, topic) == value
    assert committed(running.address, topic) == sorted([1, 2, 3] * PARTITIONS)


def test_librdkafka_shares_and_commits(running: RunningBrokers) -> None:
    topic = "librdkafka-group"
    running.make_topic(topic)
    producer = Producer({"bootstrap.servers": running.address, "enable.idempotence": True})
    for number in range(60):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    producer.flush(SECONDS)
    for node_id in (1, 2, 3):
        group = coordinated_by(running.cluster, node_id)
        settings = {"bootstrap.servers": running.address, "auto.offset.reset": "earliest", "group.id": group}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.subscribe([topic])
        found = []
        for turn in range(60):
            message = consumer.poll(SECONDS)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(int(message.value()))
            if turn == 30:
                consumer.commit(asynchronous=False)
        assert sorted(found) == list(range(60))
        consumer.close()
