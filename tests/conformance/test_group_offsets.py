"""A consumer with a group.id that assigns its partitions itself, of three clients: it commits and reads back.

What one client committed the others read. A commit that was acknowledged is there after kill -9 and after a
restart, whichever client made it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from aiokafka.structs import OffsetAndMetadata as AioOffset
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from faults.process import BrokerProcess
from tests.conformance.conftest import RunningBroker
from tests.conformance.peers import Message
from tests.conformance.peers.confluent import ConfluentKafka
from tests.waiting import DEADLINE_SECONDS, until

TOPIC = "assigned"
VALUES = [b"%d" % number for number in range(5)]
COMMITS_BEFORE_THE_KILL = 30
NO_OFFSET = -1001


class OfConfluentKafka:
    """confluent-kafka's consumer of one partition."""

    def __init__(self, address: str, group: str) -> None:
        self._where = ConfluentPartition(TOPIC, 0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([self._where])

    def read(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            message = self._consumer.poll(DEADLINE_SECONDS)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(message.value())
        return found

    def commit(self, offset: int, metadata: str = "") -> None:
        """Raises KafkaException unless it is acknowledged."""
        where = ConfluentPartition(TOPIC, 0, offset, *([metadata] if metadata else []))
        (done,) = self._consumer.commit(offsets=[where], asynchronous=False)
        if done.error is not None:
            raise KafkaException(done.error)

    def committed(self) -> tuple[int, str] | None:
        (found,) = self._consumer.committed([self._where], timeout=DEADLINE_SECONDS)
        assert found.error is None, found.error
        return None if found.offset == NO_OFFSET else (found.offset, found.metadata or "")

    def close(self) -> None:
        self._consumer.close()


class OfKafkaPython:
    """kafka-python's."""

    def __init__(self, address: str, group: str) -> None:
        self._where = TopicPartition(TOPIC, 0)
        self._consumer = KafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        self._consumer.assign([self._where])

    def read(self, count: int) -> list[bytes]:
        return [next(self._consumer).value for _ in range(count)]

    def commit(self, offset: int, metadata: str = "") -> None:
        self._consumer.commit({self._where: OffsetAndMetadata(offset, metadata, -1)})

    def committed(self) -> tuple[int, str] | None:
        found = self._consumer.committed(self._where, metadata=True)
        return None if found is None else (found.offset, found.metadata)

    def close(self) -> None:
        self._consumer.close()


class OfAiokafka:
    """aiokafka's, on a loop of its own."""

    def __init__(self, address: str, group: str) -> None:
        self._where = AioPartition(TOPIC, 0)
        self._runner = asyncio.Runner()
        self._runner.run(self._begin(address, group))

    async def _begin(self, address: str, group: str) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await self._consumer.start()
        self._consumer.assign([self._where])

    def read(self, count: int) -> list[bytes]:
        async def read() -> list[bytes]:
            return [(await self._consumer.getone()).value for _ in range(count)]

        return self._runner.run(read())

    def commit(self, offset: int, metadata: str = "") -> None:
        self._runner.run(self._consumer.commit({self._where: AioOffset(offset, metadata)}))

    def committed(self) -> tuple[int, str] | None:
        async def committed() -> tuple[int, str] | None:
            # Its `committed` leaves out the metadata.
            coordinator = self._consumer._coordinator
            found = await coordinator.fetch_committed_offsets([self._where])
            told = found.get(self._where)
            return None if told is None else (told.offset, told.metadata)

        return self._runner.run(committed())

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


CLIENTS: list[Callable[[str, str], Any]] = [OfConfluentKafka, OfKafkaPython, OfAiokafka]
each_client = pytest.mark.parametrize("client", CLIENTS)


@contextmanager
def opened(client: Callable[[str, str], Any], address: str, group: str) -> Any:
    consumer = client(address, group)
    try:
        yield consumer
    finally:
        consumer.close()


def fill(address: str) -> None:
    peer = ConfluentKafka()
    peer.create_topics(address, {TOPIC: 1})
    messages = [Message(0, 1_000 + number, None, value) for number, value in enumerate(VALUES)]
    peer.write(address, {TOPIC: ("none", messages)})


@pytest.fixture(scope="module")
def address(broker: RunningBroker) -> str:
    fill(broker.address)
    return broker.address


@each_client
def test_a_consumer_goes_on_where_its_group_committed(
    address: str, client: Callable[[str, str], Any]
) -> None:
    group = f"goes-on-{client.__name__}"
    with opened(client, address, group) as consumer:
        assert consumer.committed() is None
        assert consumer.read(2) == VALUES[:2]
        consumer.commit(2, "two are done")
        assert consumer.committed() == (2, "two are done")
    with opened(client, address, group) as consumer:
        assert consumer.read(3) == VALUES[2:]


@each_client
def test_every_client_reads_what_another_committed(address: str, client: Callable[[str, str], Any]) -> None:
    group = f"shared-{client.__name__}"
    with opened(client, address, group) as consumer:
        # Without metadata: confluent-kafka sends and expects a zero byte at its end, which others do not.
        consumer.commit(3)
    for other in CLIENTS:
        with opened(other, address, group) as consumer:
            assert consumer.committed() == (3, "")


def test_automatic_commits_are_kept(broker: RunningBroker, address: str) -> None:
    settings = {"bootstrap.servers": address, "group.id": "automatic", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.assign([ConfluentPartition(TOPIC, 0)])
    for _ in VALUES:
        assert consumer.poll(DEADLINE_SECONDS) is not None
    consumer.close()  # It commits.
    with opened(OfConfluentKafka, address, "automatic") as found:
        assert found.committed() == (len(VALUES), "")


def test_the_admin_client_of_confluent_kafka_lists_and_alters_offsets(address: str) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions

    admin = AdminClient({"bootstrap.servers": address})
    where = ConsumerGroupTopicPartitions("altered", [ConfluentPartition(TOPIC, 0, 4)])
    (altered,) = admin.alter_consumer_group_offsets([where]).values()
    assert altered.result(DEADLINE_SECONDS).topic_partitions[0].error is None
    (listed,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("altered")]).values()
    (found,) = listed.result(DEADLINE_SECONDS).topic_partitions
    assert (found.topic, found.partition, found.offset) == (TOPIC, 0, 4)


@each_client
async def test_an_acknowledged_commit_is_there_after_kill_9_and_after_a_restart(
    tmp_path: Path, client: Callable[[str, str], Any]
) -> None:
    async with BrokerProcess(tmp_path) as broker:
        address = f"127.0.0.1:{broker.port}"
        await asyncio.to_thread(fill, address)
        acknowledged = [0]
        is_over = False

        def commit_on() -> None:
            with opened(client, address, "g") as consumer:
                while not is_over:
                    offset = acknowledged[-1] + 1
                    with suppress(KafkaException, KafkaError, AioError):
                        consumer.commit(offset, f"commit {offset}")
                        acknowledged.append(offset)

        committing = asyncio.create_task(asyncio.to_thread(commit_on))
        await until(lambda: len(acknowledged) > COMMITS_BEFORE_THE_KILL or committing.done())
        await broker.kill_9()
        before = acknowledged[-1]
        await broker.start()
        await until(lambda: acknowledged[-1] > before or committing.done())
        is_over = True
        async with asyncio.timeout(DEADLINE_SECONDS):
            await committing
        last = acknowledged[-1]

        def committed() -> tuple[int, str] | None:
            with opened(client, address, "g") as consumer:
                return consumer.committed()  # type: ignore[no-any-return]

        for _ in range(2):
            found = await asyncio.to_thread(committed)
            assert found in ((last, f"commit {last}"), (last + 1, f"commit {last + 1}"))
            await broker.restart()
