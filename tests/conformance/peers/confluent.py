"""confluent-kafka (librdkafka) as a peer."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.peers import Message, Stored
from tests.waiting import DEADLINE_SECONDS

_PATIENCE_S = DEADLINE_SECONDS


class ConfluentKafka:
    name = "confluent-kafka"

    def can_write(self, message: Message) -> bool:
        return True

    def create_topics(self, address: str, partitions: Mapping[str, int]) -> None:
        admin = AdminClient({"bootstrap.servers": address})
        wanted = [NewTopic(name, num_partitions=count) for name, count in partitions.items()]
        for future in admin.create_topics(wanted).values():
            future.result(_PATIENCE_S)

    def delete_topic(self, address: str, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": address})
        admin.delete_topics([topic])[topic].result(_PATIENCE_S)

    def producer(self, address: str, **settings: object) -> Any:
        """An idempotent producer."""
        fixed = {"bootstrap.servers": address, "enable.idempotence": True, "acks": "all", "linger.ms": 2}
        return Producer(fixed | {name.replace("_", "."): value for name, value in settings.items()})

    def write(
        self, address: str, topics: Mapping[str, tuple[str, Sequence[Message]]]
    ) -> dict[str, list[tuple[int, int, int]]]:
        # Every producer of librdkafka takes half a second to get its id, so they wait for it together.
        writers = {
            topic: _Writer(self.producer(address, compression_type=topics[topic][0])) for topic in topics
        }
        for topic, writer in writers.items():
            writer.send(topic, topics[topic][1])
        return {topic: writer.acknowledged() for topic, writer in writers.items()}

    def read(self, address: str, ends: Mapping[tuple[str, int], int]) -> dict[str, list[Stored]]:
        consumer = self.consumer(address)
        found: dict[str, list[Stored]] = {topic: [] for topic, _ in ends}
        left = {partition for partition, end in ends.items() if end}
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for topic, index in left])
        deadline = time.monotonic() + _PATIENCE_S
        try:
            while left:
                assert time.monotonic() < deadline, f"nothing more came; unread: {left}"
                for record in consumer.consume(1000, timeout=0.1):
                    assert record.error() is None, record.error()
                    found[record.topic()].append(_stored(record))
                    where = record.topic(), record.partition()
                    if record.offset() + 1 >= ends[where]:
                        left.discard(where)
        finally:
            consumer.close()
        return found

    def consumer(self, address: str) -> Any:
        return Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "never-joined",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
            }
        )

    def offsets(
        self, address: str, topic: str, partition: int, timestamp: int
    ) -> tuple[int, int, int | None]:
        consumer = self.consumer(address)
        try:
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_PATIENCE_S)
            (found,) = consumer.offsets_for_times(
                [TopicPartition(topic, partition, timestamp)], timeout=_PATIENCE_S
            )
        finally:
            consumer.close()
        return first, end, found.offset if found.offset >= 0 else None


class _Writer:
    """One producer, and what was acknowledged to it."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._acknowledged: list[tuple[int, int, int]] = []
        self._failures: list[KafkaError] = []

    def send(self, topic: str, messages: Sequence[Message]) -> None:
        for message in messages:
            self._producer.produce(
                topic,
                message.value,
                message.key,
                message.partition,
                on_delivery=self._delivered,
                timestamp=message.timestamp,
                headers=list(message.headers),
            )

    def acknowledged(self) -> list[tuple[int, int, int]]:
        """Wait until everything is."""
        unsent = self._producer.flush(_PATIENCE_S)
        assert not self._failures
        assert not unsent
        return self._acknowledged

    def _delivered(self, error: KafkaError | None, record: Any) -> None:
        if error is not None:
            self._failures.append(error)
        else:
            self._acknowledged.append((record.partition(), record.offset(), record.timestamp()[1]))


def _stored(record: Any) -> Stored:
    headers = tuple(record.headers() or ())
    message = Message(record.partition(), record.timestamp()[1], record.key(), record.value(), headers)
    return Stored(record.offset(), message)
