"""confluent-kafka (librdkafka) as a processor uses it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from faults.transactions.client import POLL_S, Abortable, Client
from faults.transactions.history import Place, Source

_ATTEMPT_S: Final = 5.0


class ConfluentClient(Client):
    """librdkafka, whose errors say what may be done. Its calls block this process."""

    async def open(self) -> None:
        shared: dict[str, Any] = {
            "bootstrap.servers": self.job.address,
            "socket.timeout.ms": 1500,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.interval.ms": 1000,
            "log_level": 0,
        }
        self._producer: Any = ConfluentProducer(
            {
                **shared,
                "transactional.id": self.job.transactional_id,
                "transaction.timeout.ms": self.job.timeout_ms,
                "message.timeout.ms": self.job.timeout_ms,
                "batch.size": 2048,
                "linger.ms": 1,
            }
        )
        self._again(self._producer.init_transactions, _ATTEMPT_S)
        self._consumer: Any = ConfluentConsumer(
            {
                **shared,
                "group.id": self.job.group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
            }
        )
        if self.is_member:
            self._consumer.subscribe([self.job.input_topic])
        else:
            await self.rewind()

    @staticmethod
    def _again(call: Callable[..., Any], *arguments: Any) -> Any:
        """Repeat a call until it succeeds or its error is not retriable. Raises Abortable, KafkaException."""
        while True:
            try:
                return call(*arguments)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    raise Abortable from error
                if not error.args[0].retriable():
                    raise

    async def rewind(self) -> None:
        wanted = [ConfluentPartition(self.job.input_topic, each) for each in self.job.partitions]
        if self.is_member:
            wanted = self._consumer.assignment()
        while wanted:
            try:
                found = self._consumer.committed(wanted, timeout=_ATTEMPT_S)
            except KafkaException:
                continue  # The broker is down, or the offsets are not stable yet.
            if not any(each.error for each in found):
                break
        else:
            return
        starts = [ConfluentPartition(each.topic, each.partition, max(each.offset, 0)) for each in found]
        if not self.is_member:
            self._consumer.assign(starts)
            return
        for each in starts:
            self._consumer.seek(each)

    async def read(self, most: int) -> list[Source]:
        messages = self._consumer.consume(most, timeout=POLL_S)
        return [Source(each.partition(), each.offset()) for each in messages if each.error() is None]

    async def begin(self) -> None:
        self._producer.begin_transaction()

    async def send(self, place: Place, key: bytes, value: bytes) -> None:
        try:
            self._producer.produce(place.topic, value, key, place.partition)
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            raise Abortable from error
        self._producer.poll(0)

    async def send_offsets(self, positions: Mapping[int, int]) -> None:
        offsets = [ConfluentPartition(self.job.input_topic, *each) for each in positions.items()]
        group = self._consumer.consumer_group_metadata()
        self._again(self._producer.send_offsets_to_transaction, offsets, group, _ATTEMPT_S)

    async def commit(self) -> None:
        self._again(self._producer.commit_transaction, _ATTEMPT_S)

    async def abort(self) -> None:
        self._again(self._producer.abort_transaction, _ATTEMPT_S)


make: Final = ConfluentClient
