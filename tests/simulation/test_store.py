"""The store in etcd on virtual time: what it says of a commit stays true, whatever arrives late."""

import asyncio
import random
from uuid import uuid4

import pytest

from tests.simulation.virtual_etcd import MEMBERS, VirtualEtcd, VirtualEtcdClient
from tests.simulation.virtual_loop import Node, VirtualLoop
from tests.simulation.virtual_network import Network
from tidelog.broker.cluster.catalog import ProducerIdsReserved
from tidelog.broker.cluster.etcd_store import EtcdStore
from tidelog.broker.cluster.store import BrokerSession, SessionLives


def test_a_commit_that_a_session_prevented_is_not_stored_later() -> None:
    loop = VirtualLoop(random.Random(1))
    etcd = VirtualEtcd(Network(loop, random.Random(1)), random.Random(1))

    async def play() -> int:
        store, other = (
            EtcdStore(VirtualEtcdClient(etcd, Node(loop, f"broker-{node_id}")), node_id=node_id)
            for node_id in (1, 2)
        )
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

    try:
        assert loop.run_until_complete(play()) == 0
    finally:
        loop.close()
