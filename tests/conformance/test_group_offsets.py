"""A consumer with a group.id that assigns its partitions itself, of three clients, while there are no groups.

Each begins where auto.offset.reset says, reads on when its automatic commits are refused, and reports that a
commit failed which the user asked for.
"""

import asyncio
import subprocess
import sys
import time

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import CommitFailedError as AioCommitFailed
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import CommitFailedError

from tests.conformance.conftest import RunningBroker
from tests.conformance.peers import Message
from tests.conformance.peers.confluent import ConfluentKafka
from tests.waiting import DEADLINE_SECONDS

PATIENCE_SECONDS = DEADLINE_SECONDS
COMMIT_EVERY_MS = 20
VALUES = [b"%d" % number for number in range(5)]

# In a process of its own: what this is about ended the process.
CONFLUENT = """
import sys
from confluent_kafka import Consumer, KafkaException, TopicPartition
address, topic, count, commit_every_ms = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
settings = {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": commit_every_ms}
consumer = Consumer(settings)
consumer.assign([TopicPartition(topic, 0)])
found = []
for _ in range(100):
    message = consumer.poll(0.3)
    if message is not None:
        assert message.error() is None, message.error()
        found.append(message.value().decode())
    if len(found) == count:
        break
consumer.poll(commit_every_ms / 100)  # Several automatic commits are refused meanwhile.
(committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=120)
assert committed.error is None and committed.offset == -1001, committed
try:
    consumer.commit(asynchronous=False)
except KafkaException as refused:
    print(*found, refused.args[0].name())
consumer.close()
"""


@pytest.fixture(scope="module")
def topic(broker: RunningBroker) -> str:
    peer = ConfluentKafka()
    peer.create_topics(broker.address, {"assigned": 1})
    messages = [Message(0, 1_000 + number, None, value) for number, value in enumerate(VALUES)]
    peer.write(broker.address, {"assigned": ("none", messages)})
    return "assigned"


def test_confluent_kafka_reads_from_the_earliest_record_and_its_process_survives(
    broker: RunningBroker, topic: str
) -> None:
    arguments = [broker.address, topic, str(len(VALUES)), str(COMMIT_EVERY_MS)]
    ended = subprocess.run(
        [sys.executable, "-c", CONFLUENT, *arguments],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == [*(value.decode() for value in VALUES), "UNKNOWN_MEMBER_ID"]


async def test_aiokafka_reads_from_the_earliest_record_and_reads_on(
    broker: RunningBroker, topic: str
) -> None:
    where = AioPartition(topic, 0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.address,
        group_id="g",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=COMMIT_EVERY_MS,
    )
    await consumer.start()
    try:
        consumer.assign([where])
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(2):
                assert [(await consumer.getone()).value for _ in VALUES] == VALUES
                assert await consumer.getmany(timeout_ms=10 * COMMIT_EVERY_MS) == {}
                await consumer.seek_to_beginning(where)
            assert await consumer.committed(where) is None
            with pytest.raises(AioCommitFailed):
                await consumer.commit({where: 3})
    finally:
        await consumer.stop()


def test_kafka_python_reads_from_the_earliest_record_and_reads_on(broker: RunningBroker, topic: str) -> None:
    where = TopicPartition(topic, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.address,
        group_id="g",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=COMMIT_EVERY_MS,
    )
    try:
        consumer.assign([where])
        for _ in range(2):
            found: list[bytes] = []
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(found) < len(VALUES) and time.monotonic() < deadline:
                for records in consumer.poll(timeout_ms=10 * COMMIT_EVERY_MS).values():
                    found += [record.value for record in records]
            assert found == VALUES
            consumer.seek_to_beginning(where)
        assert consumer.committed(where) is None
        with pytest.raises(CommitFailedError):
            consumer.commit({where: OffsetAndMetadata(3, "", -1)})
    finally:
        consumer.close()
