"""The coordinator of groups: the internal topic that stores them, and one machine per partition of it.

Owns when `__consumer_offsets` is created, when its partitions are replayed, and what clients are answered
meanwhile.

Invariants:
- the topic is created when a client first looks for the coordinator of a group, or first commits;
- an operation runs after its whole partition was replayed. While that takes longer than `LOAD_WAIT_SECONDS`,
  clients get a retriable error;
- a partition that cannot be read or written fails for its own groups alone; its replay is tried again, at
  most once per `RELOAD_AFTER_MS`;
- errors of the log are answered as those of a coordinator, after which clients look for it again.

On the event loop. Source: Kafka's GroupCoordinatorService and CoordinatorOperationExceptionHelper.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, Catalog, Change, TopicDeleted
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.coordinator.decision import Decision, ResponseT
from tidelog.broker.coordinator.group_machine import GROUP_RECORD_FORMATS, GroupMachine, partition_of
from tidelog.broker.coordinator.groups.messages import GroupLimits, ListedGroup
from tidelog.broker.coordinator.log_journal import LogJournal
from tidelog.broker.coordinator.runtime import CoordinatorRuntime
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.topics import Topics
from tidelog.protocol.errors import ApiError, ErrorCode

LOAD_WAIT_SECONDS = 1.0
RELOAD_AFTER_MS = 10_000
GROUPS_AT_ONCE = 100
"""How many groups one operation over all groups handles at a time."""
_MS_A_MINUTE = 60_000
_ADVICE = (
    "check the disk that holds the data folder; `tidelog log verify` shows what is damaged. Until it can be "
    "read, groups of this partition cannot commit. Deleting the topic deletes what all groups have committed"
)
_CODES = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_COORDINATOR,
    ErrorCode.CORRUPT_MESSAGE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
logger = structlog.get_logger(__name__)
Operation = Callable[[int], Decision[Any, ResponseT]]
"""One operation of a machine: see `CoordinatorRuntime.run`."""


class GroupCoordinator:
    """Coordinates the groups of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        catalog: Catalog,
        topics: Topics,
        replicas: Mapping[tuple[str, int], Replica],
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._topics = topics
        self._replicas = replicas
        self._clock_ms = clock_ms
        self._steady_ms = steady_ms
        self._limits = GroupLimits(
            config.group_initial_rebalance_delay_ms,
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
            config.group_max_size,
            config.groups_max_bytes,
        )
        self._shards: dict[int, _Shard] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._sweep_soon = asyncio.Event()
        self._sweeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to replay the existing partitions, and to remove offsets that expire."""
        for partition in range(self._partition_count):
            with suppress(ApiError):  # Its groups get the error with their next request.
                self._shard_of(partition)
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep_repeatedly())

    def follow(self, change: Change) -> None:
        """Remove the offsets of a topic that is deleted."""
        if isinstance(change.delta, TopicDeleted):
            self._sweep_soon.set()

    @property
    def _partition_count(self) -> int:
        topic = self._catalog.topic(OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    @property
    def has_topic(self) -> bool:
        """Whether the topic exists that committed offsets are stored in."""
        return self._partition_count > 0

    async def make_topic(self) -> None:
        """Create `__consumer_offsets` unless it exists. Raises ApiError(COORDINATOR_NOT_AVAILABLE)."""
        if self.has_topic:
            return
        try:
            await self._topics.create(OFFSETS_TOPIC)
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                message = f"{OFFSETS_TOPIC} cannot be made: {error.message}"
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message) from error

    def check(self, group_id: str) -> None:
        """Raise ApiError(COORDINATOR_NOT_AVAILABLE) if the group's partition is not served."""
        try:
            shard = self._shard(group_id)
        except ApiError as error:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        if shard.failure is not None:
            raise shard.failure

    async def run(
        self, group_id: str, operation: Callable[[GroupMachine], Operation[ResponseT]]
    ) -> ResponseT:
        """Run an operation on the machine of the group's partition.

        Raises ApiError: what the operation raises, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR, or INVALID_COMMIT_OFFSET_SIZE for more records than a batch holds.
        """
        shard = self._shard(group_id)
        await shard.loaded()
        try:
            return await shard.runtime.run(operation(shard.machine))
        except ApiError as error:
            raise _as_coordinator(error) from error

    async def listed(self) -> AsyncIterator[ListedGroup | ApiError]:
        """All groups, and the error of each partition that cannot list its groups."""
        for partition in range(self._partition_count):
            try:
                shard = self._shard_of(partition)
                await shard.loaded()
                run, machine = shard.runtime.run, shard.machine
                for some in _some_at_once(await run(machine.ids)):
                    for group in await run(partial(machine.listed, some)):
                        yield group
            except ApiError as error:
                yield _as_coordinator(error)

    def _shard(self, group_id: str) -> _Shard:
        count = self._partition_count
        if not count:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{OFFSETS_TOPIC} does not exist")
        return self._shard_of(partition_of(group_id, count))

    def _shard_of(self, partition: int) -> _Shard:
        """The present shard of a partition: the topic may have been deleted and created again."""
        replica = self._replicas.get((OFFSETS_TOPIC, partition))
        if replica is None or replica.stopped is not None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{OFFSETS_TOPIC}-{partition} is offline")
        shard = self._shards.get(partition)
        if shard is None or not shard.is_of(replica) or shard.is_to_be_replaced(self._steady_ms()):
            if shard is not None:
                closing = asyncio.get_running_loop().create_task(shard.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
            retention_ms = self._config.offsets_retention_minutes * _MS_A_MINUTE
            machine = GroupMachine(retention_ms, self._limits)
            shard = self._shards[partition] = _Shard(replica, machine, self._clock_ms, self._steady_ms)
        return shard

    async def _sweep_repeatedly(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._config.offsets_retention_check_interval_ms / 1000):
                    await self._sweep_soon.wait()
            except TimeoutError:
                pass
            self._sweep_soon.clear()
            await self.sweep()

    async def sweep(self) -> None:
        """Remove offsets that expired, offsets of deleted topics, and groups without members and offsets."""
        for partition, shard in list(self._shards.items()):
            if not shard.is_loaded:
                continue
            offsets = shard.machine.offsets
            try:
                await shard.runtime.run(offsets.begin_sweep)
                while await shard.runtime.run(partial(self._sweep_some, shard.machine)):
                    pass
                for some in _some_at_once(list(shard.machine.groups.ids())):
                    await shard.runtime.run(partial(shard.machine.forget_idle, some))
            except ApiError as error:
                logger.warning(
                    "offsets_not_expired",
                    topic=OFFSETS_TOPIC,
                    partition=partition,
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
        for shard in self._shards.values():
            await shard.close()
        if self._closing:
            await asyncio.wait(self._closing)


class _Shard:
    """One partition's machine, its runtime, and the state of its replay."""

    def __init__(
        self,
        replica: Replica,
        machine: GroupMachine,
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int],
    ) -> None:
        self.replica = replica
        self._leader_epoch = replica.leader_epoch
        self.machine = machine
        self.failure: ApiError | None = None
        self.is_loaded = False
        self._journal: LogJournal[Any] = LogJournal(replica, GROUP_RECORD_FORMATS, clock_ms)
        self.runtime: CoordinatorRuntime[Any] = CoordinatorRuntime(machine, self._journal, steady_ms)
        self._steady_ms = steady_ms
        self._failed_at_ms = 0
        self._loading = asyncio.get_running_loop().create_task(self._load())

    def is_of(self, replica: Replica) -> bool:
        """Whether it was replayed in the present leader epoch: another broker may have led in between."""
        return self.replica is replica and self._leader_epoch == replica.leader_epoch

    async def _load(self) -> None:
        try:
            await self.runtime.start()
            for some in _some_at_once(list(self.machine.groups.ids())):
                await self.runtime.run(partial(self.machine.groups.loaded, some))
        except ApiError as error:
            self._failed_at_ms = self._steady_ms()
            self.failure = _as_coordinator(error)
            logger.error(
                "group_coordinator_not_loaded",
                topic=self.replica.topic,
                partition=self.replica.partition,
                error=str(error),
                advice=_ADVICE,
            )
        else:
            self.is_loaded = True

    def is_to_be_replaced(self, now_ms: int) -> bool:
        return self.failure is not None and now_ms - self._failed_at_ms >= RELOAD_AFTER_MS

    async def loaded(self) -> None:
        """Return once operations may run. Raises ApiError."""
        if not self.is_loaded and self.failure is None:
            await asyncio.wait([self._loading], timeout=LOAD_WAIT_SECONDS)
        if self.failure is not None:
            raise self.failure
        if not self.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def close(self) -> None:
        self._journal.stop_reading()
        await asyncio.wait([self._loading])
        await self.runtime.close()


def _some_at_once(group_ids: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(group_ids), GROUPS_AT_ONCE):
        yield group_ids[first : first + GROUPS_AT_ONCE]


def _as_coordinator(error: ApiError) -> ApiError:
    code = _CODES.get(error.code)
    return error if code is None else ApiError(code, error.message)
