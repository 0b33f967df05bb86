"""An idempotent producer that writes numbers while a broker comes and goes; each must be stored once."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

from tests.waiting import DEADLINE_SECONDS
from tidelog import Admin, Consumer, Producer, TopicPartition
from tidelog.client import NewTopic

_PARTITIONS = 3
_UNANSWERED = 500
_VALUE_BYTES = 200


class Load:
    """Numbers from 0 on, to the partition that the number gives."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._servers = bootstrap_servers
        self._topic = topic
        self._acknowledged = 0
        self._is_over = False
        self._changed = asyncio.Event()

    async def acknowledge_more(self, records: int = 2000) -> None:
        """Return once the broker has acknowledged so many more."""
        goal = self._acknowledged + records
        async with asyncio.timeout(DEADLINE_SECONDS):
            while self._acknowledged < goal:
                self._changed.clear()
                await self._changed.wait()

    def end(self) -> None:
        self._is_over = True

    async def write(self) -> int:
        """Write until `end`; the count of records, all of them acknowledged."""
        number = 0
        unanswered: deque[Awaitable[object]] = deque()
        async with Producer(bootstrap_servers=self._servers) as producer:
            while not self._is_over or unanswered:
                if not self._is_over:
                    value = (b"%d" % number).ljust(_VALUE_BYTES)
                    unanswered.append(await producer.send(self._topic, value, partition=number % _PARTITIONS))
                    number += 1
                if self._is_over or len(unanswered) > _UNANSWERED:
                    await unanswered.popleft()
                    self._acknowledged += 1
                    self._changed.set()
        return number

    async def check(self, written: int) -> None:
        """Each number is stored once, and in order within its partition."""
        partitions = [TopicPartition(self._topic, each) for each in range(_PARTITIONS)]
        read: dict[int, list[int]] = {each: [] for each in range(_PARTITIONS)}
        async with Consumer(bootstrap_servers=self._servers, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions)
            async with asyncio.timeout(DEADLINE_SECONDS):
                while sum(map(len, read.values())) < written:
                    for key, records in (await consumer.getmany(timeout_ms=1000)).items():
                        read[key.partition].extend(int(record.value or b"-1") for record in records)
        for partition, numbers in read.items():
            assert numbers == list(range(partition, written, _PARTITIONS))


@asynccontextmanager
async def load(bootstrap_servers: str, topic: str = "numbers") -> AsyncIterator[Load]:
    """Write while the block runs, then check what is stored."""
    async with Admin(bootstrap_servers=bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=_PARTITIONS)])
    one = Load(bootstrap_servers, topic)
    writing = asyncio.create_task(one.write())
    try:
        await one.acknowledge_more()
        yield one
    finally:
        one.end()
        written = await writing
    await one.check(written)
