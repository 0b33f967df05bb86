"""The controller asks brokers where their logs end, and these answer late, or start again meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from tests.waiting import until
from tidelog.broker.cluster.catalog import (
    NO_LEADER,
    BrokerRegistered,
    BrokerRegistration,
    PartitionAssignment,
    Topic,
    TopicCreated,
)
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.membership import EndOfLog, Membership
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import BrokerSession
from tidelog.broker.cluster.store_sharing import StoreMember, StoreSharing
from tidelog.broker.replicas.roles import Role, is_unclean

TOPIC = Topic("t", uuid4(), (PartitionAssignment(NO_LEADER, 7, (2, 3), ()),))


@asynccontextmanager
async def controlled(folder: Path, end_of_log: EndOfLog) -> AsyncIterator[tuple[Cluster, StoreMember]]:
    """The image of broker 1, which is the controller, and the store of broker 3; broker 2 lives too."""
    sharing = StoreSharing(SqliteStore(folder / "cluster.db", node_id=0))
    store, *others = (sharing.member() for _ in range(3))
    cluster = Cluster(await store.load(), store)
    for node_id, other in enumerate(others, start=2):
        broker = BrokerRegistration(node_id, (), uuid4())
        await other.begin_session(BrokerSession(node_id, broker.incarnation))
        await cluster.change(lambda _, broker=broker: BrokerRegistered(broker))
    await cluster.change(lambda _: TopicCreated(TOPIC))
    membership = Membership(
        cluster,
        store,
        BrokerRegistration(1, ()),
        session_timeout_ms=1_000,
        least_in_sync=lambda _: 1,
        end_of_log=end_of_log,
    )
    await membership.begin()
    membership.check(uuid4(), (), None)
    await membership.register((), None)
    await membership.join()
    yield cluster, others[1]
    await membership.stop()
    await cluster.close()
    await sharing.close()


async def test_a_controller_that_waits_for_the_end_of_a_log_still_fences_brokers(tmp_path: Path) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def end_of_log(*_: object) -> tuple[int, int]:
        asked.set()
        await never.wait()
        return -1, 0

    async with controlled(tmp_path, end_of_log) as (cluster, third):
        await asked.wait()
        await third.end_session()
        await until(lambda: cluster.catalog.brokers[3].is_fenced)


@pytest.mark.parametrize("answers_first", [False, True])
async def test_the_end_of_a_log_does_not_count_once_its_broker_started_again(
    tmp_path: Path, *, answers_first: bool
) -> None:
    ends = {2: (7, 100), 3: (5, 50)}
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def end_of_log(node_id: int, *_: object) -> tuple[int, int]:
        if node_id == 3:
            asked.set()
            await may_answer.wait()
        return ends[node_id]

    async with controlled(tmp_path, end_of_log) as (cluster, _):
        changes: list[PartitionAssignment] = [*TOPIC.partitions]
        cluster.follow(lambda change: changes.extend(change.after.partitions if change.after else ()))
        await asked.wait()
        ends[2] = (-1, 0)
        if answers_first:  # Then the election waits for the change.
            may_answer.set()
        await cluster.change(lambda _: BrokerRegistered(BrokerRegistration(2, (), uuid4())))
        may_answer.set()

        def assigned() -> PartitionAssignment:
            (topic,) = cluster.catalog.topics()
            return topic.partitions[0]

        await until(lambda: assigned().isr)
        assert assigned().leader_id == 3
        assert not any(is_unclean(Role(False, then), Role(False, now)) for then, now in pairwise(changes))
