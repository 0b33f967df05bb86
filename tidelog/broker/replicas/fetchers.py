"""Which replicas of this broker fetch from which leader, and the repair of a log that cannot follow.

Owns a fetcher for each leader, and the repairs: a log that diverges from its leader's is truncated; one that
ends before the start of its leader's starts over there, with the leader's producer state; if the leader's
next batch is behind a gap, the leader is asked which epochs began in the gap.

Invariants: a replica is with one fetcher at most, that of the leader that it follows; a repair works on a
replica without a fetcher, for the leader of one epoch, and ends with a new replica in its current role, or
does nothing if another epoch began first.

Event loop only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Final
from uuid import UUID

import structlog

from tidelog.broker.cluster.catalog import NO_LEADER, Catalog
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.replicas.divergence import end_after_divergence, hidden_epochs
from tidelog.broker.replicas.fetcher import Fetcher
from tidelog.broker.replicas.fetching import Fetching, FetchLimits
from tidelog.broker.replicas.partitions import Partitions
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.replication_quota import ReplicationQuota
from tidelog.broker.storage.disk import repeated_advice_on
from tidelog.broker.storage.invariants import InvariantError
from tidelog.broker.tasks import Tasks, is_set_within
from tidelog.protocol.errors import ApiError
from tidelog.protocol.hot import FetchRequest, FetchResponse

CHANGE_RETRY_SECONDS: Final = 5.0
"""How long a change of a log's files waits that found no space: it reads the end of the log each time."""
logger = structlog.get_logger(__name__)


class Fetchers:
    """Lets the replicas of one broker follow their leaders, and repairs logs that cannot follow."""

    def __init__(
        self,
        partitions: Partitions,
        catalog: Catalog,
        fetch: Callable[[int, FetchRequest], Awaitable[FetchResponse]],
        fetch_snapshot: Callable[[int, str, int, int], Awaitable[bytes]],
        end_of_epoch: Callable[[int, str, int, int, int], Awaitable[tuple[int, int]]],
        clock_ms: Callable[[], int],
        events: PeerEvents,
        quota: ReplicationQuota,
        *,
        replica_epoch: int,
        limits: FetchLimits,
        partition_max_bytes: int,
    ) -> None:
        """`fetch_snapshot(leader id, topic, partition, leader epoch)` gives what a leader knows of producers
        before its log begins, and raises ApiError; `end_of_epoch(leader id, topic, partition, leader epoch,
        epoch)` where it says that an epoch ended, too."""
        self._partitions = partitions
        self._catalog = catalog
        self._fetch = fetch
        self._fetch_snapshot = fetch_snapshot
        self._end_of_epoch = end_of_epoch
        self._clock_ms = clock_ms
        self._events = events
        self._quota = quota
        self._replica_epoch = replica_epoch
        self._limits = limits
        self._partition_max_bytes = partition_max_bytes
        self._fetchers: dict[int, Fetcher] = {}
        self._leaders: dict[Replica, int] = {}
        self._repairs = Tasks()
        self._changing: dict[tuple[UUID, int], int] = {}
        """The leader epochs in which logs are truncated, or start over, and in which that waits for space."""
        self._closing = asyncio.Event()
        partitions.role_followers.append(self.role_changed)

    def role_changed(self, replica: Replica) -> None:
        """A replica began, ended, or has another role."""
        before = self._leaders.pop(replica, None)
        if before is not None:
            self._fetchers[before].remove(replica)
        if self._closing.is_set() or not replica.is_follower or replica.leader_id == NO_LEADER:
            return
        if self._changing.get((replica.topic_id, replica.partition)) == replica.leader_epoch:
            return
        self._leaders[replica] = replica.leader_id
        self._fetcher(replica.leader_id).add(replica)

    def _fetcher(self, leader_id: int) -> Fetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = Fetcher(
                leader_id,
                Fetching(self._partitions.node_id, self._replica_epoch, self._limits),
                self._fetch,
                self,
                self._clock_ms,
                self._events,
                self._quota,
                self._is_in_sync,
                partition_max_bytes=self._partition_max_bytes,
                longest_backoff_ms=self._limits.longest_delay_ms,
            )
        return fetcher

    def _is_in_sync(self, replica: Replica) -> bool:
        topic = self._catalog.topic_by_id(replica.topic_id)
        return topic is not None and self._partitions.node_id in topic.partitions[replica.partition].isr

    def diverged(self, replica: Replica, leader: tuple[int, int]) -> None:
        """See `Repair`."""
        log = replica.log
        end_offset = end_after_divergence(leader, log.end_offset_for_epoch, log.end_offset)
        committed_end = replica.progress.committed.offset if log.config.acks_all_durable else 0
        if end_offset < committed_end and not replica.may_lose_committed:
            replica.fail(
                InvariantError(
                    f"broker {replica.leader_id} leads in epoch {replica.leader_epoch} and has offsets only"
                    f" up to {end_offset}, though all before {committed_end} is committed"
                )
            )
            return
        if end_offset < log.start_offset:
            self.out_of_range(replica)
            return
        logger.info(
            "replica_truncated",
            topic=replica.topic,
            partition=replica.partition,
            leader_id=replica.leader_id,
            end_offset=end_offset,
            end_offset_before=log.end_offset,
        )
        change = self._partitions.truncate(replica, replica.leader_epoch, end_offset, self._catalog)
        self._begin(replica, self._changed(replica, change))

    def out_of_range(self, replica: Replica) -> None:
        """See `Repair`."""
        self._begin(replica, self._start_over(replica, replica.leader_id, replica.leader_epoch))

    async def _start_over(self, replica: Replica, leader_id: int, leader_epoch: int) -> None:
        try:
            snapshot = await self._fetch_snapshot(leader_id, replica.topic, replica.partition, leader_epoch)
        except ApiError as error:
            await self._follow_later("replica_not_started_over", replica, leader_id, error)
            return
        logger.warning(
            "replica_started_over",
            topic=replica.topic,
            partition=replica.partition,
            leader_id=leader_id,
            end_offset_before=replica.log.end_offset,
            advice="nothing to do: the leader has deleted what would follow the records here",
        )
        change = self._partitions.start_over(replica, leader_epoch, snapshot, self._catalog)
        await self._changed(replica, change)

    async def _changed(self, replica: Replica, change: Awaitable[None]) -> None:
        """Wait for the change of a log. If the disk has no space for it, ask the leader again later."""
        key, leader_epoch = (replica.topic_id, replica.partition), replica.leader_epoch
        self._changing[key] = leader_epoch
        try:
            await change
        except OSError as error:
            self._events.warning(
                "replica_not_changed",
                replica.topic,
                topic=replica.topic,
                partition=replica.partition,
                error=str(error),
                advice=repeated_advice_on(error, ""),
            )
            await is_set_within(self._closing, CHANGE_RETRY_SECONDS)
        finally:
            if self._changing.get(key) == leader_epoch:
                del self._changing[key]
        self._follow_again(replica, leader_epoch)

    def _follow_again(self, replica: Replica, leader_epoch: int) -> None:
        """Let what is in the place of a replica follow, unless another epoch has begun since this one."""
        now = self._partitions.replicas.get((replica.topic, replica.partition))
        if now is not None and (now.topic_id, now.leader_epoch) == (replica.topic_id, leader_epoch):
            self.role_changed(now)

    def epochs_unknown(self, replica: Replica, epoch: int) -> None:
        """See `Repair`."""
        self._begin(replica, self._learn_epochs(replica, epoch, replica.leader_id, replica.leader_epoch))

    async def _learn_epochs(self, replica: Replica, epoch: int, leader_id: int, leader_epoch: int) -> None:
        with suppress(ApiError):
            await replica.flushed_as_follower()
        wanted = hidden_epochs(replica.log.leader_epoch, replica.log.end_offset, epoch)
        where = leader_id, replica.topic, replica.partition, leader_epoch
        try:
            asked = next(wanted)
            while True:
                asked = wanted.send(await self._end_of_epoch(*where, asked))
        except StopIteration as end:
            if replica.leader_epoch == leader_epoch:
                replica.log.cache_epochs(end.value)
            self.role_changed(replica)
        except ApiError as error:
            await self._follow_later("replica_epochs_not_learned", replica, leader_id, error)

    async def _follow_later(self, event: str, replica: Replica, leader_id: int, error: ApiError) -> None:
        logger.warning(
            event,
            topic=replica.topic,
            partition=replica.partition,
            leader_id=leader_id,
            error=str(error),
            advice="the broker tries again; check the leader's log",
        )
        await is_set_within(self._closing, self._limits.longest_delay_ms / 1000)
        self.role_changed(replica)

    def _begin(self, replica: Replica, repair: Coroutine[None, None, None]) -> None:
        self._repairs.begin(self._repaired(replica, repair))

    async def _repaired(self, replica: Replica, repair: Coroutine[None, None, None]) -> None:
        leader_epoch = replica.leader_epoch
        try:
            await repair
        except Exception as error:  # Nobody expects it: else the replica would stay behind for good.
            logger.error(
                "replica_not_repaired",
                topic=replica.topic,
                partition=replica.partition,
                error=repr(error),
                advice="the broker tries again; report this",
                exc_info=error,
            )
            await is_set_within(self._closing, self._limits.longest_delay_ms / 1000)
            self._follow_again(replica, leader_epoch)

    async def close(self) -> None:
        """Fetch nothing more; repairs that are in progress end."""
        self._closing.set()
        for fetcher in self._fetchers.values():
            await fetcher.close()
        await self._repairs.ended()
