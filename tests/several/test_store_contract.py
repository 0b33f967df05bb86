"""What every store of the catalog keeps to: SQLite, also over a socket, etcd, and the simulated etcd."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from faults.etcd import running_etcd
from tests.simulation.virtual_etcd import VirtualEtcd, VirtualEtcdClient
from tests.simulation.virtual_loop import Node
from tests.simulation.virtual_network import Network
from tests.unit.broker.cluster.stores import DATABASE, commit, facts_of, fill, topic
from tests.unit.broker.cluster.test_commit_feed import Watcher
from tests.waiting import until
from tidelog.broker.cluster.catalog import Catalog, ProducerIdsReserved, Topic, TopicCreated
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.etcd_client import EtcdClient
from tidelog.broker.cluster.etcd_store import EtcdStore
from tidelog.broker.cluster.placement import assign
from tidelog.broker.cluster.remote_store import RemoteStore
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import (
    BrokerSession,
    SessionHeld,
    SessionLives,
    SharedStore,
    StoreConflict,
    StoreError,
)
from tidelog.broker.cluster.store_server import StoreServer
from tidelog.broker.cluster.store_sharing import StoreSharing
from tidelog.broker.cluster.unix_sockets import bind_at

Opened = Callable[[int], SharedStore]
"""The store as the broker of this id has it."""


@pytest.fixture(params=["sqlite", "served", "virtual", pytest.param("etcd", marks=pytest.mark.needs_etcd)])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    made: list[SharedStore] = []

    def keep(store: SharedStore) -> SharedStore:
        made.append(store)
        return store

    def over(client: EtcdClient, node_id: int) -> SharedStore:
        return keep(
            EtcdStore(
                client,
                node_id=node_id,
                session_timeout_ms=600_000,
                image_after_commits=60,
                kept_commits=60,
            )
        )

    if request.param == "etcd":
        async with running_etcd(tmp_path) as members:
            yield lambda node_id: over(EtcdClient(members.endpoints), node_id)
            await asyncio.gather(*(store.close() for store in made))
        return
    if request.param == "virtual":
        loop: Any = asyncio.get_running_loop()
        etcd = VirtualEtcd(Network(loop, random.Random(1)), random.Random(1))
        yield lambda node_id: over(VirtualEtcdClient(etcd, Node(loop, f"broker-{node_id}")), node_id)
        await asyncio.gather(*(store.close() for store in made))
        return
    server: StoreServer | None = None
    sharing = StoreSharing(SqliteStore(tmp_path / DATABASE, node_id=1, is_shared=True))
    if request.param == "served":
        server = StoreServer(sharing)
        await server.start(bind_at(tmp_path / "store.sock"))
        yield lambda _: keep(RemoteStore(tmp_path / "store.sock"))
    else:
        yield lambda _: keep(sharing.member())
    await asyncio.gather(*(store.close() for store in made))
    if server is not None:
        await server.close()
    await sharing.close()


def reserve(catalog: Catalog) -> ProducerIdsReserved:
    return ProducerIdsReserved(catalog.next_producer_id + 1000)


async def test_everything_committed_is_in_what_others_load_and_watch(opened: Opened) -> None:
    store, other = opened(1), opened(2)
    catalog, followed = await store.load(), await other.load()
    watcher = Watcher(other.watch(followed.revision))
    await fill(store, catalog, random.Random(1))
    assert facts_of(await other.load()) == facts_of(catalog)
    await until(lambda: len(watcher.deltas) == catalog.revision)
    for delta in watcher.deltas:
        followed.apply(delta)
    assert facts_of(followed) == facts_of(catalog)
    assert list(followed.topics()) == list((await opened(3).load()).topics())
    watcher.task.cancel()


async def test_a_commit_on_an_old_revision_is_refused_and_no_watch_gets_it(opened: Opened) -> None:
    store, other = opened(1), opened(2)
    catalog = await store.load()
    await other.load()
    watcher = Watcher(other.watch(0))
    await commit(store, catalog, ProducerIdsReserved(1000), TopicCreated(topic("a")))
    for old in range(2):
        with pytest.raises(StoreConflict):
            await other.commit([ProducerIdsReserved(5000)], old)
    await commit(store, catalog, ProducerIdsReserved(2000))
    await until(lambda: len(watcher.deltas) == 3)
    assert facts_of(await other.load()) == facts_of(catalog)
    watcher.task.cancel()


async def test_changes_of_many_writers_are_each_made_once_and_all_images_are_equal(opened: Opened) -> None:
    stores = [opened(node_id) for node_id in range(3)]
    clusters = [Cluster(await store.load(), store) for store in stores]
    told: list[list[object]] = [[] for _ in clusters]
    for cluster, seen in zip(clusters, told, strict=True):
        cluster.follow(lambda change, seen=seen: seen.append(change.delta))  # type: ignore[misc]

    async def write(cluster: Cluster, node_id: int) -> None:
        for number in range(10):
            created = TopicCreated(topic(f"t-{node_id}-{number}", 2))
            await cluster.change(lambda _, created=created: created)
            await cluster.change(reserve)

    await asyncio.gather(*(write(cluster, node_id) for node_id, cluster in enumerate(clusters)))
    await until(lambda: all(cluster.catalog.revision == 60 for cluster in clusters))
    assert told[0] == told[1] == told[2]
    assert clusters[0].catalog.next_producer_id == 30_000
    loaded = facts_of(await stores[0].load())
    assert all(facts_of(cluster.catalog) == loaded for cluster in clusters)
    await asyncio.gather(*(cluster.close() for cluster in clusters))


async def test_what_became_of_a_commit_is_known_by_its_nonce(opened: Opened) -> None:
    store, other = opened(1), opened(2)
    catalog = await store.load()
    stored, lost = uuid4(), uuid4()
    await store.commit([ProducerIdsReserved(1000)], 0, nonce=stored)
    assert await store.settle(stored, 0)
    assert not await store.settle(lost, 1)
    await other.load()
    await other.commit([ProducerIdsReserved(2000)], 1)
    assert await store.settle(stored, 0)
    assert not await store.settle(lost, 1)
    catalog = await store.load()
    await commit(store, catalog, ProducerIdsReserved(3000))
    assert facts_of(await other.load()) == facts_of(catalog)


async def test_a_watch_from_before_what_is_kept_is_an_error_and_an_image_that_fell_behind_catches_up(
    opened: Opened,
) -> None:
    class Away:
        """A broker that hears nothing until `is_back`."""

        def __init__(self, store: SharedStore) -> None:
            self.store = store
            self.is_back = asyncio.Event()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.store, name)

        async def watch(self, revision: int) -> AsyncIterator[object]:
            await self.is_back.wait()
            async for made in self.store.watch(revision):
                yield made

    away = Away(opened(2))
    follower = Cluster(await away.load(), away)  # type: ignore[arg-type]
    store = opened(1)
    catalog = await store.load()
    await fill(store, catalog, random.Random(1))
    for _ in range(150):
        await commit(store, catalog, reserve(catalog))
    if isinstance(store, EtcdStore):
        if store._image_writing is not None:
            await store._image_writing
        store._image_after_commits = 2
        await store._replace_image()
    async with aclosing(store.watch(0)) as commits:  # type: ignore[type-var]
        with pytest.raises(StoreError, match="load the catalog again"):
            await anext(commits)
    away.is_back.set()
    await until(lambda: follower.catalog.revision == catalog.revision)
    assert facts_of(follower.catalog) == facts_of(catalog)
    await follower.change(reserve)
    await follower.close()


async def test_a_broker_has_one_session_which_others_see_until_it_ends(opened: Opened) -> None:
    store, again, other = opened(1), opened(1), opened(2)
    catalog = await store.load()
    first, second = BrokerSession(1, uuid4()), BrokerSession(1, uuid4())
    await store.begin_session(first)
    assert store.session_valid_until_ms > time.monotonic() * 1000
    for ended in (None, uuid4()):
        with pytest.raises(SessionHeld, match=r"another node\.id"):
            await again.begin_session(second, ended)
    sessions = other.watch_sessions()
    assert await anext(sessions) == {first}
    with pytest.raises(SessionLives):
        await other.commit([reserve(catalog)], 0, without_session=1)
    await store.end_session()
    assert store.session_valid_until_ms < time.monotonic() * 1000
    assert await anext(sessions) == set()
    await other.commit([reserve(catalog)], 0, without_session=1)
    await again.begin_session(second)
    assert await anext(sessions) == {second}
    with pytest.raises(StoreConflict):
        await other.commit([reserve(catalog)], 0, without_session=3)
    if not isinstance(store, RemoteStore):  # There a session ends with the process.
        third = BrokerSession(1, uuid4())
        await store.begin_session(third, second.incarnation)
        assert store.session_revision == (1 if isinstance(store, EtcdStore) else 0)
        assert await anext(sessions) == {third}
        await again.end_session()
        with pytest.raises(SessionLives):
            await other.commit([reserve(catalog)], 1, without_session=1)


async def test_a_commit_may_be_as_large_as_a_request_for_topics(opened: Opened) -> None:
    store = opened(1)
    catalog = await store.load()
    many = [Topic(f"t{number}", uuid4(), assign(1000, [1, 2, 3])) for number in range(10)]
    await commit(store, catalog, *map(TopicCreated, many), TopicCreated(topic("largest", 10_000)))
    assert facts_of(await opened(2).load()) == facts_of(catalog)
