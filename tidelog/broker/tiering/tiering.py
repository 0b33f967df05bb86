"""The one task of a broker that copies closed segments to remote storage, and deletes there.

Owns the task, and which replicas have a remote part: those that this broker leads, of topics with
remote.storage.enable. No append and no local read waits for it.

Invariants: a failure of the store is reported, and tried again at the next look; local segments stay until
their copy counts; a deleted topic is remembered by the catalog until its objects are gone.

Event loop only. Source: Kafka's RemoteLogManager.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from uuid import UUID

import structlog

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.observability.remote_counts import RemoteCounts
from tidelog.broker.replicas.partitions import Partitions
from tidelog.broker.replicas.reconciler import Reconciler
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage.checkpoints import COPIED_OFFSET
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.broker.tasks import is_set_within
from tidelog.broker.tiering.fetches import TOLD_EVERY_SECONDS, RemoteFetches
from tidelog.broker.tiering.plan import copyable_end, may_be_copied, start_after_retention
from tidelog.broker.tiering.remote_log import RemoteLog
from tidelog.broker.tiering.remote_segments import RemoteReader
from tidelog.broker.tiering.store_threads import StoreThreads
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.remote_log.manifest import Manifest, ManifestError
from tidelog.remote_log.object_store import ObjectStore, open_store
from tidelog.remote_log.partition_objects import ManifestConflictError, PartitionObjects

SWEEP_SECONDS = 3_600
STOP_SECONDS = 3.0
_THREADS = 2
"""One copies, so that another is free for DeleteRecords."""
_FAILURES = (OSError, ManifestError, ManifestConflictError)
_ADVICE = (
    "check remote.storage.url, its credentials and the store; local segments stay until they are copied, "
    "and it is tried again"
)
logger = structlog.get_logger(__name__)


def remote_store(config: BrokerConfig) -> ObjectStore:
    """The store that the settings name. Raises ValueError."""
    return open_store(
        config.remote_storage_url,
        endpoint=config.remote_storage_endpoint,
        region=config.remote_storage_region,
        timeout_ms=config.remote_storage_request_timeout_ms,
    )


class Tiering:
    """Copies one broker's closed segments to remote storage, and deletes there. Call `start`."""

    def __init__(
        self,
        partitions: Partitions,
        reconciler: Reconciler,
        store: ObjectStore,
        config: Callable[[], BrokerConfig],
        clock_ms: Callable[[], int],
        counts: RemoteCounts,
    ) -> None:
        now = config()
        self.fetches = RemoteFetches(
            counts, now.remote_log_reader_threads, now.remote_log_reader_max_pending_tasks
        )
        self._partitions = partitions
        self._reconciler = reconciler
        self._config = config
        self._clock_ms = clock_ms
        self._counts = counts
        self._store = store
        self._reader = RemoteReader(
            store,
            block_cache_bytes=now.remote_fetch_cache_bytes,
            index_cache_bytes=now.remote_log_index_file_cache_total_size_bytes,
            note_read=self._note_read,
        )
        self._threads = StoreThreads(_THREADS, "remote-copy")
        self._doomed: set[UUID] = set()
        """Deleted topics that may have objects."""
        self._swept: dict[RemoteLog, float] = {}
        self._told_at = -TOLD_EVERY_SECONDS
        self._looking = asyncio.Lock()
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Take over the replicas and the deletions that there are, and follow them."""
        self._partitions.role_followers.append(self._follow)
        for replica in self._partitions.replicas.values():
            self._follow(replica)
        self._doomed |= self._reconciler.gone
        self._reconciler.gone.clear()
        self._reconciler.when_removed = self._doom
        self._task = asyncio.get_running_loop().create_task(self._repeat())

    async def stop(self) -> None:
        """End after the call of the store that is under way, or without its answer if that takes longer than
        STOP_SECONDS; what was not committed is left for the next claim."""
        self._is_stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=STOP_SECONDS)
            self._task.cancel()
            await asyncio.wait([self._task])
        self._threads.shutdown()
        self.fetches.close()

    def _note_read(self, size: int) -> None:
        self._counts.fetch_bytes += size

    async def _run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    def _doom(self, topic_ids: Iterable[UUID]) -> None:
        self._doomed.update(topic_ids)
        self._wake.set()

    def _follow(self, replica: Replica) -> None:
        """Give a log its remote part, or take it away, as its role and its settings say."""
        log = replica.log
        if replica.stopped is not None or not log.config.remote_storage_enable:
            if log.remote is not None:
                log.remote, log.copied_end_offset = None, 0
        elif not isinstance(log.remote, RemoteLog) or log.remote.leader_epoch != replica.leader_epoch:
            log.remote = RemoteLog(replica, self._reader, self._run, lambda: self._is_stopping)
            log.copied_end_offset = 0
            self._wake.set()

    async def delete_before(self, replica: Replica, offset: int) -> None:
        """Let the remote part of a log begin at `offset`, durably. Raises ApiError."""
        remote = replica.log.remote
        if isinstance(remote, RemoteLog):
            try:
                await remote.delete_before(offset)
            except _FAILURES as error:
                self._tell(replica, error)
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    async def _repeat(self) -> None:
        while not self._is_stopping:
            try:
                await self.look()
            except Exception as error:
                logger.error(
                    "tiering_failed", error=repr(error), advice="the broker tries again; report this"
                )
            await is_set_within(self._wake, self._config().remote_log_manager_task_interval_ms / 1000)

    async def look(self) -> None:
        """Do for each log what is due, once all that is in progress is done."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        lag_bytes = lag_segments = size_bytes = 0
        replicas = list(self._partitions.replicas.values())
        for replica in replicas:
            self._follow(replica)
        self._wake.clear()
        # First, because a copy may take long, and old records are read only once the manifest is known.
        for replica in replicas:
            if isinstance(remote := replica.log.remote, RemoteLog) and not self._is_stopping:
                await self._try(replica, remote.claim())
        for replica in replicas:
            if self._is_stopping:
                return
            remote = replica.log.remote
            if not isinstance(remote, RemoteLog):
                await self._drop_if_disabled(replica)
                continue
            if remote.manifest is not None:
                await self._try(replica, self._work(replica, remote, remote.manifest))
            lag = replica.log.closed_beyond(replica.log.copied_end_offset)
            lag_segments, lag_bytes = lag_segments + lag[0], lag_bytes + lag[1]
            size_bytes += remote.size_bytes
        counts = self._counts
        counts.copy_lag_bytes, counts.copy_lag_segments = lag_bytes, lag_segments
        counts.log_size_bytes = size_bytes
        self._swept = {remote: at for remote, at in self._swept.items() if remote.is_current}
        await self._remove_deleted()

    async def _try(self, replica: Replica, work: Awaitable[object]) -> None:
        try:
            await work
        except _FAILURES as error:
            if not self._is_stopping:
                self._counts.copy_errors += 1
                self._tell(replica, error)

    async def _work(self, replica: Replica, remote: RemoteLog, manifest: Manifest) -> None:
        """Copy, until the next look is due, and delete.

        Raises OSError, ManifestError, ManifestConflictError.
        """
        log, config = replica.log, replica.log.config
        now = time.monotonic()
        if now - self._swept.setdefault(remote, now) > SWEEP_SECONDS:
            self._swept[remote] = now
            await remote.sweep()
        if not manifest.segments and manifest.end_offset < log.start_offset:
            await remote.delete_before(log.start_offset)  # If nothing was copied, retention went on.
            manifest = await remote.claim()
        while not (self._wake.is_set() or config.remote_log_copy_disable) and remote.is_current:
            segment = log.copyable(manifest.end_offset, copyable_end(replica.ends))
            if segment is None or not may_be_copied(
                segment, log.bytes_beyond(segment.end_offset), config, self._clock_ms()
            ):
                break
            self._counts.copy_requests += 1
            self._counts.copy_bytes += await remote.copy(segment)
            manifest = await remote.claim()
        start = start_after_retention(
            manifest, config, log.bytes_beyond(manifest.end_offset), self._clock_ms()
        )
        if start > manifest.start_offset and remote.is_current:
            self._counts.delete_requests += 1
            await remote.delete_before(start)

    async def _drop_if_disabled(self, replica: Replica) -> None:
        """Delete the objects of a topic that is not tiered any more; a follower forgets them."""
        config, log = replica.log.config, replica.log
        if config.remote_storage_enable or not config.remote_log_delete_on_disable:
            return
        objects = PartitionObjects(self._store, replica.topic_id, log.partition)
        try:
            await self._run(self._give_up, objects if replica.stopped is None else None, log)
        except OSError as error:
            self._counts.delete_errors += 1
            self._tell(replica, error)

    @staticmethod
    def _give_up(objects: PartitionObjects | None, log: PartitionLog) -> None:
        if objects is not None:
            objects.delete_all()
        if log.disk.exists(log.folder / COPIED_OFFSET):
            log.disk.unlink(log.folder / COPIED_OFFSET)

    async def _remove_deleted(self) -> None:
        """Delete the objects of deleted topics."""
        for topic_id in list(self._doomed):
            try:
                self._counts.delete_requests += 1
                await self._run(self._delete_topic, topic_id)
            except OSError as error:
                self._counts.delete_errors += 1
                logger.error(
                    "remote_topic_left", topic_id=str(topic_id), error=str(error), advice="it is tried again"
                )
                return
            self._doomed.discard(topic_id)
            self._reconciler.gone.add(topic_id)

    def _delete_topic(self, topic_id: UUID) -> None:
        self._store.delete(self._store.names(str(topic_id)))

    def _tell(self, replica: Replica, error: Exception) -> None:
        now = time.monotonic()
        if now - self._told_at >= TOLD_EVERY_SECONDS:
            self._told_at = now
            logger.error(
                "remote_storage_failed",
                topic=replica.topic,
                partition=replica.partition,
                error=str(error),
                advice=_ADVICE,
            )
