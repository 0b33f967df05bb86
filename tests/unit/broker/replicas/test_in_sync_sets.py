"""What became of a change of an in-sync set whose answer was an error, is found out before anybody joins."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.replicas import in_sync_sets
from tidelog.broker.replicas.in_sync_sets import InSyncSets
from tidelog.broker.replicas.leadership import Leadership


class _Cluster:
    """Its changes fail, and are stored."""

    def __init__(self, assigned: PartitionAssignment, error: Exception) -> None:
        self.error = error
        self.catalog = SimpleNamespace(topic_by_id=lambda _: SimpleNamespace(partitions=[assigned]))
        self.settled = asyncio.Event()

    async def change(self, plan: Any, dropped: Any) -> Any:
        raise self.error

    async def settle(self) -> None:
        self.settled.set()


class _Replica(SimpleNamespace):
    __hash__ = object.__hash__


@pytest.mark.parametrize("error", [StoreError("no answer"), ValueError("that nobody expects")])
async def test_a_follower_that_joined_in_spite_of_an_error_may_join_again_later(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(in_sync_sets, "_RETRY_SECONDS", 0)
    leadership = Leadership(PartitionAssignment(1, 0, (1, 2), (1,)), 0, 0)
    leadership.fetched(2, 7, 0, 0, 0, 20, 10)
    replica: Any = _Replica(
        leadership=leadership,
        topic_id=UUID(int=1),
        partition=0,
        least_in_sync=1,
        log=SimpleNamespace(config=SimpleNamespace(min_insync_replicas=1)),
        begin_joining=lambda: leadership.begin_joining(0),
        end_joining=lambda joined_in, joined, _: joined_in.end_joining(joined),
    )
    cluster: Any = _Cluster(leadership.assigned, error)
    sets = InSyncSets(cluster, SimpleNamespace(replicas={}, node_id=1), lambda: 30_000)  # type: ignore[arg-type]
    sets.start()
    sets.join(replica)
    async with asyncio.timeout(60):
        await cluster.settled.wait()
    assert leadership.may_join(2, 0)
    await sets.stop()
