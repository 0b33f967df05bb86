"""The partitions that this broker holds: a log and a replica for each.

Owns `replicas` and how logs are opened, made, closed and removed. Work that blocks on the disk runs in a
thread, one piece at a time, so the event loop continues to serve while a large log is recovered or deleted.

Invariants:
- a replica is in the table exactly while its log is open; a log that cannot be opened leaves its partition
  offline (no leader in metadata) and the others untouched;
- if a folder holds records of a partition that the catalog does not know, the broker does not start (see
  `broker.replicas.ownership`).
"""

import asyncio
import errno
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import cast
from uuid import UUID

import structlog

from tidelog.broker.cluster.catalog import Catalog, Topic
from tidelog.broker.cluster.controller import is_unknown
from tidelog.broker.configuration.topic_configs import TopicConfigs
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.replicas.group_commit import GroupCommit
from tidelog.broker.replicas.leader import MovedStart
from tidelog.broker.replicas.ownership import settle_strays
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.replica_log import all_flushed
from tidelog.broker.replicas.roles import Role, is_unclean, partitions_held, role_in
from tidelog.broker.storage.disk import may_be_repeated, repeated_advice_on
from tidelog.broker.storage.invariants import InvariantError
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.manager import LogManager, NewPartitions
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.steps import Pace, Steps

_DISK_ADVICE = "check the disk that holds the data folder, then restart the broker"
logger = structlog.get_logger(__name__)


class Partitions:
    """All logs and replicas of one broker."""

    def __init__(
        self,
        logs: LogManager,
        settings: TopicConfigs,
        base_config: Callable[[], LogConfig],
        *,
        node_id: int,
        group_commit: GroupCommit,
        metrics: Metrics,
        clock_ms: Callable[[], int],
    ) -> None:
        self.replicas: dict[tuple[str, int], Replica] = {}
        self.unopened: set[tuple[str, int]] = set()
        """Partitions whose log could not be opened, or not again after a repair."""
        self.role_followers: list[Callable[[Replica], None]] = []
        """Called with each replica that begins, gets another role, or ends."""
        self.when_troubled: Callable[[Replica], None] = lambda _: None
        """Called with each replica whose log failed or has no space."""
        self.when_unopened: Callable[[str, int], None] = lambda _topic, _index: None
        """Called with each partition whose log could not be opened."""
        self.when_opened: Callable[[str, int], None] = lambda _topic, _index: None
        """Called with each of those whose log is open after all."""
        self.when_noted: Callable[[Callable[[], None]], bool] = lambda _: True
        """As `CatalogCheckpoint.when_noted`."""
        self._in_repair: dict[tuple[str, int], Replica] = {}
        """Those that ended because their logs are changed. Another one takes their place unless removed."""
        self.are_moved = False
        """Whether partitions that are here may be given to other brokers."""
        self.logs = logs
        self.disk_work = asyncio.Lock()
        """Held while logs are opened, removed or checkpointed in a thread: one such job at a time."""
        self._settings = settings
        self._base_config = base_config
        self.node_id = node_id
        self._group_commit = group_commit
        self._metrics = metrics
        self._clock_ms = clock_ms

    async def settle_strays(self, catalog: Catalog) -> None:
        """Remove folders that are not needed.

        Raises OSError, and DataFolderError if the catalog does not belong to these folders.
        """
        async with self.disk_work:
            node_id = self.node_id if self.are_moved else None
            await asyncio.to_thread(settle_strays, self.logs, catalog, node_id)

    async def open(self, wanted: Sequence[tuple[Topic, Sequence[int]]]) -> None:
        """Open the logs of these partitions of topics, making what is missing.

        Logs that cannot be opened are reported and left out. Raises OSError for too few file handles.
        """

        def every() -> Iterator[tuple[str, UUID, int, LogConfig]]:
            for topic, indexes in wanted:
                config = self._config_of(topic)
                for index in indexes:
                    yield topic.name, topic.topic_id, index, config

        epochs = {
            (topic.name, index): topic.partitions[index].leader_epoch
            for topic, indexes in wanted
            for index in indexes
            if not is_unknown(topic.partitions[index])  # The epoch of an older catalog limits nothing.
        }
        copied = {
            (topic.name, index)
            for topic, indexes in wanted
            for index in indexes
            if len(topic.partitions[index].replicas) > 1
        }
        async with self.disk_work:
            await asyncio.to_thread(lambda: self.logs.open_all(every(), self._clock_ms(), epochs, copied))

    def lacking(self, catalog: Catalog) -> list[tuple[Topic, Sequence[int]]]:
        """Partitions without a replica here whose logs `open` may open now, though it could not before."""
        indexes: defaultdict[str, list[int]] = defaultdict(list)
        for name, index in sorted(self.logs.lacking & self.unopened):
            indexes[name].append(index)
        topics = ((catalog.topic(name), found) for name, found in indexes.items())
        return [(topic, found) for topic, found in topics if topic is not None]

    @property
    def highest_producer_id(self) -> int:
        """The highest that any open log knows of, or -1."""
        logs = (replica.log for replica in self.replicas.values())
        return max((log.producers.highest_producer_id for log in logs), default=-1)

    async def make(self, wanted: Sequence[tuple[Topic, int]]) -> list[list[PartitionLog] | OSError]:
        """New folders and logs for this broker's partitions of each topic from a partition on, all or none.

        OSError in place of a topic's logs also if partitions of the same names exist.
        """

        def make() -> list[list[PartitionLog] | OSError]:
            asked = [self._new(topic, first) for topic, first in wanted]
            known = [self._known(new) for new in asked]
            new = [new for new, error in zip(asked, known, strict=True) if error is None]
            made = iter(self.logs.create_many(new, self._clock_ms()) if new else ())
            return [error or next(made) for error in known]

        async with self.disk_work:
            return await asyncio.to_thread(make)

    def _new(self, topic: Topic, first: int) -> NewPartitions:
        indexes = partitions_held(topic, self.node_id, first)
        return NewPartitions(topic.name, topic.topic_id, indexes, self._config_of(topic))

    def _known(self, new: NewPartitions) -> OSError | None:
        """An error if one of these is a partition already."""
        for key in new.keys:
            if key in self.replicas or key in self.unopened:
                return FileExistsError(errno.EEXIST, f"{key[0]}-{key[1]} belongs to another topic now")
        return None

    def _config_of(self, topic: Topic) -> LogConfig:
        return self._settings.log_config(topic.configs, self._base_config())

    def begin(self, topic: Topic, index: int, role: Role, committed_end: int = 0) -> None:
        """Let the replica of an open log begin. If no log is open, the partition is offline. What the log
        holds before `committed_end` is known to be committed."""
        key = (topic.name, index)
        log = self.logs.logs.get(key)
        if log is None:
            self.unopened.add(key)
            self._metrics.partition_failed()
            self.when_unopened(*key)
            return
        if key in self.unopened:
            self.unopened.discard(key)
            self.when_opened(*key)
        self._metrics.log_recovered(len(log.recovery.corrupt_snapshots), log.recovery.truncated_bytes)
        replica = self.replicas[key] = Replica(
            topic.topic_id,
            log,
            leader_epoch=role.leader_epoch,
            group_commit=self._group_commit,
            metrics=self._metrics,
            loop=asyncio.get_running_loop(),
            when_troubled=self._troubled,
            when_noted=self.when_noted,
            committed_end=(
                None
                if len(role.assigned.replicas) == 1
                else max(log.start_offset, min(committed_end, log.flushed_end_offset))
            ),
        )
        self._take_role(replica, role)

    def change_role(self, topic: Topic, index: int, before: Role, role: Role) -> None:
        """Let a replica lead or follow from now on, or know of other replicas."""
        replica = self.replicas.get((topic.name, index))
        if replica is None or replica.topic_id != topic.topic_id or role.leader_epoch < replica.leader_epoch:
            return  # It began, after a repair, with a later role, or belongs to an earlier topic.
        replica.may_lose_committed |= is_unclean(before, role)
        if role.leader_epoch == replica.leader_epoch:
            replica.set_assigned(role.assigned)
        else:
            self._take_role(replica, role)

    def _take_role(self, replica: Replica, role: Role) -> None:
        if role.is_leader:
            replica.lead(role.assigned)
        else:
            replica.follow(role.leader_epoch, role.assigned.leader_id)
        self._tell(replica)

    def _troubled(self, replica: Replica) -> None:
        self._tell(replica)
        self.when_troubled(replica)

    def _tell(self, replica: Replica) -> None:
        for follower in self.role_followers:
            try:
                follower(replica)
            except Exception as error:  # The others, and other partitions, do not depend on it.
                logger.error(
                    "role_not_followed",
                    topic=replica.topic,
                    partition=replica.partition,
                    error=repr(error),
                    advice="restart the broker; and report this",
                    exc_info=error,
                )

    async def truncate(self, replica: Replica, leader_epoch: int, end_offset: int, catalog: Catalog) -> None:
        """Cut the log of a follower back, as the leader of this epoch says, unless another epoch has begun. A
        new replica replaces it, in its current role. Raises OSError if the new one may be cut back later, and
        what nobody expects."""
        name, index = replica.topic, replica.partition
        await self._exchange(
            replica,
            leader_epoch,
            lambda: self.logs.truncate_to(name, index, end_offset, self._clock_ms()),
            catalog,
        )

    async def start_over(
        self, replica: Replica, leader_epoch: int, snapshot: bytes, catalog: Catalog
    ) -> None:
        """Empty the log of a follower, which begins from now on where the snapshot of its producers ends that
        the leader of this epoch gave; otherwise as `truncate`."""
        name, index = replica.topic, replica.partition
        await self._exchange(
            replica,
            leader_epoch,
            lambda: self.logs.start_over(name, index, snapshot, self._clock_ms()),
            catalog,
        )

    async def _exchange(
        self, replica: Replica, leader_epoch: int, change: Callable[[], PartitionLog], catalog: Catalog
    ) -> None:
        key = replica.topic, replica.partition
        with suppress(ApiError):
            await replica.flushed_as_follower()
        if self.replicas.get(key) is not replica or replica.leader_epoch != leader_epoch:
            return
        self._in_repair[key] = replica
        replica.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        del self.replicas[key]
        self._tell(replica)
        await self.flushed(replica)
        failure: Exception | None = None
        try:
            async with self.disk_work:
                if self.logs.logs.get(key) is replica.log:
                    await asyncio.to_thread(change)
        except Exception as error:
            if not isinstance(error, OSError | ApiError | ValueError):
                failure = error
            elif isinstance(error, OSError) and may_be_repeated(error) and key in self.logs.logs:
                failure = again(error)
            else:
                advice = repeated_advice_on(error, _DISK_ADVICE)
                what = {"topic": key[0], "partition": key[1], "error": str(error)}
                logger.error("partition_offline", **what, advice=advice)
        topic = catalog.topic_by_id(replica.topic_id)
        role = role_in(topic, replica.partition, self.node_id)
        if self._in_repair.get(key) is replica:
            del self._in_repair[key]
            if topic is not None and role is not None:
                # Else a follower that serves consumers had nothing committed until its leader answers.
                committed_end = 0 if replica.may_lose_committed else replica.progress.committed.offset
                self.begin(topic, replica.partition, role, committed_end)
        if failure is not None:
            raise failure

    def stop(self, topic: Topic, index: int) -> None:
        """Let a replica serve and copy nothing more; `end` comes later."""
        self._in_repair.pop((topic.name, index), None)
        replica = self.replicas.get((topic.name, index))
        if replica is not None and replica.topic_id == topic.topic_id:
            replica.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._tell(replica)

    def end(self, topic: Topic, index: int, code: ErrorCode) -> Sequence[Replica]:
        """Stop a replica and return it; its log stays open. Returns nothing if no log is open."""
        self.unopened.discard((topic.name, index))
        self._in_repair.pop((topic.name, index), None)
        replica = self.replicas.pop((topic.name, index), None)
        if replica is None:
            return ()
        replica.stop(code)
        self._tell(replica)
        return (replica,)

    async def flushed(self, ended: Replica) -> None:
        """Return when no flush of a replica that ended is in progress, so that its log may be closed."""
        await self._group_commit.wait_flushed(ended)

    async def remove(self, keys: Sequence[tuple[str, int]]) -> None:
        """Close logs and remove their folders; their replicas have ended and are flushed. Raises OSError."""

        def delete() -> None:
            self.logs.delete(keys)
            self.logs.purge()

        async with self.disk_work:
            await asyncio.to_thread(delete)

    def forget_topic(self, topic: Topic) -> None:
        """Stop counting for a deleted topic."""
        self._metrics.forget_topic(topic.name)

    def note_committed(self) -> None:
        """Let logs with other replicas know what is committed: retention deletes nothing else."""
        for replica in self.replicas.values():
            is_alone = replica.leadership is None and not replica.is_follower
            replica.log.committed_end = None if is_alone else replica.progress.committed.offset

    def fail(self, log: PartitionLog, error: InvariantError) -> None:
        """Take a partition offline whose log contradicts itself."""
        replica = self.replicas.get((log.topic, log.partition))
        if replica is not None and replica.log is log:
            replica.fail(error)
        else:
            log.mark_failed(error)

    async def flush_written(self, log: PartitionLog) -> None:
        """Flush a log whose writes no answer waits for. A flush that fails takes the partition offline."""
        replica = self.replicas.get((log.topic, log.partition))
        if replica is not None and replica.log is log and not replica.acks_all_durable:
            await all_flushed([replica])

    async def checkpoint(self, log: PartitionLog) -> bool:
        """Make a log's indexes durable, and write a snapshot where one is due. `disk_work` is held.

        Returns whether nothing kept it from writing; what did is reported.
        """
        await self.flush_written(log)
        try:
            work = log.begin_checkpoint()
        except OSError as error:
            self.logs.report_checkpoint_failed(log, error)
            return False
        except InvariantError as error:
            self.fail(log, error)
            return False
        if work is None:
            return True
        failure = await asyncio.to_thread(work.attempt)
        self.logs.finish_checkpoint(log, work, failure)
        return failure is None

    def reconfigure(self, topic: Topic, pace: Pace) -> Steps[None]:
        """Let the running logs follow the topic's settings."""
        config = self._config_of(topic)
        for index in range(len(topic.partitions)):
            replica = self.replicas.get((topic.name, index))
            if replica is not None:
                replica.reconfigure(config)
            if pace.spent():
                yield

    async def save_start_offsets(self, moved: Sequence[MovedStart]) -> list[int]:
        """Save log starts that DeleteRecords moved; returns the answer for each. Raises OSError."""
        async with self.disk_work:
            await asyncio.to_thread(self.logs.write_checkpoints)
        return [cast(int, start) for start in moved]

    async def close(self, *, clean: bool = True) -> None:
        """Flush everything, stop the replicas, close the logs with their snapshots.

        With `clean` false the logs are left as a crash would leave them.
        """
        for replica in self.replicas.values():
            if clean:
                self._group_commit.request(replica)
            else:
                replica.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await self._group_commit.close()
        for replica in self.replicas.values():
            replica.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.replicas.clear()
        async with self.disk_work:
            await asyncio.to_thread(self.logs.close, clean=clean)
