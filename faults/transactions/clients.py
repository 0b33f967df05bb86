"""Three clients as one interface: read inputs, and write outputs and offsets in a transaction.

Owns how each client is used, and what its errors mean: `Abortable`, or anything else, after which the process
ends. Invariants: the producer takes over its transactional id before positions are read, so that no earlier
transaction of the id is open then; a commit that may succeed later is repeated until it is decided.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from faults.transactions.history import Place, Source
from tidelog.client import (
    ClientError,
    Consumer,
    Producer,
    TopicPartition,
    TransactionAbortableError,
    TransactionAbortedError,
)

_POLL_S: Final = 0.2
_ATTEMPT_S: Final = 5.0
_RETRY_S: Final = 0.05


class Abortable(Exception):
    """The transaction failed. After an abort the next may begin."""


@dataclass(frozen=True)
class Job:
    """What a process works on."""

    address: str
    input_topic: str
    partitions: Sequence[int]
    group: str
    transactional_id: str
    timeout_ms: int
    """Of transactions."""


class Client(ABC):
    """One producer and one consumer. `open` comes first."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @abstractmethod
    async def open(self) -> None:
        """Take over the transactional id, and read from the committed offsets on."""

    @abstractmethod
    async def rewind(self) -> None:
        """Read from the committed offsets on."""

    @abstractmethod
    async def read(self, most: int) -> list[Source]:
        """Up to `most` inputs; none if none come soon."""

    @abstractmethod
    async def begin(self) -> None: ...

    @abstractmethod
    async def send(self, place: Place, key: bytes, value: bytes) -> None:
        """Raises Abortable, as do the next two."""

    @abstractmethod
    async def send_offsets(self, positions: Mapping[int, int]) -> None: ...

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def abort(self) -> None: ...


class TidelogClient(Client):
    """Ours. Its calls end after request_timeout_ms, and can then be repeated."""

    async def open(self) -> None:
        shared: dict[str, Any] = {
            "bootstrap_servers": self.job.address,
            "request_timeout_ms": 1500,
            "retry_backoff_ms": 20,
            "retry_backoff_max_ms": 200,
        }
        while True:
            self._producer = Producer(
                transactional_id=self.job.transactional_id,
                transaction_timeout_ms=self.job.timeout_ms,
                max_batch_size=2048,
                **shared,
            )
            try:
                await self._producer.start()
                break
            except ClientError as error:
                if not error.retriable:
                    raise
                await self._producer.stop()
                await asyncio.sleep(_RETRY_S)
        self._consumer = Consumer(
            group_id=self.job.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            **shared,
        )
        self._keys = [TopicPartition(self.job.input_topic, each) for each in self.job.partitions]
        self._consumer.assign(self._keys)
        await self._again(self._consumer.start)
        await self.rewind()

    @staticmethod
    async def _again(call: Callable[..., Any], *arguments: Any) -> Any:
        """Repeat a call until it succeeds or its error is not retriable."""
        while True:
            try:
                return await call(*arguments)
            except ClientError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(_RETRY_S)

    async def rewind(self) -> None:
        for key in self._keys:
            self._consumer.seek(key, await self._again(self._consumer.committed, key) or 0)

    async def read(self, most: int) -> list[Source]:
        try:
            found = await self._consumer.getmany(timeout_ms=int(_POLL_S * 1000), max_records=most)
        except ClientError as error:
            if not error.retriable:
                raise
            return []
        return [Source(key.partition, each.offset) for key, records in found.items() for each in records]

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def send(self, place: Place, key: bytes, value: bytes) -> None:
        await self._in_transaction(self._producer.send, place.topic, value, key, place.partition)

    async def send_offsets(self, positions: Mapping[int, int]) -> None:
        offsets = {key: positions[key.partition] for key in self._keys if key.partition in positions}
        await self._in_transaction(
            self._producer.send_offsets_to_transaction, offsets, self._consumer.group_metadata()
        )

    @staticmethod
    async def _in_transaction(call: Callable[..., Any], *arguments: Any) -> None:
        try:
            await call(*arguments)
        except (TransactionAbortableError, TransactionAbortedError) as error:
            raise Abortable from error
        except ClientError as error:
            if not error.retriable:
                raise
            raise Abortable from error

    async def commit(self) -> None:
        try:
            await self._again(self._producer.commit_transaction)
        except TransactionAbortableError as error:
            raise Abortable from error

    async def abort(self) -> None:
        await self._again(self._producer.abort_transaction)


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
            }
        )
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
        while True:
            try:
                found = self._consumer.committed(wanted, timeout=_ATTEMPT_S)
            except KafkaException:
                continue  # The broker is down, or the offsets are not stable yet.
            if not any(each.error for each in found):
                break
        starts = [ConfluentPartition(each.topic, each.partition, max(each.offset, 0)) for each in found]
        self._consumer.assign(starts)

    async def read(self, most: int) -> list[Source]:
        messages = self._consumer.consume(most, timeout=_POLL_S)
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


class AiokafkaClient(Client):
    """aiokafka, of which a process ends after an abort that failed."""

    async def open(self) -> None:
        shared: dict[str, Any] = {
            "bootstrap_servers": self.job.address,
            "request_timeout_ms": 1500,
            "retry_backoff_ms": 20,
            "metadata_max_age_ms": 1000,
        }
        self._producer = AIOKafkaProducer(
            transactional_id=self.job.transactional_id,
            transaction_timeout_ms=self.job.timeout_ms,
            max_batch_size=2048,
            **shared,
        )
        await self._producer.start()
        self._consumer = AIOKafkaConsumer(
            group_id=self.job.group,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            **shared,
        )
        self._keys = [AioPartition(self.job.input_topic, each) for each in self.job.partitions]
        await self._consumer.start()
        self._consumer.assign(self._keys)
        await self.rewind()

    async def rewind(self) -> None:
        for key in self._keys:
            self._consumer.seek(key, await self._consumer.committed(key) or 0)

    async def read(self, most: int) -> list[Source]:
        found = await self._consumer.getmany(timeout_ms=int(_POLL_S * 1000), max_records=most)
        return [Source(key.partition, each.offset) for key, records in found.items() for each in records]

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def send(self, place: Place, key: bytes, value: bytes) -> None:
        await self._in_transaction(self._producer.send(place.topic, value, key, place.partition))

    async def send_offsets(self, positions: Mapping[int, int]) -> None:
        offsets = {AioPartition(self.job.input_topic, each): at for each, at in positions.items()}
        await self._in_transaction(self._producer.send_offsets_to_transaction(offsets, self.job.group))

    @staticmethod
    async def _in_transaction(call: Any) -> None:
        try:
            await call
        except ProducerFenced:
            raise
        except AioError as error:
            raise Abortable from error

    async def commit(self) -> None:
        await self._in_transaction(self._producer.commit_transaction())

    async def abort(self) -> None:
        await self._producer.abort_transaction()


CLIENTS: Final[Mapping[str, type[Client]]] = {
    "tidelog": TidelogClient,
    "confluent": ConfluentClient,
    "aiokafka": AiokafkaClient,
}
