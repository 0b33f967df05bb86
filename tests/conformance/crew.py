"""Our consumers in groups: readers that remember what they were given, and crews of them in one group."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest

from tidelog.client import Admin, Consumer, ConsumerRecord, NewTopic, Producer

PARTITIONS = 4
RECORDS = 400
SESSION_MS = 6_000
HEARTBEAT_MS = 50
SHORT_SESSION_MS = 1_000
QUICK = {
    "group.min.session.timeout.ms": SHORT_SESSION_MS,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
}
CLASSIC: dict[str, Any] = {"group_protocol": "classic"}
CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ("cooperative-sticky",)}
both_protocols = pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
_numbers = count()


async def filled(address: str, records: int = RECORDS) -> str:
    """A new topic with `records` records, by number, over its partitions."""
    name = f"shared-{next(_numbers)}"
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS, 1, {})])
    await write(address, name, range(records))
    return name


async def write(address: str, topic: str, numbers: range) -> None:
    async with Producer(bootstrap_servers=address, retry_backoff_ms=20) as producer:
        for number in numbers:
            _ = await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


class Reader:
    """One of our consumers, read by a task. `given` has its records in their order."""

    def __init__(self, address: str, group: str, **settings: Any) -> None:
        quick = {
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "retry_backoff_ms": 20,
            "fetch_max_wait_ms": 50,
        }
        self.consumer = Consumer(bootstrap_servers=address, group_id=group, **{**quick, **settings})
        self.given: list[ConsumerRecord] = []
        self.wrong: list[ConsumerRecord] = []
        self.pause: Callable[[ConsumerRecord], Awaitable[None]] | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, *topics: str, listener: object = None) -> Reader:
        await self.consumer.start()
        if topics:
            self.consumer.subscribe(topics, listener=listener)
        self._task = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        async for record in self.consumer:
            if record.topic_partition not in self.consumer.assignment():
                self.wrong.append(record)
            self.given.append(record)
            if self.pause is not None:
                await self.pause(record)

    async def stop(self) -> None:
        await self.consumer.stop()
        if self._task is not None and self.pause is None:
            await self._task
        elif self._task is not None:
            self._task.cancel()

    def die(self) -> None:
        """Without a commit and without a word to the group."""
        if self.consumer._group is not None:
            for task in self.consumer._group._tasks:
                task.cancel()


class Crew:
    """Readers of one group."""

    def __init__(self, address: str, topic: str) -> None:
        self.address, self.topic, self.group = address, topic, f"group-{topic}"
        self.readers: list[Reader] = []
        self.gone: list[Reader] = []
        self.stack = AsyncExitStack()

    async def add(self, *, listener: object = None, **settings: Any) -> Reader:
        reader = await Reader(self.address, self.group, **settings).start(self.topic, listener=listener)
        self.stack.push_async_callback(reader.stop)
        self.readers.append(reader)
        return reader

    async def remove(self, reader: Reader) -> None:
        self.readers.remove(reader)
        self.gone.append(reader)
        await reader.stop()

    def shares(self) -> list[int]:
        return sorted(len(reader.consumer.assignment()) for reader in self.readers)

    def values(self) -> Counter[object]:
        everyone = [*self.readers, *self.gone]
        assert not any(reader.wrong for reader in everyone)
        return Counter(record.value for reader in everyone for record in reader.given)


def numbered(numbers: range) -> Counter[object]:
    return Counter(b"%d" % number for number in numbers)
