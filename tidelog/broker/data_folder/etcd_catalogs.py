"""A catalog moves from the data folder of a stopped broker to etcd, or an older one in etcd is corrected.

Owns the order of both. Invariants: each may be killed at any step, and is finished by the next run. A move:
at no moment a broker can use both catalogs, because the files have other names before etcd has anything;
nothing below a prefix that has a catalog already is changed. A correction: no broker runs meanwhile, and the
folder accepts an older catalog only after it is corrected.

The data folder has to be locked (`replicas.ownership.locked`).
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidelog.broker.cluster.catalog import Catalog, Delta, ProducerIdsReserved
from tidelog.broker.cluster.choice import copy_path
from tidelog.broker.cluster.controller import without_in_sync_sets
from tidelog.broker.cluster.etcd_store import EtcdStore
from tidelog.broker.cluster.sqlite_store import MOVED, SqliteStore
from tidelog.broker.cluster.store import BrokerSession, SeenCommit, SharedStore, StoreConflict, StoreError
from tidelog.broker.cluster_stores import STORE_FILE, etcd_store_of
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.cluster_settings import ETCD
from tidelog.broker.coordinator.producer_ids import above_all_issued
from tidelog.broker.storage.checkpoints import (
    CATALOG_COMMIT,
    CheckpointError,
    read_identity,
    write_commit,
)
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.folders import FoundPartition
from tidelog.broker.storage.manager import LogManager
from tidelog.broker.storage.process_folders import PROCESSES
from tidelog.broker.storage.recovery import ANY_EPOCH
from tidelog.broker.storage.seen_producer_ids import highest_producer_id_below
from tidelog.protocol.types import NO_LEADER_EPOCH

_AT_ONCE: Final = 100
"""Deltas of one commit."""


async def move_to_etcd(config: BrokerConfig, disk: Disk) -> bool:
    """Move the catalog to where `cluster.store` says; False if an earlier move has done that.

    Raises StoreError, OSError.
    """
    store = opened(config)
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
    store = opened(config)
    try:
        highest = await asyncio.to_thread(highest_producer_id_below, disk, config.data_dir)
        folders = await asyncio.to_thread(_latest_epochs, disk, config.data_dir)
        patience_s = patience_of(config)
        next_id = await correct_older_catalog(store, config.node_id, highest, folders, patience_s)
        await asyncio.to_thread(write_commit, disk, config.data_dir / CATALOG_COMMIT, SeenCommit())
        return next_id
    finally:
        await store.close()


async def correct_older_catalog(
    store: SharedStore,
    node_id: int,
    highest_producer_id: int,
    latest_epochs: Mapping[FoundPartition, int],
    patience_s: float,
) -> int:
    """Take back what an older catalog says too much of: producer ids, leader epochs and in-sync sets that
    the data folder of broker `node_id` knows better. Returns the next producer id.

    Time in which the sessions of stopped brokers must end. Raises StoreError, OSError.
    """
    while True:
        await until_stopped(store, patience_s)
        catalog = await store.load()
        _check_held(catalog, node_id, latest_epochs)
        by_id = {
            (each.topic_id, each.partition): epoch
            for each, epoch in latest_epochs.items()
            if each.topic_id is not None and epoch != ANY_EPOCH
        }
        deltas: list[Delta] = [*without_in_sync_sets(catalog, by_id)]
        if catalog.next_producer_id <= highest_producer_id:
            deltas.append(ProducerIdsReserved(above_all_issued(highest_producer_id)))
        if not deltas:
            return catalog.next_producer_id
        with suppress(StoreConflict):
            await store.commit(deltas[:_AT_ONCE], catalog.revision)


def patience_of(config: BrokerConfig) -> float:
    """Seconds in which the session of a broker that was killed ends."""
    return 1.5 * config.broker_session_timeout_ms / 1000


async def until_stopped(store: SharedStore, patience_s: float) -> None:
    """Return once no broker has a session. Raises StoreError that names those which still have."""
    living: frozenset[BrokerSession] = frozenset()
    try:
        async with asyncio.timeout(patience_s):
            async for living in store.watch_sessions():
                if not living:
                    return
    except TimeoutError:
        names = ", ".join(str(node_id) for node_id in sorted(each.node_id for each in living))
        raise StoreError(
            f"expected no running broker, but these run: {names}. Stop them, and run the command again. "
            "Nothing was changed"
        ) from None


def _check_held(catalog: Catalog, node_id: int, found: Iterable[FoundPartition]) -> None:
    """Raise StoreError if the catalog was saved before partitions were moved to this broker."""
    moved = [
        f"{each.topic}-{each.partition}"
        for each in found
        if (topic := catalog.topic(each.topic)) is not None
        and each.topic_id == topic.topic_id
        and topic.has_partition(each.partition)
        and node_id not in topic.partitions[each.partition].replicas
    ]
    if moved:
        raise StoreError(
            f"this broker has records of {', '.join(moved)}, and the catalog gives these partitions to "
            "others: it was saved before they were moved here. Put back a later catalog, or move these "
            "folders away if their records are not needed. Nothing was changed"
        )


def _latest_epochs(disk: Disk, data_dir: Path) -> dict[FoundPartition, int]:
    """Of the partitions that have records, or had some: the leader epoch of the last one."""
    logs = LogManager(data_dir, next_producer_id=int, disk=disk)
    epochs = {found: logs.latest_epoch(found) for found in logs.found_partitions()}
    return {found: epoch for found, epoch in epochs.items() if epoch != NO_LEADER_EPOCH}


def opened(config: BrokerConfig, *, may_begin: bool = False) -> EtcdStore:
    """The store that the settings name. Raises StoreError if that is not etcd."""
    if not config.cluster_store.startswith(ETCD):
        raise StoreError(
            f"cluster.store: expected {ETCD}URL,… of the members of etcd, got {config.cluster_store!r}"
        )
    if (config.data_dir / PROCESSES).exists():
        raise StoreError(
            f"{config.data_dir} has folders of several processes, and a broker over etcd has one: start this "
            "broker with --processes 1 and stop it, before it uses etcd"
        )
    return etcd_store_of(config, may_begin=may_begin)


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
