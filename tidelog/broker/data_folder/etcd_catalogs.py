"""A catalog moves from the data folder of a stopped broker to etcd, or skips producer ids that logs know.

Owns the order of a move. Invariants: it may be killed at any step, and is finished by the next run; at no
moment a broker can use both catalogs, because the files have other names before etcd has anything; nothing
below a prefix that has a catalog already is changed.

The data folder has to be locked (`replicas.ownership.locked`).
"""

import asyncio
from pathlib import Path

from tidelog.broker.cluster.catalog import Catalog, ProducerIdsReserved
from tidelog.broker.cluster.choice import copy_path
from tidelog.broker.cluster.etcd_store import EtcdStore
from tidelog.broker.cluster.sqlite_store import MOVED, SqliteStore
from tidelog.broker.cluster.store import StoreConflict, StoreError
from tidelog.broker.cluster_stores import STORE_FILE, etcd_store_of
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.cluster_settings import ETCD
from tidelog.broker.coordinator.producer_ids import above_all_issued
from tidelog.broker.replicas.ownership import accept_revision
from tidelog.broker.storage.checkpoints import CheckpointError, read_identity
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.process_folders import PROCESSES
from tidelog.broker.storage.seen_producer_ids import highest_producer_id_below


async def move_to_etcd(config: BrokerConfig, disk: Disk) -> bool:
    """Move the catalog to where `cluster.store` says; False if an earlier move has done that.

    Raises StoreError, OSError.
    """
    store = _opened(config)
    try:
        own_id = await asyncio.to_thread(_cluster_id, disk, config.data_dir)
        there = await store.held_cluster_id()
        if there is not None and there != own_id:
            raise StoreError(
                f"etcd has the catalog of another cluster, {there}, and this folder is of {own_id}: set "
                f"another cluster.store.prefix than {config.cluster_store_prefix!r}. Nothing was changed"
            )
        files = _files(config.data_dir)
        if there is not None:
            if any(path.exists() for path in files):
                raise StoreError(
                    f"etcd has the catalog of this cluster already, and {config.data_dir} has one too: if "
                    f"that in etcd is the newer one, move {files[0].name} and {files[1].name} away. Nothing "
                    "was changed"
                )
            return False
        for path in files:  # An earlier move was killed.
            if not path.exists() and _moved(path).exists():
                disk.rename(_moved(path), path)
        disk.fsync_directory(config.data_dir)
        catalog = await _own_catalog(config)
        for path in files:
            disk.rename(path, _moved(path))
        disk.fsync_directory(config.data_dir)
        await store.begin_with(catalog)
    finally:
        await store.close()
    return True


async def raise_producer_ids(config: BrokerConfig, disk: Disk) -> int:
    """Let the catalog in etcd give no producer id that this data folder knows, and the folder accept it.

    Returns the next one that it gives. Raises StoreError, OSError.
    """
    store = _opened(config)
    try:
        await asyncio.to_thread(_accept, disk, config.data_dir)
        highest = await asyncio.to_thread(highest_producer_id_below, disk, config.data_dir)
        while True:
            catalog = await store.load()
            if catalog.next_producer_id > highest:
                return catalog.next_producer_id
            raised = above_all_issued(highest)
            try:
                await store.commit([ProducerIdsReserved(raised)], catalog.revision)
            except StoreConflict:
                continue
            return raised
    finally:
        await store.close()


def _opened(config: BrokerConfig) -> EtcdStore:
    if not config.cluster_store.startswith(ETCD):
        raise StoreError(
            f"cluster.store: expected {ETCD}URL,… of the members of etcd, got {config.cluster_store!r}"
        )
    if (config.data_dir / PROCESSES).exists():
        raise StoreError(
            f"{config.data_dir} has folders of several processes, and a broker over etcd has one: start this "
            "broker with --processes 1 and stop it, before it uses etcd"
        )
    return etcd_store_of(config, may_begin=False)


def _accept(disk: Disk, data_dir: Path) -> None:
    try:
        accept_revision(disk, data_dir)
    except CheckpointError as error:
        raise StoreError(str(error)) from error


def _cluster_id(disk: Disk, data_dir: Path) -> str:
    try:
        identity = read_identity(disk, data_dir)
    except CheckpointError as error:
        raise StoreError(str(error)) from error
    if identity is None:
        raise StoreError(f"{data_dir} is not the data folder of a broker: it has no meta.properties")
    return identity.cluster_id


def _files(data_dir: Path) -> tuple[Path, Path]:
    database = data_dir / STORE_FILE
    return database, copy_path(database)


def _moved(path: Path) -> Path:
    return path.with_name(path.name + MOVED)


async def _own_catalog(config: BrokerConfig) -> Catalog:
    """What the files have; afterwards they are closed, and whole without SQLite's log."""
    store = SqliteStore(config.data_dir / STORE_FILE, node_id=config.node_id, may_begin=False)
    try:
        return await store.load()
    finally:
        await store.close()
