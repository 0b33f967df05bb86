"""Reads a log for share groups: from memory at once, else in a thread, or from remote storage.

Owns which of them. On the event loop, except what it runs in threads.
"""

import asyncio
from collections.abc import Sequence

from tidelog.broker.configuration.group_settings import ShareGroupConfig
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.share.parts import BrokerParts
from tidelog.broker.share.reading import Batches, batches_in
from tidelog.broker.storage.disk import ColdRead
from tidelog.broker.storage.log_types import READ_COMMITTED, Read, ReadResult
from tidelog.broker.storage.readable_log import RemoteRead
from tidelog.protocol.errors import ApiError, ErrorCode, again

READ_BYTES = 1 << 20
"""Most bytes of one partition that one fetch reads."""
READ_UNCOMMITTED = 0


def isolation_level(config: ShareGroupConfig) -> int:
    return READ_COMMITTED if config.reads_committed else READ_UNCOMMITTED


class LogReader:
    def __init__(self, services: BrokerParts) -> None:
        self._services = services

    async def read(self, replica: Replica, read: Read, config: ShareGroupConfig) -> Batches:
        """What a group may get of it. Raises ApiError."""
        try:
            return self._read(replica, read._replace(nowait=True), config)
        except ColdRead:
            return await asyncio.to_thread(self._read, replica, read, config)
        except ApiError as error:
            if error.code != ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
                raise
            return await self._read_remote(replica, read, config)

    @staticmethod
    def _read(replica: Replica, read: Read, config: ShareGroupConfig) -> Batches:
        """Raises ApiError, and ColdRead with `nowait`."""
        found = replica.read(read)
        aborted: Sequence[tuple[int, int]] = ()
        if config.reads_committed:
            aborted = replica.aborted_transactions(read, found)
        return batches_in(read.offset, found, aborted, reads_committed=config.reads_committed)

    async def _read_remote(self, replica: Replica, read: Read, config: ShareGroupConfig) -> Batches:
        tiering = self._services.tiering
        remote = RemoteRead(replica.log, read, config.reads_committed)
        if tiering is not None:
            results = await tiering.fetches.fetch([remote], self._services.config.remote_fetch_max_wait_ms)
            result = results.get(remote.place)
            if isinstance(result, ApiError):
                raise again(result)
            if result is not None:
                found, aborted = result
                return batches_in(read.offset, found, aborted or (), reads_committed=config.reads_committed)
        return batches_in(
            read.offset, ReadResult([], read.offset), (), reads_committed=config.reads_committed
        )
