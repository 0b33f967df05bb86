"""The process that owns the catalog of a broker of several processes, and answers on `http.port`.

Owns the order of its start: open the store, bring each partition's folder to its process, then serve the
others. If it is started again, the others run, and their folders do not change. At the end it waits for the
others: it closes the store once no process is connected.

Invariant: while it does not run, the others serve what they have; what changes the catalog waits.
"""

import asyncio
import signal
import socket
from pathlib import Path
from typing import Final

import structlog

from tidelog.broker.app import not_started, run
from tidelog.broker.cluster.catalog import ProducerIdsReserved
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.cluster.store_server import StoreServer
from tidelog.broker.cluster.store_sharing import StoreSharing
from tidelog.broker.cluster.unix_sockets import bind_at
from tidelog.broker.cluster_stores import STORE_FILE
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.coordinator.producer_ids import above_all_issued
from tidelog.broker.observability import log_events
from tidelog.broker.processes import moves, placement
from tidelog.broker.processes.http_proxy import HttpProxy
from tidelog.broker.processes.parent_pipe import OtherEnd, longest_silence_seconds
from tidelog.broker.replicas.ownership import is_in_use
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.manager import CLEAN_SHUTDOWN, DataFolderError
from tidelog.broker.storage.process_folders import store_socket
from tidelog.broker.storage.seen_producer_ids import highest_producer_id_below
from tidelog.protocol.settings import ConfigError

_LEAST_PATIENCE_SECONDS: Final = 10.0
"""How much longer than shutdown.timeout.ms the other processes may take to end before the store closes."""
logger = structlog.get_logger(__name__)


async def settled_store(config: BrokerConfig, count: int, *, is_again: bool = False) -> SqliteStore:
    """The store, once each partition's folder is where one of `count` processes expects it.

    With `is_again` the others run, and no folder is looked at: that of a topic which one of them is making is
    not in the catalog yet.

    Raises DataFolderError, StoreError, OSError.
    """
    disk, data_dir = Disk(), config.data_dir
    store = SqliteStore(
        data_dir / STORE_FILE,
        node_id=config.node_id,
        cluster_id=config.cluster_id or None,
        may_begin=not is_in_use(disk, data_dir),
        was_clean=disk.exists(data_dir / CLEAN_SHUTDOWN),
        is_shared=count > 1,
    )
    try:
        catalog = await store.load()
        if is_again:
            return store
        places = placement.placed(catalog, config.node_id, count)
        await asyncio.to_thread(moves.settle_folders, disk, data_dir, catalog, places)
        deltas = placement.changes(catalog, config.node_id, count)
        if deltas:
            await store.commit(deltas, catalog.revision)
        await asyncio.to_thread(moves.remove_gone, disk, data_dir, count)
        if not store.is_newest:
            await _skip_known_ids(store, disk, data_dir)
    except BaseException:
        await store.close()
        raise
    return store


async def _skip_known_ids(store: SqliteStore, disk: Disk, data_dir: Path) -> None:
    """Let no id be given again that any log knows: each process reads its own logs only."""
    highest = await asyncio.to_thread(highest_producer_id_below, disk, data_dir)
    catalog = await store.load()
    first = above_all_issued(max(catalog.next_producer_id - 1, highest))
    await store.commit([ProducerIdsReserved(first)], catalog.revision)
    store.is_newest = True


def serve(
    config: BrokerConfig, count: int, line: OtherEnd, http: socket.socket | None, *, is_again: bool
) -> int:
    """Run the process until it is asked to end; returns the exit code. `is_again`: the others run."""
    return run(_serve(config, count, line, http, is_again=is_again))


async def _serve(
    config: BrokerConfig, count: int, line: OtherEnd, http: socket.socket | None, *, is_again: bool
) -> int:
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    line.follow(log_events.open_output, asked.set)
    try:
        proxy = None if http is None else HttpProxy(config, count, http)
        store = await settled_store(config, count, is_again=is_again)
    except (ConfigError, DataFolderError, StoreError, OSError) as error:
        return not_started(error, config.data_dir)
    sharing = StoreSharing(store)
    server = StoreServer(sharing)
    try:
        await server.start(bind_at(store_socket(config.data_dir)))
        if proxy is not None:
            proxy.start()
        line.serves({}, longest_silence_seconds(config) / 4)
        await asked.wait()
        patience = config.shutdown_timeout_ms / 1000 + _LEAST_PATIENCE_SECONDS
        try:
            await asyncio.wait_for(server.none_left(), patience)
        except TimeoutError:
            advice = "find out why they do not end; their later commits are not stored"
            logger.warning("store_closed_before_processes", advice=advice)
    finally:
        if proxy is not None:
            await proxy.stop()
        await server.close()
        await sharing.close()
    return 0
