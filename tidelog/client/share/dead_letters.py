"""What the headers of a dead letter say: where its record is, and why no member accepted it.

Owns: `DeadLetter`. Source: KIP-1191, Kafka's ShareGroupDLQRecordHelper.
"""

from typing import Any, NamedTuple, Self

from tidelog.client.share.records import ShareRecord
from tidelog.client.types import ConsumerRecord
from tidelog.protocol.types import TopicPartition


class DeadLetter(NamedTuple):
    """`DeadLetter.of(record)`, of a record of the topic in `errors.deadletterqueue.topic.name`."""

    topic: str
    partition: int
    offset: int
    group_id: str
    delivery_count: int
    reason: str

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @classmethod
    def of(cls, record: ConsumerRecord[Any, Any] | ShareRecord[Any, Any]) -> Self:
        """Raises ValueError for a record without these headers."""
        # The last of each name: a dead letter of a dead letter has those of both.
        found = {name: (value or b"").decode() for name, value in record.headers}
        try:
            return cls(
                found["__dlq.errors.topic"],
                int(found["__dlq.errors.partition"]),
                int(found["__dlq.errors.offset"]),
                found["__dlq.errors.group"],
                int(found["__dlq.errors.delivery.count"]),
                found["__dlq.errors.message"],
            )
        except KeyError as error:
            raise ValueError(
                f"{record.topic}-{record.partition} at offset {record.offset} is no dead letter: it has no "
                f"header {error}"
            ) from None
