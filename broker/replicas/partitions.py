"""The partitions that this broker keeps: a log and a replica for each one that the catalog assigns to it.

Owns `replicas` and the order in which logs are opened, closed and removed. What blocks on the disk runs in
a thread, one piece at a time, so the event loop goes on serving while a large log is recovered or deleted.

Invariants:
- a replica is in the table exactly while its log is open and serves; a log that cannot be opened leaves its
  partition offline (no leader in metadata) and the others untouched;
- a folder that holds records of a partition that the catalog does not know keeps the broker from starting
  (see `broker.data_folder.ownership`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import structlog

from tidelog.broker.cluster.catalog import Catalog, Topic
from tidelog.broker.configuration.topic_configs import TopicConfigs
from tidelog.broker.data_folder.ownership import settle_strays
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.replicas.group_commit import GroupCommit
from tidelog.broker.replicas.replica import MovedStart, Replica
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.manager import LogManager
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.protocol.errors import ErrorCode

logger = structlog.get_logger(__name__)


class Partitions:
    """All logs and replicas of one broker."""

    def __init__(
        self,
        logs: LogManager,
        settings: TopicConfigs,
        base_config: LogConfig,
        *,
        node_id: int,
        group_commit: GroupCommit,
        metrics: Metrics,
        clock_ms: Callable[[], int],
    ) -> None:
        self.replicas: dict[tuple[str, int], Replica] = {}
        self.unopened: set[tuple[str, int]] = set()
        """Partitions whose log could not be opened at the start."""
        self.logs = logs
        self.disk_work = asyncio.Lock()
        """Held by whoever opens, removes or checkpoints logs in a thread: one at a time."""
        self._settings = settings
        self._base_config = base_config
        self._node_id = node_id
        self._group_commit = group_commit
        self._metrics = metrics
        self._clock_ms = clock_ms

    async def open_all(self, catalog: Catalog) -> None:
        """Open every log that the catalog assigns here, making what is missing.

        Raises OSError, and DataFolderError where the catalog is not the one of these folders.
        """
        async with self.disk_work:
            await asyncio.to_thread(settle_strays, self.logs, catalog)
            wanted = [
                (topic.name, topic.topic_id, index, config)
                for topic in catalog.topics()
                for config in (self._config_of(topic),)
                for index in self._assigned(topic, 0)
            ]
            # Reports the logs that it cannot open, and leaves them out.
            opened = await asyncio.to_thread(self.logs.open_all, wanted, self._clock_ms())
            for topic in catalog.topics():
                for index in self._assigned(topic, 0):
                    if (topic.name, index) in opened:
                        self._serve(topic, opened[topic.name, index])
                    else:
                        self.unopened.add((topic.name, index))
                        self._metrics.partition_failed()

    @property
    def highest_producer_id(self) -> int:
        """The highest that any open log knows of, or -1."""
        logs = (replica.log for replica in self.replicas.values())
        return max((log.producers.highest_producer_id for log in logs), default=-1)

    async def prepare(self, topic: Topic, first: int) -> list[PartitionLog]:
        """Make folders and logs of a topic's partitions from `first` on, all or none. Raises OSError."""
        wanted = self._assigned(topic, first)
        config = self._config_of(topic)

        def make() -> list[PartitionLog]:
            return self.logs.create_many(topic.name, topic.topic_id, wanted, config, self._clock_ms())

        async with self.disk_work:
            return await asyncio.to_thread(make)

    def serve(self, topic: Topic, logs: Iterable[PartitionLog]) -> None:
        """Let replicas of prepared logs begin."""
        for log in logs:
            self._serve(topic, log)

    async def discard(self, topic: Topic, logs: Iterable[PartitionLog]) -> None:
        """Remove what `prepare` made. Raises OSError."""
        async with self.disk_work:
            await asyncio.to_thread(self._delete_logs, topic, [log.partition for log in logs])

    def _assigned(self, topic: Topic, first: int) -> list[int]:
        return [
            index
            for index in range(first, len(topic.partitions))
            if self._node_id in topic.partitions[index].replicas
        ]

    def _config_of(self, topic: Topic) -> LogConfig:
        return self._settings.log_config(topic.configs, self._base_config)

    def _serve(self, topic: Topic, log: PartitionLog) -> None:
        self._metrics.log_recovered(len(log.recovery.corrupt_snapshots), log.recovery.truncated_bytes)
        self.replicas[log.topic, log.partition] = Replica(
            topic.topic_id,
            log,
            leader_epoch=topic.partitions[log.partition].leader_epoch,
            group_commit=self._group_commit,
            metrics=self._metrics,
            loop=asyncio.get_running_loop(),
        )

    async def delete_partitions(self, topic: Topic) -> None:
        """Stop a topic's replicas and remove their folders. Raises OSError."""
        indexes = self._assigned(topic, 0)
        for index in indexes:
            self.unopened.discard((topic.name, index))
            replica = self.replicas.pop((topic.name, index), None)
            if replica is not None:
                replica.stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                await self._group_commit.wait_flushed(replica)
        self._metrics.forget_topic(topic.name)
        async with self.disk_work:
            await asyncio.to_thread(self._delete_logs, topic, indexes)

    def _delete_logs(self, topic: Topic, indexes: Iterable[int]) -> None:
        """In a thread."""
        self.logs.delete(topic.name, indexes)
        self.logs.purge()

    def reconfigure(self, topic: Topic) -> None:
        """Let the running logs follow the topic's settings."""
        config = self._config_of(topic)
        for index in range(len(topic.partitions)):
            replica = self.replicas.get((topic.name, index))
            if replica is not None:
                replica.log.reconfigure(config)

    async def save_start_offsets(self, moved: Sequence[MovedStart]) -> list[int]:
        """Make starts that DeleteRecords moved outlive a crash; what to answer of each. Raises OSError."""
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
