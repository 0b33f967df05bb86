"""Positions of newly assigned partitions: where the group committed, else by the reset policy.

Owns: the one task that looks them up. Invariants: a partition that was moved by a seek meanwhile keeps that
position; the lookup is repeated until it succeeds, and an error that is not retriable is raised by the next
read of the partition.
"""

import asyncio
from collections.abc import Callable, Mapping

from tidelog.client.consumer.partition_reader import PartitionReader
from tidelog.client.groups.offsets import CommittedPosition, GroupOffsets
from tidelog.protocol.types import TopicPartition
from tidelog.wire.backoff import Backoff
from tidelog.wire.cluster import Cluster
from tidelog.wire.errors import ClientClosedError, ClientError, TopicAuthorizationFailedError
from tidelog.wire.events import logger


class CommittedPositions:
    """`begin_by_policy` is called for a reader without a committed offset, `on_change` after each lookup."""

    def __init__(
        self,
        cluster: Cluster,
        offsets: GroupOffsets,
        readers: Mapping[TopicPartition, PartitionReader],
        begin_by_policy: Callable[[PartitionReader], None],
        on_change: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._offsets = offsets
        self._readers = readers
        self._begin_by_policy = begin_by_policy
        self._on_change = on_change
        config = cluster.config
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._task: asyncio.Task[None] | None = None
        self._asked: set[PartitionReader] = set()

    def ask(self, reader: PartitionReader) -> None:
        """The application asks for this position, perhaps in the callback that precedes the first read."""
        if reader.needs_committed:
            self._asked.add(reader)
            self.wake()

    def wake(self) -> None:
        """Readers changed."""
        if self._task is None and self._missing():
            self._task = self._cluster.spawn(self._look_up())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _missing(self) -> list[tuple[PartitionReader, int]]:
        """The readers that need their committed offset, with their generation."""
        return [
            (reader, reader.generation)
            for reader in self._readers.values()
            if reader.needs_committed and (not reader.is_suspended or reader in self._asked)
        ]

    async def _fetch(
        self, keys: list[TopicPartition]
    ) -> dict[TopicPartition, CommittedPosition | ClientError | None]:
        """What the group committed for each, None for nothing, or why the user may not know it. Raises
        ClientError."""
        topics = {key.topic for key in keys}
        try:
            return {**await self._offsets.fetch(keys)}
        except TopicAuthorizationFailedError as error:
            if len(topics) == 1:
                return dict.fromkeys(keys, error)
        # Perhaps only one is forbidden, so ask for each alone.
        alone = [await self._fetch([key for key in keys if key.topic == topic]) for topic in sorted(topics)]
        return {key: each for found in alone for key, each in found.items()}

    async def _look_up(self) -> None:
        failures = 0
        try:
            while missing := self._missing():
                try:
                    found = await self._fetch([reader.key for reader, _ in missing])
                except ClientClosedError:
                    return
                except ClientError as error:
                    logger.info("committed_offsets_not_found", error=str(error))
                    if error.retriable:
                        failures += 1
                        await asyncio.sleep(self._backoff.delay_ms(failures) / 1000)
                        continue
                    for reader, generation in missing:
                        if reader.generation == generation:
                            reader.fail(error)
                else:
                    failures = 0
                    for reader, generation in missing:
                        if not reader.needs_committed or reader.generation != generation:
                            continue
                        committed = found.get(reader.key)
                        if isinstance(committed, ClientError):
                            reader.fail(committed)
                        elif committed is None:
                            self._begin_by_policy(reader)
                        else:
                            reader.seek(committed.offset, committed.leader_epoch, committed.topic_id)
                self._on_change()
        finally:
            self._asked.clear()
            self._task = None
