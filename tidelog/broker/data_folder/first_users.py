"""Makes a user in the catalog of a broker that does not run: the first one, or one whose password is lost.

Owns `add_user` for a catalog in a data folder, which has to be locked (`data_folder.locked`), and
`add_user_in_etcd`. Invariants: the change is as durable and as complete as one of a running broker, because
it goes through the same store; where there is no catalog yet, one is made, in a folder with the cluster and
node ids of its broker.

Blocking, but for `add_user_in_etcd`.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from tidelog.broker.cluster.catalog import UserChanged
from tidelog.broker.cluster.sqlite_store import SqliteStore, read_store
from tidelog.broker.cluster.store import ClusterStore
from tidelog.broker.cluster_stores import STORE_FILE
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.data_folder.etcd_catalogs import opened, patience_of, until_stopped
from tidelog.broker.security.users import check_name, planned
from tidelog.broker.storage.checkpoints import FolderIdentity, read_identity
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.manager import CLEAN_SHUTDOWN
from tidelog.protocol.scram import ScramCredential, ScramMechanism


def add_user(
    data_dir: Path,
    disk: Disk,
    user: str,
    credentials: Mapping[ScramMechanism, ScramCredential],
    *,
    node_id: int,
    cluster_id: str | None,
) -> bool:
    """Store these credentials; whether the user is new. A folder without a catalog gets these two ids.

    Raises ApiError for a name that no user may have, StoreError, CheckpointError, OSError.
    """
    check_name(user)
    identity = read_identity(disk, data_dir) or _identity_in_store(data_dir / STORE_FILE)
    store = SqliteStore(
        data_dir / STORE_FILE,
        node_id=identity.node_id if identity else node_id,
        cluster_id=identity.cluster_id if identity else cluster_id,
        may_begin=identity is None,
        was_clean=disk.exists(data_dir / CLEAN_SHUTDOWN),
    )
    return asyncio.run(_add(store, user, credentials))


async def add_user_in_etcd(
    config: BrokerConfig, disk: Disk, user: str, credentials: Mapping[ScramMechanism, ScramCredential]
) -> bool:
    """Store these credentials where `cluster.store` says, while no broker runs; whether the user is new.

    Raises ApiError for a name that no user may have, StoreError, CheckpointError, OSError.
    """
    check_name(user)
    # If this broker knows a cluster, an etcd without its catalog is the wrong one.
    identity = read_identity(disk, config.data_dir)
    store = opened(config, may_begin=identity is None)
    try:
        await store.load()
        await until_stopped(store, patience_of(config))
    except BaseException:
        await store.close()
        raise
    return await _add(store, user, credentials)


def _identity_in_store(path: Path) -> FolderIdentity | None:
    """Of a folder that has got a user and whose broker has not started yet."""
    for found in read_store(path):
        if found.cluster is not None:
            return FolderIdentity(found.cluster.catalog.cluster_id, found.cluster.node_id)
    return None


async def _add(store: ClusterStore, user: str, credentials: Mapping[ScramMechanism, ScramCredential]) -> bool:
    try:
        catalog = await store.load()
        delta: UserChanged = planned(catalog, user, credentials)
        await store.commit([delta], catalog.revision)
        return user not in catalog.users
    finally:
        await store.close()
