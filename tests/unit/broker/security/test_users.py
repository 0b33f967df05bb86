"""The secret of a cluster is one, though brokers that start at once all miss it."""

import asyncio
from pathlib import Path

from tidelog.broker.cluster.catalog import NOBODY
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store_sharing import StoreSharing
from tidelog.broker.security.users import Users


async def test_brokers_that_start_at_once_use_the_same_secret(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "cluster.db", node_id=0)
    await store.load()
    sharing = StoreSharing(store)
    clusters = []
    for _ in range(3):
        member = sharing.member()
        clusters.append(Cluster(await member.load(), member))

    async def secret(cluster: Cluster) -> object:
        await Users(cluster).make_secret()
        return cluster.catalog.users[NOBODY]

    first, *others = await asyncio.gather(*map(secret, clusters))
    assert others == [first, first]
    for cluster in clusters:
        await cluster.close()
    await sharing.close()
