"""Our client as a processor uses it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from faults.transactions.client import POLL_S, Abortable, Client
from faults.transactions.history import Place, Source
from tidelog.client import (
    ClientError,
    CommitFailedError,
    Consumer,
    Producer,
    TopicPartition,
    TransactionAbortableError,
    TransactionAbortedError,
)

_RETRY_S: Final = 0.05
_MEMBER: Final[dict[str, Any]] = {
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 500,
    "max_poll_interval_ms": 20_000,
}
_ClientT = TypeVar("_ClientT", Producer, Consumer)


class TidelogClient(Client):
    """Ours. Its calls end after request_timeout_ms, and can then be repeated."""

    async def open(self) -> None:
        shared: dict[str, Any] = {
            "bootstrap_servers": self.job.address,
            "request_timeout_ms": 1500,
            "retry_backoff_ms": 20,
            "retry_backoff_max_ms": 200,
        }
        self._producer = await self._started(
            lambda: Producer(
                transactional_id=self.job.transactional_id,
                transaction_timeout_ms=self.job.timeout_ms,
                max_batch_size=2048,
                **shared,
            )
        )
        member = {"group_protocol": self.job.group_protocol, **_MEMBER} if self.is_member else {}
        self._consumer = await self._started(
            lambda: Consumer(
                group_id=self.job.group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                **member,
                **shared,
            )
        )
        if self.is_member:
            self._consumer.subscribe([self.job.input_topic])
        else:
            self._consumer.assign(
                [TopicPartition(self.job.input_topic, each) for each in self.job.partitions]
            )
            await self.rewind()

    @staticmethod
    async def _started(make: Callable[[], _ClientT]) -> _ClientT:
        """A client that has started: one whose start failed cannot be started again."""
        while True:
            client = make()
            try:
                await client.start()
                return client
            except ClientError as error:
                if not error.retriable:
                    raise
                await client.stop()
                await asyncio.sleep(_RETRY_S)

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
        for key in sorted(self._consumer.assignment()):
            offset = await self._again(self._consumer.committed, key) or 0
            if key in self._consumer.assignment():
                self._consumer.seek(key, offset)

    async def read(self, most: int) -> list[Source]:
        try:
            found = await self._consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=most)
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
        offsets = {TopicPartition(self.job.input_topic, each): at for each, at in positions.items()}
        try:
            member = self._consumer.group_metadata()
        except CommitFailedError as error:
            raise Abortable from error
        await self._in_transaction(self._producer.send_offsets_to_transaction, offsets, member)

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


make: Final = TidelogClient
