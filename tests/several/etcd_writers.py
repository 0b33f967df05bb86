"""Brokers' catalogs over a real etcd whose members fail, and what has to hold of them after it.

Owns the writers and their history. Each writes deltas that nobody else writes, so each can be found again.
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Self
from uuid import UUID

from faults.etcd import EtcdMembers
from tests.unit.broker.cluster.stores import facts_of, topic
from tests.waiting import until
from tidelog.broker.cluster.catalog import BrokerConfigsChanged, Change, Delta, TopicCreated
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.etcd_client import EtcdClient, EtcdCompacted
from tidelog.broker.cluster.etcd_store import EtcdStore
from tidelog.broker.cluster.store import StoreError


class Writer:
    """One broker's catalog. It changes something as soon as the change before is answered."""

    def __init__(self, node_id: int, cluster: Cluster, store: EtcdStore) -> None:
        self.cluster = cluster
        self.store = store
        self.acknowledged: list[Delta] = []
        self.unanswered: list[Delta] = []
        self.dropped: list[Delta] = []
        self.told: list[Delta] = []
        self.longest_s = 0.0
        """How long the slowest change took."""
        self._node_id = node_id
        self._numbers = itertools.count()
        self._is_writing = True
        self._task: asyncio.Task[None] | None = None
        cluster.follow(self._hear)

    @classmethod
    async def opened(cls, node_id: int, members: EtcdMembers) -> Self:
        """Its client is patient for longer than an election takes on a busy machine."""
        store = EtcdStore(
            EtcdClient(members.endpoints, patience_s=60), node_id=node_id, image_after_commits=100
        )
        return cls(node_id, Cluster(await store.load(), store), store)

    def _hear(self, change: Change) -> None:
        self.told.append(change.delta)

    def _plan(self, number: int) -> Delta:
        name = f"{self._node_id}-{number}"
        if number % 2:
            return BrokerConfigsChanged(name, {"num.partitions": str(number)})
        return TopicCreated(topic(name, 1 + number % 5))

    async def _write(self) -> None:
        while self._is_writing:
            delta, began_s = self._plan(next(self._numbers)), time.monotonic()
            try:
                await self.cluster.change(
                    lambda _, delta=delta: delta,  # type: ignore[misc]
                    lambda delta=delta: self.dropped.append(delta),  # type: ignore[misc]
                )
            except StoreError:
                self.unanswered.append(delta)
            else:
                self.acknowledged.append(delta)
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)

    async def goes_on(self, changes: int) -> None:
        """Return when so many more changes were acknowledged."""
        task = self._task = self._task or asyncio.create_task(self._write())
        wanted = len(self.acknowledged) + changes
        await until(lambda: len(self.acknowledged) >= wanted or task.done())
        if task.done():
            await task

    async def stop(self) -> None:
        self._is_writing = False
        if self._task is not None:
            await self._task

    async def close(self) -> None:
        await self.cluster.close()


async def through(writers: Sequence[Writer], *faults: Callable[[], Awaitable[None]]) -> None:
    """Let the writers work through each fault, and go on after it."""
    for fault in faults:
        await asyncio.gather(*(writer.goes_on(5) for writer in writers))
        await fault()
        await asyncio.gather(*(writer.goes_on(5) for writer in writers))


async def check(writers: Sequence[Writer]) -> int:
    """What holds after all faults, once nobody writes. Returns the number of acknowledged changes."""
    await asyncio.gather(*(writer.stop() for writer in writers))
    for writer in writers:
        await writer.cluster.settle()
    stored = await writers[0].store.load()
    await until(lambda: all(writer.cluster.catalog.revision == stored.revision for writer in writers))
    for writer in writers:
        assert facts_of(writer.cluster.catalog) == facts_of(stored)
        named = Counter(map(_name, writer.told))
        assert max(named.values()) == 1, "a delta was told twice"
        assert named.keys() == set(map(_name, writers[0].told))
        told = set(named)
        assert {_name(delta) for delta in writer.acknowledged} <= told
        assert not {_name(delta) for delta in writer.dropped} & told
        assert {_name(delta) for delta in writer.unanswered} <= told | set(map(_name, writer.dropped))
    assert stored.revision == len(writers[0].told)
    return sum(len(writer.acknowledged) for writer in writers)


def _name(delta: Delta) -> str | UUID:
    match delta:
        case TopicCreated(created):
            return created.topic_id
        case BrokerConfigsChanged(broker):
            return broker
    raise AssertionError(delta)


async def compact(client: EtcdClient) -> None:
    """Let etcd forget all but the newest values."""
    answer = await client.call("/v3/kv/range", {"key": "AA=="})
    with suppress(EtcdCompacted):  # It was asked again, because the first answer was lost.
        await client.call("/v3/kv/compaction", {"revision": answer["header"]["revision"], "physical": True})
