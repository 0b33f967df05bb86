"""aiokafka as a processor uses it."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaConnectionError, ProducerFenced
from aiokafka.errors import KafkaError as AioError

from faults.transactions.client import POLL_S, Abortable, Client
from faults.transactions.history import Place, Source

_RETRY_S: Final = 0.1


class AiokafkaClient(Client):
    """aiokafka, of which a process ends after an abort that failed.

    It commits also where it gave up a record, as it does when a partition has no leader: whoever commits has
    to ask each record first.
    """

    async def open(self) -> None:
        shared: dict[str, Any] = {
            "bootstrap_servers": self.job.address,
            "request_timeout_ms": 1500,
            "retry_backoff_ms": 20,
            "metadata_max_age_ms": 1000,
        }
        self._sent: list[asyncio.Future[Any]] = []
        while True:
            self._producer = AIOKafkaProducer(
                transactional_id=self.job.transactional_id,
                transaction_timeout_ms=self.job.timeout_ms,
                max_batch_size=2048,
                **shared,
            )
            try:
                await self._producer.start()
                break
            except KafkaConnectionError:
                await self._producer.stop()
                await asyncio.sleep(_RETRY_S)
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
        found = await self._consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=most)
        return [Source(key.partition, each.offset) for key, records in found.items() for each in records]

    async def begin(self) -> None:
        self._sent = []
        await self._producer.begin_transaction()

    async def send(self, place: Place, key: bytes, value: bytes) -> None:
        sending = self._producer.send(place.topic, value, key, place.partition)
        self._sent.append(await self._in_transaction(sending))

    async def send_offsets(self, positions: Mapping[int, int]) -> None:
        offsets = {AioPartition(self.job.input_topic, each): at for each, at in positions.items()}
        await self._in_transaction(self._producer.send_offsets_to_transaction(offsets, self.job.group))

    @staticmethod
    async def _in_transaction(call: Any) -> Any:
        try:
            return await call
        except ProducerFenced:
            raise
        except AioError as error:
            raise Abortable from error

    async def commit(self) -> None:
        for sent in self._sent:
            await self._in_transaction(sent)
        await self._in_transaction(self._producer.commit_transaction())

    async def abort(self) -> None:
        await self._producer.abort_transaction()


make: Final = AiokafkaClient
