"""Changes of the catalog whose commit fails: what the store holds is applied, what it does not is dropped."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.unit.broker.cluster.stores import broker, facts_of
from tests.unit.broker.test_services import opened, stored
from tests.waiting import until
from tidelog.broker.cluster.catalog import (
    BrokerRegistered,
    BrokerRegistration,
    Catalog,
    Delta,
    PartitionAssignment,
    PartitionsChanged,
    ProducerIdsReserved,
    Topic,
    TopicCreated,
    TopicDeleted,
)
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.membership import Membership
from tidelog.broker.cluster.placement import assign
from tidelog.broker.cluster.reassignment import reassigned
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import Commit, StoreError
from tidelog.broker.cluster_stores import STORE_FILE
from tidelog.broker.replicas.topics import NewTopic
from tidelog.protocol.errors import ApiError, ErrorCode


class DoubtfulStore(SqliteStore):
    """Its disk does not say what became of a commit: whether it `stores`, and whether `load` works."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / STORE_FILE, node_id=1)
        self.fails = False
        self.stores = False
        self.is_readable = True

    def _load(self) -> Catalog:
        if not self.is_readable:
            raise StoreError("the disk is away")
        return super()._load()

    def _commit(self, deltas: Sequence[Delta], expected_revision: int) -> None:
        if not self.fails or self.stores:
            super()._commit(deltas, expected_revision)
        if self.fails:
            raise StoreError("the disk gave no answer")

    def begin(self, *, stores: bool, is_readable: bool = True) -> None:
        self.fails, self.stores, self.is_readable = True, stores, is_readable

    def heal(self) -> None:
        self.fails, self.is_readable = False, True


def reserve(catalog: Catalog) -> ProducerIdsReserved:
    return ProducerIdsReserved(catalog.next_producer_id + 1000)


def create(name: str) -> TopicCreated:
    return TopicCreated(Topic(name, uuid4(), assign(1, [1])))


async def test_a_commit_that_failed_and_is_stored_all_the_same_has_succeeded(tmp_path: Path) -> None:
    store = DoubtfulStore(tmp_path)
    cluster = Cluster(await store.load(), store)
    told: list[Delta] = []
    cluster.follow(lambda change: told.append(change.delta))
    store.begin(stores=True)
    delta = await cluster.change(reserve)
    assert told == [delta]
    assert cluster.catalog.next_producer_id == 1000
    store.heal()
    await cluster.change(lambda _: create("t"))
    assert (await store.load()).revision == cluster.catalog.revision == 2
    await cluster.close()


async def test_a_commit_that_failed_and_is_not_stored_changes_nothing(tmp_path: Path) -> None:
    store = DoubtfulStore(tmp_path)
    cluster = Cluster(await store.load(), store)
    dropped: list[bool] = []
    store.begin(stores=False)
    for _ in range(2):
        with pytest.raises(StoreError):
            await cluster.change(reserve, dropped=lambda: dropped.append(True))
    assert dropped == [True, True]
    assert cluster.catalog.next_producer_id == 0
    store.heal()
    await cluster.change(reserve)
    assert cluster.catalog.next_producer_id == 1000
    await cluster.close()


@pytest.mark.parametrize("stores", [True, False])
async def test_while_a_change_is_in_doubt_no_other_is_made(tmp_path: Path, stores: bool) -> None:
    store = DoubtfulStore(tmp_path)
    cluster = Cluster(await store.load(), store)
    became: list[str] = []
    cluster.follow(lambda change: became.append(type(change.delta).__name__))
    store.begin(stores=stores, is_readable=False)
    with pytest.raises(StoreError):
        await cluster.change(reserve, lambda: became.append("dropped"))
    store.fails = False
    for _ in range(2):
        with pytest.raises(StoreError, match="away"):
            await cluster.change(lambda _: create("t"))
    assert (became, cluster.catalog.revision) == ([], 0)
    store.heal()
    await cluster.change(lambda _: create("t"))
    assert became == ["ProducerIdsReserved" if stores else "dropped", "TopicCreated"]
    assert cluster.catalog.next_producer_id == (1000 if stores else 0)
    await cluster.close()


async def test_of_changes_stored_one_by_one_only_the_one_in_doubt_waits_to_be_dropped(tmp_path: Path) -> None:
    class GoesAway(DoubtfulStore):
        commits = 0

        def _commit(self, deltas: Sequence[Delta], expected_revision: int) -> None:
            self.commits += 1
            self.is_readable = self.commits != 3  # The group, the first of it, the second of it.
            super()._commit(deltas, expected_revision)

    store = GoesAway(tmp_path)
    cluster = Cluster(await store.load(), store)
    dropped: list[int] = []
    store.begin(stores=False)
    changes = [cluster.change(reserve, partial(dropped.append, number)) for number in range(3)]
    results = await asyncio.gather(*changes, return_exceptions=True)
    assert [type(result) for result in results] == [StoreError] * 3
    assert dropped == [0, 2]
    store.heal()
    await cluster.change(reserve)
    assert (dropped, cluster.catalog.next_producer_id) == ([0, 2, 1], 1000)
    await cluster.close()


async def test_the_image_follows_again_after_a_watch_that_failed_and_followers_get_the_difference(
    tmp_path: Path,
) -> None:
    class GivesUp(DoubtfulStore):
        def watch(self, revision: int) -> AsyncIterator[Commit]:
            return given_up() if self.is_away else super().watch(revision)

        is_away = True

    async def given_up() -> AsyncIterator[Commit]:
        raise StoreError("the watch is lost")
        yield

    store = GivesUp(tmp_path)
    cluster = Cluster(await store.load(), store)
    told: list[Delta] = []
    cluster.follow(lambda change: told.append(change.delta))
    reserved = await cluster.change(reserve)  # The image is loaded each time that the watch fails.
    assert told == [reserved]
    store.is_readable = False
    await until(lambda: cluster._failure is not None)
    dropped: list[bool] = []
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot be followed"):
            await cluster.change(reserve, lambda: dropped.append(True))
    assert dropped == [True, True]
    store.is_away, store.is_readable = False, True
    await until(lambda: cluster._failure is None)
    created = await cluster.change(lambda _: create("t"))
    assert told == [reserved, created]
    assert facts_of(await store.load()) == facts_of(cluster.catalog)
    await cluster.close()


async def test_an_older_store_in_its_place_is_not_followed(tmp_path: Path) -> None:
    store, older = DoubtfulStore(tmp_path / "new"), DoubtfulStore(tmp_path / "old")
    cluster = Cluster(await store.load(), store)
    await cluster.change(reserve)
    await older.load()
    cluster._store = older
    await store.close()
    store._feed.publish(Commit(9, (TopicDeleted(uuid4()),)))  # Does not fit, so the store is loaded again.
    await until(lambda: cluster._failure is not None)
    with pytest.raises(StoreError, match="put the newest one back"):
        await cluster.change(reserve)
    await cluster.close()


async def test_a_change_does_not_wait_for_a_writer_that_does_not_exist(tmp_path: Path) -> None:
    """Older files in place of the newest ones look like a commit of somebody else."""
    folder, older = tmp_path / "new", tmp_path / "old"
    store = SqliteStore(folder / STORE_FILE, node_id=1)
    await store.load()
    await store.close()
    shutil.copytree(folder, older)
    store = SqliteStore(folder / STORE_FILE, node_id=1)
    cluster = Cluster(await store.load(), store)
    await cluster.change(reserve)
    await store._run(store._close)  # As after a commit that failed.
    shutil.rmtree(folder)
    shutil.copytree(older, folder)
    for _ in range(2):
        with pytest.raises(StoreError, match="put back the newest one"):
            await cluster.change(reserve)
    await cluster.close()


async def test_plans_that_another_writer_overtook_are_made_again_until_they_are_stored_or_refused(
    tmp_path: Path,
) -> None:
    store = DoubtfulStore(tmp_path)
    clusters = [Cluster(await store.load(), store) for _ in range(3)]

    def first_of(name: str, catalog: Catalog) -> TopicCreated:
        return catalog.plan_topic(name, uuid4(), assign(1, [1]), {})

    changes = [
        cluster.change(plan)
        for cluster in clusters
        for plan in (reserve, *(partial(first_of, f"t{number}") for number in range(5)))
    ]
    results = await asyncio.gather(*changes, return_exceptions=True)
    made = [result for result in results if not isinstance(result, BaseException)]
    refused = [result.code for result in results if isinstance(result, ApiError)]
    assert (len(made), refused) == (3 + 5, [ErrorCode.TOPIC_ALREADY_EXISTS] * 10)
    await until(lambda: all(cluster.catalog.revision == 8 for cluster in clusters))
    for cluster in clusters:
        assert facts_of(cluster.catalog) == facts_of(await store.load())
        assert cluster.catalog.next_producer_id == 3000
    await asyncio.gather(*(cluster.close() for cluster in clusters))


async def test_a_reassignment_that_an_old_image_has_already_is_planned_on_the_newest(tmp_path: Path) -> None:
    may_tell = asyncio.Event()

    class TellsTheSecondLate(DoubtfulStore):
        watches = 0

        async def watch(self, revision: int) -> AsyncIterator[Commit]:
            self.watches += 1
            if self.watches == 2:
                await may_tell.wait()
            async for commit in super().watch(revision):
                yield commit

    store = TellsTheSecondLate(tmp_path)
    topic = Topic("t", uuid4(), assign(1, [1, 2], 2))
    catalog = await store.load()
    await store.commit((broker(1), broker(2), TopicCreated(topic)), catalog.revision)
    first, second = [Cluster(await store.load(), store) for _ in range(2)]

    planned_at: list[int] = []

    def reassign(cluster: Cluster, replicas: Sequence[int]) -> Awaitable[PartitionsChanged]:
        def plan(catalog: Catalog) -> PartitionsChanged:
            planned_at.append(catalog.revision)
            return reassigned(catalog, topic.topic_id, {0: replicas}, lambda _: 1, {})

        return cluster.change(plan)

    await reassign(first, [1])
    given_back = asyncio.ensure_future(reassign(second, [1, 2]))
    await until(lambda: len(planned_at) == 2)
    may_tell.set()
    assert (await given_back).partitions[0].removing == ()
    await until(lambda: first.catalog.revision == second.catalog.revision)
    assert first.catalog.topic("t") == second.catalog.topic("t")
    await asyncio.gather(first.close(), second.close())


async def test_what_a_full_store_refused_is_not_there_and_the_next_goes_on(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / STORE_FILE, node_id=1)
    cluster = Cluster(await store.load(), store)
    await cluster.change(lambda _: create("before"))
    connection = store._connection
    assert connection is not None
    await store._run(lambda: connection.execute("PRAGMA max_page_count=1").fetchone())
    many = TopicCreated(Topic("many", uuid4(), assign(5_000, [1])))
    with pytest.raises(StoreError, match="full"):
        await cluster.change(lambda _: many)
    assert cluster.catalog.topic("many") is None
    await cluster.change(lambda _: create("after"))
    await cluster.close()
    again = SqliteStore(tmp_path / STORE_FILE, node_id=1)
    assert [topic.name for topic in (await again.load()).topics()] == ["before", "after"]
    await again.close()


@pytest.mark.parametrize("stores", [True, False])
async def test_a_topic_in_doubt_is_served_or_taken_back_once_it_is_known(
    tmp_path: Path, stores: bool
) -> None:
    store = DoubtfulStore(tmp_path)
    services = await opened(tmp_path, store=store)
    store.begin(stores=stores, is_readable=False)
    for name in ("t", "t", "other"):
        with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.KAFKA_STORAGE_ERROR):
            await services.topics.create(name, NewTopic(num_partitions=2))
    assert not services.replicas
    store.heal()
    if stores:
        with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
            await services.topics.create("t", NewTopic(num_partitions=2))
    else:
        await services.topics.create("t", NewTopic(num_partitions=3))
    await stored(services, b"v")
    assert len(services.replicas) == (2 if stores else 3)
    await services.close()
    services = await opened(tmp_path)
    assert len(services.replicas) == (2 if stores else 3)
    await services.close()


@pytest.mark.parametrize("stores", [True, False])
async def test_a_deletion_in_doubt_removes_the_topic_only_if_it_is_stored(
    tmp_path: Path, stores: bool
) -> None:
    store = DoubtfulStore(tmp_path)
    services = await opened(tmp_path, store=store)
    topic = await services.topics.create("t")
    await stored(services, b"old")
    store.begin(stores=stores, is_readable=False)
    with pytest.raises(ApiError):
        await services.topics.delete(topic.topic_id)
    assert list(services.replicas) == [("t", 0)]
    store.heal()
    # What settles it need not be about topics.
    assert await services.producer_ids.next() >= 0
    if stores:
        again = await services.topics.create("t")
        assert again.topic_id != topic.topic_id
        assert services.replicas["t", 0].log.end_offset == 0
    else:
        await stored(services, b"new")
        assert services.replicas["t", 0].log.end_offset == 2
    await services.close()


@pytest.mark.parametrize(("in_sync", "stores"), [((1, 2), True), ((1, 2), False), ((1,), True)])
async def test_a_leader_that_gives_up_knows_that_it_leads_on_only_once_that_is_certain(
    tmp_path: Path, in_sync: tuple[int, ...], stores: bool
) -> None:
    store = DoubtfulStore(tmp_path)
    cluster = Cluster(await store.load(), store)
    for node_id in (1, 2):
        await cluster.change(lambda _, node_id=node_id: BrokerRegistered(BrokerRegistration(node_id, ())))
    topic = Topic("t", uuid4(), (PartitionAssignment(1, 0, (1, 2), in_sync),))
    await cluster.change(lambda _: TopicCreated(topic))
    shared: Any = store
    membership = Membership(
        cluster,
        shared,
        BrokerRegistration(1, ()),
        session_timeout_ms=1_000,
        least_in_sync=lambda _: 1,
    )
    kept: list[bool] = []
    store.begin(stores=stores, is_readable=False)
    membership.give_up_soon(topic.topic_id, 0, lambda: kept.append(True))
    await membership._giving_up.ended()
    assert any(kept) == (in_sync == (1,))
    store.heal()
    await cluster.change(lambda _: create("u"))
    found = cluster.catalog.topic_by_id(topic.topic_id)
    assert found is not None
    leaves = in_sync == (1, 2) and stores
    assert (any(kept), found.partitions[0].leader_id) == (not leaves, 2 if leaves else 1)
    await cluster.close()
