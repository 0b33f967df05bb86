"""The store's watch: every commit once and in order, from a revision on, or an error instead of a gap."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.broker.cluster.stores import DATABASE, broker, commit, topic
from tests.unit.broker.cluster.test_cluster import DoubtfulStore
from tests.waiting import until
from tidelog.broker.cluster.catalog import Catalog, Delta, ProducerIdsReserved, TopicCreated
from tidelog.broker.cluster.commit_feed import KEPT_COMMITS
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import Commit, StoreError


class Watcher:
    """Takes everything that a stream gives, until it ends."""

    def __init__(self, stream: AsyncIterator[Commit]) -> None:
        self.commits: list[Commit] = []
        self.task = asyncio.create_task(self._take(stream))

    async def _take(self, stream: AsyncIterator[Commit]) -> None:
        async for made in stream:
            self.commits.append(made)

    @property
    def deltas(self) -> list[Delta]:
        return [delta for made in self.commits for delta in made.deltas]


@pytest.fixture
async def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / DATABASE, node_id=1)


def some_deltas(number: int) -> list[Delta]:
    return [TopicCreated(topic(f"t{number}")), broker(number, 9092)][: 1 + number % 2]


async def test_a_watch_gives_every_commit_after_a_revision_once_and_in_order(store: SqliteStore) -> None:
    catalog = await store.load()
    commits = [some_deltas(number) for number in range(20)]
    committed = [delta for deltas in commits for delta in deltas]
    revisions = [catalog.revision]
    for deltas in commits[:10]:
        await commit(store, catalog, *deltas)
        revisions.append(catalog.revision)
    watchers = [Watcher(store.watch(revision)) for revision in revisions]
    for deltas in commits[10:]:
        await commit(store, catalog, *deltas)
    await until(lambda: all(w.commits and w.commits[-1].revision == catalog.revision for w in watchers))
    for revision, watcher in zip(revisions, watchers, strict=True):
        assert watcher.deltas == committed[revision:]
    await store.close()
    await asyncio.gather(*(watcher.task for watcher in watchers))  # Each ends with the store.


@pytest.mark.parametrize("stores", [True, False])
async def test_a_commit_that_failed_is_given_once_a_load_finds_it_stored(
    tmp_path: Path, stores: bool
) -> None:
    store = DoubtfulStore(tmp_path)
    await store.load()
    watcher = Watcher(store.watch(0))
    store.begin(stores=stores, is_readable=False)
    with pytest.raises(StoreError):
        await store.commit([ProducerIdsReserved(1000)], 0)
    with pytest.raises(StoreError):
        await store.load()
    assert watcher.commits == []
    store.heal()
    catalog = await store.load()
    await commit(store, catalog, ProducerIdsReserved(5000))
    await store.close()
    await watcher.task
    assert watcher.deltas == [ProducerIdsReserved(bound) for bound in ([1000, 5000] if stores else [5000])]


async def test_a_cancelled_waiter_for_a_commit_does_not_delay_others(
    store: SqliteStore,
) -> None:
    await store.load()
    watcher = Watcher(store.watch(0))
    asking = asyncio.create_task(store.commit([ProducerIdsReserved(1000)], 0))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    stored = await store.load()
    await until(lambda: len(watcher.commits) == stored.revision)
    await store.close()
    await watcher.task


@pytest.mark.parametrize("behind", [1, KEPT_COMMITS])
async def test_a_watch_from_before_what_is_kept_is_an_error_and_no_gap(
    store: SqliteStore, behind: int
) -> None:
    catalog: Catalog = await store.load()
    for number in range(KEPT_COMMITS + behind):
        await commit(store, catalog, ProducerIdsReserved(number))
    with pytest.raises(StoreError, match="load the catalog again"):
        await anext(store.watch(behind - 1))
    assert (await anext(store.watch(behind))).revision == behind + 1
    await store.close()


async def test_a_store_that_is_opened_again_has_nothing_from_before(tmp_path: Path) -> None:
    for revision in range(2):
        store = SqliteStore(tmp_path / DATABASE, node_id=1)
        catalog = await store.load()
        assert catalog.revision == revision
        if revision:
            with pytest.raises(StoreError, match="load the catalog again"):
                await anext(store.watch(0))
        await commit(store, catalog, ProducerIdsReserved(1000))
        await store.close()
