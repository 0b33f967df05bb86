"""kafka-python as a peer."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from tests.conformance.peers import Message, Stored
from tests.waiting import DEADLINE_SECONDS

_PATIENCE_S = DEADLINE_SECONDS


class KafkaPython:
    name = "kafka-python"

    def can_write(self, message: Message) -> bool:
        has_bytes = message.key is not None or message.value is not None
        return has_bytes and all(value is not None for _, value in message.headers)

    def create_topics(self, address: str, partitions: Mapping[str, int]) -> None:
        admin = KafkaAdminClient(bootstrap_servers=address)
        try:
            admin.create_topics([NewTopic(name, count, 1) for name, count in partitions.items()])
        finally:
            admin.close()

    def delete_topic(self, address: str, topic: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=address)
        try:
            admin.delete_topics([topic])
        finally:
            admin.close()

    def producer(self, address: str, **settings: object) -> KafkaProducer:
        """An idempotent producer."""
        return KafkaProducer(
            bootstrap_servers=address, enable_idempotence=True, acks="all", linger_ms=2, **settings
        )

    def write(
        self, address: str, topics: Mapping[str, tuple[str, Sequence[Message]]]
    ) -> dict[str, list[tuple[int, int, int]]]:
        return {
            topic: self._write(address, topic, codec, messages) for topic, (codec, messages) in topics.items()
        }

    def _write(
        self, address: str, topic: str, codec: str, messages: Sequence[Message]
    ) -> list[tuple[int, int, int]]:
        producer = self.producer(address, compression_type=None if codec == "none" else codec)
        try:
            deliveries = [
                producer.send(
                    topic,
                    message.value,
                    message.key,
                    list(message.headers),
                    message.partition,
                    message.timestamp,
                )
                for message in messages
            ]
            answers = [delivery.get(_PATIENCE_S) for delivery in deliveries]
        finally:
            producer.close()
        return [(answer.partition, answer.offset, answer.timestamp) for answer in answers]

    def read(self, address: str, ends: Mapping[tuple[str, int], int]) -> dict[str, list[Stored]]:
        found: dict[str, list[Stored]] = {topic: [] for topic, _ in ends}
        left = {TopicPartition(*partition): end for partition, end in ends.items() if end}
        consumer = self.consumer(address)
        deadline = time.monotonic() + _PATIENCE_S
        try:
            consumer.assign(list(left))
            consumer.seek_to_beginning(*left)
            while left:
                assert time.monotonic() < deadline, f"nothing more came; unread: {left}"
                for partition, records in consumer.poll(timeout_ms=1000).items():
                    found[partition.topic] += map(_stored, records)
                    if records[-1].offset + 1 >= left[partition]:
                        del left[partition]
                        consumer.pause(partition)
        finally:
            consumer.close()
        return found

    def consumer(self, address: str) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=address, auto_offset_reset="none", group_id=None, fetch_max_wait_ms=100
        )

    def offsets(
        self, address: str, topic: str, partition: int, timestamp: int
    ) -> tuple[int, int, int | None]:
        where = TopicPartition(topic, partition)
        consumer = self.consumer(address)
        try:
            first = consumer.beginning_offsets([where])[where]
            end = consumer.end_offsets([where])[where]
            found = consumer.offsets_for_times({where: timestamp})[where]
        finally:
            consumer.close()
        return first, end, None if found is None else found.offset


def _stored(record: Any) -> Stored:
    message = Message(record.partition, record.timestamp, record.key, record.value, tuple(record.headers))
    return Stored(record.offset, message)
