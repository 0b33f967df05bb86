"""The store in etcd on virtual time: what it says of a commit stays true, whatever arrives late."""

import asyncio
import copy
import random
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.simulation.checked_store import are_equal
from tests.simulation.virtual_etcd import MEMBERS, VirtualEtcd, VirtualEtcdClient
from tests.simulation.virtual_loop import Node, VirtualLoop
from tests.simulation.virtual_network import Network
from tidelog.broker.cluster import etcd_layout
from tidelog.broker.cluster.catalog import AclsChanged, BrokerRegistration, Catalog, ProducerIdsReserved
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.etcd_store import EtcdStore
from tidelog.broker.cluster.store import BrokerSession, SeenCommit, SessionLives, StoreConflict, StoreError
from tidelog.protocol.acls import Acl, Operation, PatternType, Permission, ResourceType


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop(random.Random(1))
    yield made
    made.close()


@pytest.fixture
def etcd(loop: VirtualLoop) -> VirtualEtcd:
    return VirtualEtcd(Network(loop, random.Random(1)), random.Random(1))


def two_stores(etcd: VirtualEtcd, loop: VirtualLoop) -> tuple[EtcdStore, EtcdStore]:
    """Of the brokers 1 and 2."""
    first, second = (
        EtcdStore(VirtualEtcdClient(etcd, Node(loop, f"broker-{node_id}")), node_id=node_id)
        for node_id in (1, 2)
    )
    return first, second


def test_a_commit_that_a_session_prevented_is_not_stored_later(loop: VirtualLoop, etcd: VirtualEtcd) -> None:
    async def play() -> int:
        store, other = two_stores(etcd, loop)
        await store.load()
        await other.begin_session(BrokerSession(2, uuid4()))
        etcd.stop(MEMBERS[0])  # It has the first sending of the commit, another member the second one.
        with pytest.raises(SessionLives):
            await store.commit([ProducerIdsReserved(1000)], 0, nonce=uuid4(), without_session=2)
        await other.end_session()
        etcd.go_on(MEMBERS[0])
        await loop.after(1)
        revision = (await store.load()).revision
        await asyncio.gather(store.close(), other.close())
        return revision

    assert loop.run_until_complete(play()) == 0


def test_a_change_that_a_newer_release_wrote_is_not_taken_for_damage(
    loop: VirtualLoop, etcd: VirtualEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        newer, older = two_stores(etcd, loop)
        await newer.load()
        await older.load()
        monkeypatch.setattr(etcd_layout, "delta_fields", lambda _: {"of the next release": 1})
        await newer.commit([ProducerIdsReserved(1000)], 0, nonce=uuid4())
        for reading in (older.load(), anext(older.watch(0))):
            with pytest.raises(StoreError, match=r"newer release wrote it: upgrade this broker"):
                await reading
        await asyncio.gather(newer.close(), older.close())

    loop.run_until_complete(play())


def test_what_a_broker_sees_while_it_asks_does_not_look_like_an_older_store(
    loop: VirtualLoop, etcd: VirtualEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        store, other = two_stores(etcd, loop)
        await store.load()
        await other.load()
        await other.commit([ProducerIdsReserved(1000)], 0)
        store.seen = SeenCommit(1, "of the other")
        with pytest.raises(StoreConflict):
            await store.commit([ProducerIdsReserved(2000)], 0)

        call = store._client.call

        async def late(*arguments: Any, **options: Any) -> Any:
            answer = await call(*arguments, **options)
            store.seen = SeenCommit(2, "that came meanwhile")
            return answer

        store.seen = SeenCommit()
        monkeypatch.setattr(store._client, "call", late)
        await store._look()
        assert not store.view.is_lost
        await asyncio.gather(store.close(), other.close())

    loop.run_until_complete(play())


def test_a_store_that_was_restored_and_changed_since_is_refused(loop: VirtualLoop, etcd: VirtualEtcd) -> None:
    async def play() -> None:
        store, other, restored = (
            EtcdStore(VirtualEtcdClient(etcd, Node(loop, f"broker-{node_id}")), node_id=node_id)
            for node_id in (1, 2, 3)
        )
        cluster = Cluster(await store.load(), store)
        await other.load()
        await other.commit([ProducerIdsReserved(1000)], 0)
        common = await _seen_by(loop, store, 1)
        backup = copy.deepcopy((etcd._keys, etcd._values, etcd.revision))
        await other.commit([ProducerIdsReserved(2000)], 1)
        lost = await _seen_by(loop, store, 2)
        assert await restored.holds(lost)

        etcd._keys, etcd._values, etcd.revision = backup
        assert await restored.holds(common)
        assert not await restored.holds(lost)
        await restored.load()
        await restored.commit([ProducerIdsReserved(2000)], 1)
        assert not await restored.holds(lost)
        # The watch does not know of it yet.
        with pytest.raises(StoreError, match="lacks revision 2 as this broker has seen it"):
            await cluster.change(lambda _: ProducerIdsReserved(9000))
        await restored.commit([ProducerIdsReserved(3000), ProducerIdsReserved(4000)], 2)
        assert await restored.holds(common)
        assert not await restored.holds(lost)
        assert not await restored.holds(SeenCommit(3, "of a commit between"))
        assert await restored.holds(SeenCommit(2))
        etcd.restart()
        await loop.after(5)
        assert store.view.is_lost
        assert cluster.catalog.revision == 2
        with pytest.raises(StoreError, match="lacks revision 2 as this broker has seen it"):
            await cluster.change(lambda _: ProducerIdsReserved(9000))
        await restored._client.call("/v3/kv/deleterange", restored._layout.entries_after(0))
        assert await restored.holds(lost), "the journal does not show it any more"
        await asyncio.gather(cluster.close(), other.close(), restored.close())

    loop.run_until_complete(play())


async def _seen_by(loop: VirtualLoop, store: EtcdStore, revision: int) -> SeenCommit:
    while store.seen.revision < revision:
        await loop.after(0.1)
    return store.seen


def test_images_with_the_same_facts_in_another_order_are_equal() -> None:
    kind = ResourceType.TOPIC, PatternType.LITERAL
    acls = [Acl(*kind, name, "User:a", "*", Operation.READ, Permission.ALLOW) for name in "ab"]
    brokers = [BrokerRegistration(number, ()) for number in (1, 2)]
    image, reloaded = (
        Catalog("c", acls=acls, brokers=brokers),
        Catalog("c", acls=acls[::-1], brokers=brokers[::-1]),
    )
    assert are_equal(image, reloaded)
    reloaded.apply(AclsChanged(removed=(acls[0],)))
    assert not are_equal(image, reloaded)
