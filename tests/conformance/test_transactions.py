"""Transactions of librdkafka: what is committed is read, what is aborted is not."""

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

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
