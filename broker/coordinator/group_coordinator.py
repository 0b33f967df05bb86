"""The coordinator of groups: a `group_machine` over each partition of `__consumer_offsets`.

Owns what happens to groups without a request: offsets that expire, and groups that nobody needs. The topic is
created when a client first looks for the coordinator of a group, or first commits.

On the event loop. Source: Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, Catalog, Change, TopicDeleted
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.coordinator.decision import Decision, ResponseT
from tidelog.broker.coordinator.group_machine import GROUP_RECORD_FORMATS, GroupMachine
from tidelog.broker.coordinator.groups.messages import GroupLimits, ListedGroup
from tidelog.broker.coordinator.shards import Shard, ShardKind, Shards, some_at_once
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.topics import Topics
from tidelog.protocol.errors import ApiError, ErrorCode

_MS_A_MINUTE = 60_000
_ADVICE = (
    "check the disk that holds the data folder; `tidelog log verify` shows what is damaged. Until it can be "
    "read, groups of this partition cannot commit. Deleting the topic deletes what all groups have committed"
)
logger = structlog.get_logger(__name__)
Operation = Callable[[int], Decision[Any, ResponseT]]
"""One operation of a machine: see `CoordinatorRuntime.run`."""


class GroupCoordinator:
    """Coordinates the groups of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        catalog: Catalog,
        topics: Topics,
        replicas: Mapping[tuple[str, int], Replica],
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._clock_ms = clock_ms
        kind = ShardKind(
            OFFSETS_TOPIC,
            GROUP_RECORD_FORMATS,
            self._machine,
            _begin,
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            _ADVICE,
        )
        self._shards = Shards(kind, catalog, topics, replicas, clock_ms, steady_ms)
        self.make_topic = self._shards.make_topic
        self.check = self._shards.check
        self._sweep_soon = asyncio.Event()
        self._sweeper: asyncio.Task[None] | None = None
        settings.when_changed(self._settings_changed)

    def start(self) -> None:
        """Begin to replay the existing partitions, and to remove offsets that expire."""
        self._shards.start()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep_repeatedly())

    def follow(self, change: Change) -> None:
        """Remove the offsets of a topic that is deleted."""
        if isinstance(change.delta, TopicDeleted):
            self._sweep_soon.set()

    def _machine(self) -> GroupMachine:
        return GroupMachine(*_rules_of(self._settings.config))

    def _settings_changed(self) -> None:
        for machine in self._shards.machines():
            machine.set_rules(*_rules_of(self._settings.config))

    def machines(self) -> list[GroupMachine]:
        """Those of the partitions that were replayed; to read from, not to change."""
        return [shard.machine for shard in self._shards.loaded()]

    @property
    def has_topic(self) -> bool:
        """Whether the topic exists that committed offsets are stored in."""
        return self._shards.partition_count > 0

    async def run(
        self, group_id: str, operation: Callable[[GroupMachine], Operation[ResponseT]]
    ) -> ResponseT:
        """Run an operation on the machine of the group's partition.

        Raises ApiError: what the operation raises, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR, or INVALID_COMMIT_OFFSET_SIZE for more records than a batch holds.
        """
        shard = self._shards.of(group_id)
        answer: ResponseT = await shard.run(operation(shard.machine))
        return answer

    async def listed(self) -> AsyncIterator[ListedGroup | ApiError]:
        """All groups, and the error of each partition that cannot list its groups."""
        for partition in range(self._shards.partition_count):
            try:
                shard = self._shards.of_partition(partition)
                for some in some_at_once(await shard.run(shard.machine.ids)):
                    for group in await shard.run(partial(shard.machine.listed, some)):
                        yield group
            except ApiError as error:
                yield error

    async def _sweep_repeatedly(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._settings.config.offsets_retention_check_interval_ms / 1000):
                    await self._sweep_soon.wait()
            except TimeoutError:
                pass
            self._sweep_soon.clear()
            await self.sweep()

    async def sweep(self) -> None:
        """Remove offsets that expired, offsets of deleted topics, and groups without members and offsets."""
        for shard in self._shards.loaded():
            offsets = shard.machine.offsets
            try:
                await shard.runtime.run(offsets.begin_sweep)
                while await shard.runtime.run(partial(self._sweep_some, shard.machine)):
                    pass
                for some in some_at_once(list(shard.machine.groups.ids())):
                    await shard.runtime.run(partial(shard.machine.forget_idle, some))
            except ApiError as error:
                logger.warning(
                    "offsets_not_expired",
                    topic=OFFSETS_TOPIC,
                    partition=shard.replica.partition,
                    error=str(error),
                    advice="they will be looked at again",
                )

    def _sweep_some(self, machine: GroupMachine, now_ms: int) -> Decision[Any, bool]:
        # A clock that was set must not make offsets expire: the earlier of the two clocks decides.
        return machine.offsets.sweep(min(now_ms, self._clock_ms()), self._topic_id)

    def _topic_id(self, name: str) -> UUID | None:
        topic = self._catalog.topic(name)
        return None if topic is None else topic.topic_id

    async def close(self) -> None:
        """Wait until the operations that began are done."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        await self._shards.close()


def _rules_of(config: BrokerConfig) -> tuple[int, GroupLimits]:
    """How long unused offsets are kept, in ms, and the limits of groups."""
    limits = GroupLimits(
        config.group_initial_rebalance_delay_ms,
        config.group_min_session_timeout_ms,
        config.group_max_session_timeout_ms,
        config.group_max_size,
        config.groups_max_bytes,
    )
    return config.offsets_retention_minutes * _MS_A_MINUTE, limits


async def _begin(shard: Shard[GroupMachine]) -> None:
    """Set the timers of the groups that were replayed."""
    for some in some_at_once(list(shard.machine.groups.ids())):
        await shard.runtime.run(partial(shard.machine.groups.loaded, some))
