"""Serves a broker that has several processes, or had several at its last start."""

import asyncio
import os

from tidelog.broker.app import not_started, run, serve_until_asked
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.processes import moves, ownership_lock
from tidelog.broker.processes.store_process import settled_store
from tidelog.broker.processes.supervisor import Supervisor
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.manager import DataFolderError
from tidelog.protocol.settings import ConfigError


def serve_with(config: BrokerConfig, count: int) -> int:
    """Run a broker of `count` processes until a signal stops it; returns the exit code.

    Logging must be set up.
    """
    try:
        if count > 1:
            return Supervisor(config, count).run()
        _gather(config)
    except (ConfigError, DataFolderError, StoreError, OSError) as error:
        return not_started(error, config.data_dir)
    return run(serve_until_asked(config))


def _gather(config: BrokerConfig) -> None:
    """Bring what several processes left into the data folder itself.

    Raises DataFolderError, StoreError, OSError.
    """
    held = ownership_lock.take(config.data_dir, ownership_lock.patience_seconds(config))
    try:
        asyncio.run(_settle(config))
        moves.remove_all(Disk(), config.data_dir)
    finally:
        os.close(held.every)
        os.close(held.first)


async def _settle(config: BrokerConfig) -> None:
    await (await settled_store(config, 1)).close()
