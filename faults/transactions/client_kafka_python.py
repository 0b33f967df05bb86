"""kafka-python as a processor uses it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata
from kafka import TopicPartition as PythonPartition
from kafka.errors import KafkaError

from faults.transactions.client import POLL_S, Abortable, Client
from faults.transactions.history import Place, Source

_SEND_S: Final = 10.0


class KafkaPythonClient(Client):
    """kafka-python, whose calls block this process. A process ends after an abort that failed."""

    async def open(self) -> None:
        shared: dict[str, Any] = {
            "bootstrap_servers": self.job.address.split(","),
            "request_timeout_ms": 3000,
            "retry_backoff_ms": 20,
            "metadata_max_age_ms": 1000,
        }
        self._sent: list[Any] = []
        self._producer: Any = self._again(
            KafkaProducer,
            transactional_id=self.job.transactional_id,
            transaction_timeout_ms=self.job.timeout_ms,
            delivery_timeout_ms=10_000,
            batch_size=2048,
            **shared,
        )
        self._producer.init_transactions()
        self._consumer: Any = self._again(
            KafkaConsumer,
            group_id=self.job.group,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            **shared,
        )
        self._keys = [PythonPartition(self.job.input_topic, each) for each in self.job.partitions]
        self._consumer.assign(self._keys)
        await self.rewind()

    @staticmethod
    def _again(make: Callable[..., Any], **settings: Any) -> Any:
        while True:
            try:
                return make(**settings)
            except KafkaError:
                continue

    async def rewind(self) -> None:
        for key in self._keys:
            self._consumer.seek(key, self._consumer.committed(key) or 0)

    async def read(self, most: int) -> list[Source]:
        found = self._consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=most)
        return [Source(key.partition, each.offset) for key, records in found.items() for each in records]

    async def begin(self) -> None:
        self._sent = []
        self._producer.begin_transaction()

    async def send(self, place: Place, key: bytes, value: bytes) -> None:
        sent = self._in_transaction(self._producer.send, place.topic, value, key, [], place.partition)
        self._sent.append(sent)

    async def send_offsets(self, positions: Mapping[int, int]) -> None:
        offsets = {
            PythonPartition(self.job.input_topic, each): OffsetAndMetadata(at, "", -1)
            for each, at in positions.items()
        }
        self._in_transaction(self._producer.send_offsets_to_transaction, offsets, self.job.group)

    @staticmethod
    def _in_transaction(call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except KafkaError as error:
            if getattr(error, "fatal", False):
                raise
            raise Abortable from error

    async def commit(self) -> None:
        for sent in self._sent:
            self._in_transaction(sent.get, _SEND_S)
        self._in_transaction(self._producer.commit_transaction)

    async def abort(self) -> None:
        self._producer.abort_transaction()


make: Final = KafkaPythonClient
