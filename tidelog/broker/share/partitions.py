"""The share partitions of this broker: those that its clients fetch of partitions that it leads.

Owns which of them are in memory, and how records are read for them. Invariants:
- a share partition is in memory once, with the state that its coordinator had when this broker began to lead;
- its start offset is stored before the first record is given, so a restart begins where this one began;
- a member gets records of one read only where they are available at the moment at which it gets them.

On the event loop. Source: Kafka's SharePartitionManager and DelayedShareFetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import NamedTuple

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.group_settings import (
    BY_DURATION,
    EARLIEST,
    ShareGroupConfig,
    share_group_config,
)
from tidelog.broker.configuration.resource_settings import GROUPS
from tidelog.broker.coordinator.share_states.machine import StateWrite
from tidelog.broker.coordinator.share_states.state import SharePartitionKey
from tidelog.broker.observability.share_counts import ShareCounts
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.share.dead_letters import DeadLetterTopics
from tidelog.broker.share.held import HeldPartition
from tidelog.broker.share.log_reader import READ_BYTES, LogReader, isolation_level
from tidelog.broker.share.parts import BrokerParts
from tidelog.broker.share.reading import Batches
from tidelog.broker.share.share_partition import Acquired, Limits, SharePartition
from tidelog.broker.share.states import ShareStatesClient
from tidelog.broker.storage.disk import ColdRead
from tidelog.broker.storage.log_types import Read
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.steps import Pace
from tidelog.protocol.types import Buffer

_MORE_BYTES = 16_384
"""Read beyond what as many records as are wanted took the last time."""
_MOST_AHEAD = 16
"""Reads that are kept for the next fetches, each of at most `READ_BYTES`."""
_MOST_READS = 64
"""Reads of one partition that find no record to give, in one fetch: markers, and what was deleted."""
_MOST_LOADS = 100
"""States that one fetch lets read; the next one goes on."""
_MOST_KEPT_SETTINGS = 10_000
"""Of groups. A group of which something is still written may be asked about after its last session."""
_ELEMENTS_PER_PARTITION = 4
"""See `protocol.steps`."""
_LOAD_SECONDS = 1.0
"""How long a fetch without records waits at least for states that are read."""
_LATER = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )
)
"""A state cannot be read now: its partition has no records until it can."""
_Load = asyncio.Task[HeldPartition]


class _Settings(NamedTuple):
    """What follows from the settings of the broker and of a group, as long as these are the same objects."""

    broker: BrokerConfig
    own: Mapping[str, str] | None
    config: ShareGroupConfig
    limits: Limits


class Wanted(NamedTuple):
    """What one fetch wants. `is_strict`: no more than `max_records`, also within a batch."""

    member_id: str
    max_records: int
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    batch_size: int
    is_strict: bool


class Got(NamedTuple):
    """Whole batches, and which of their records the member has from now on."""

    records: Sequence[Buffer]
    acquired: Sequence[Acquired]

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.records))


class SharePartitions:
    """Holds the share partitions of one broker."""

    def __init__(self, services: BrokerParts, states: ShareStatesClient, counts: ShareCounts) -> None:
        self._counts = counts
        self._services = services
        self._states = states
        self._reader = LogReader(services)
        self.dead_letter_topics = DeadLetterTopics(services, self._reader, counts)
        self._held: dict[SharePartitionKey, HeldPartition] = {}
        self._loading: dict[SharePartitionKey, _Load] = {}
        self._ahead: dict[HeldPartition, Batches] = {}
        self._kept_settings: dict[str, _Settings] = {}

    def config(self, group_id: str) -> ShareGroupConfig:
        """The settings that hold for a group now."""
        return self._settings(group_id).config

    def _settings(self, group_id: str) -> _Settings:
        broker, catalog = self._services.config, self._services.catalog
        own = catalog.broker_configs.get(GROUPS.key(group_id))
        kept = self._kept_settings.get(group_id)
        if kept is None or kept.broker is not broker or kept.own is not own:
            if len(self._kept_settings) >= _MOST_KEPT_SETTINGS:
                self._kept_settings.clear()
            config = share_group_config(broker, catalog, group_id)
            kept = self._kept_settings[group_id] = _Settings(broker, own, config, _limits(config))
        return kept

    def forget(self, group_id: str) -> None:
        """Of a group without sessions, nothing stays in memory but what is still being written."""
        for held in self.of_group(group_id):
            if held.is_idle:
                self.drop(held)

    def of_group(self, group_id: str) -> list[HeldPartition]:
        return [held for key, held in self._held.items() if key.group_id == group_id]

    def all(self) -> Iterable[HeldPartition]:
        return self._held.values()

    async def of(self, key: SharePartitionKey) -> HeldPartition:
        """The share partition, which is read from its coordinator first if it is not in memory.

        Raises ApiError: UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST for a partition that the
        group does not read, and what a coordinator answers.
        """
        held = self.present(key)
        return await asyncio.shield(self._load_soon(key)) if held is None else held

    def _load_soon(self, key: SharePartitionKey) -> _Load:
        task = self._loading.get(key)
        if task is None:
            task = self._loading[key] = asyncio.get_running_loop().create_task(self._load(key))
            task.add_done_callback(lambda done: self._loaded(key, done))
        return task

    def _loaded(self, key: SharePartitionKey, task: _Load) -> None:
        del self._loading[key]
        if not task.cancelled() and task.exception() is None:
            self._held[key] = task.result()

    def _led(self, key: SharePartitionKey) -> Replica:
        topic = self._services.catalog.topic_by_id(key.topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self._services.replica(topic.name, key.partition)

    async def _load(self, key: SharePartitionKey) -> HeldPartition:
        replica = self._led(key)
        epoch = replica.leader_epoch
        config = self.config(key.group_id)
        try:
            state = await self._states.read(key, epoch)
            start_offset = state.start_offset
            if start_offset < 0:
                start_offset = await self._first_offset(replica, config)
                await self._states.write(key, StateWrite(state.state_epoch, epoch, start_offset, 0, ()))
        except ApiError as error:
            if error.code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) from error
            raise
        if self._led(key) is not replica or replica.leader_epoch != epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        machine = SharePartition(start_offset, state.batches, _limits(config))
        return HeldPartition(
            key,
            replica,
            state.state_epoch,
            machine,
            self._states,
            self._services.steady_ms,
            self._counts,
            lambda: self._settings(key.group_id).limits,
            self.dead_letter_topics,
        )

    async def _first_offset(self, replica: Replica, config: ShareGroupConfig) -> int:
        """Where a group begins that has read nothing, as share.auto.offset.reset says."""
        end_offset = replica.ends.visible(isolation_level(config))
        if config.auto_offset_reset == EARLIEST:
            return replica.log.log_start_offset
        if config.auto_offset_reset == BY_DURATION:
            timestamp = self._services.clock_ms() - config.reset_duration_ms
            found = await asyncio.to_thread(replica.log.offset_for_timestamp, timestamp)
            return end_offset if found is None else min(found.offset, end_offset)
        return end_offset

    def drop(self, held: HeldPartition) -> None:
        """Forget one; the next use reads its state again."""
        held.end()
        self._ahead.pop(held, None)
        if self._held.get(held.key) is held:
            del self._held[held.key]

    async def fetch(
        self, keys: Sequence[SharePartitionKey], wanted: Wanted, config: ShareGroupConfig
    ) -> Mapping[SharePartitionKey, Got | ApiError]:
        """What the member gets of these partitions, without those of which it gets nothing.

        Waits for records, and for `min_bytes` of them, at most `max_wait_ms`; an error ends the wait.
        """
        loop = asyncio.get_running_loop()
        loads = self._loads(keys)
        deadline = loop.time() + wanted.max_wait_ms / 1000
        patience = max(deadline, loop.time() + _LOAD_SECONDS)
        told: dict[HeldPartition, None] = {}
        try:
            while True:
                event = _Event(told)
                is_short = loop.time() < deadline and self._is_short(keys, wanted, config)
                if is_short:  # Others may want what it was told of.
                    _tell_next(told)
                with ExitStack() as watched:
                    failed = _failed(loads)
                    loading = [load for key, load in loads.items() if self._loading.get(key) is load]
                    for load in loading:
                        load.add_done_callback(event.loaded)
                        watched.callback(load.remove_done_callback, event.loaded)
                    found = await self._taken(keys, wanted, config, event, watched, is_short=is_short)
                    until = patience if loading else deadline
                    if failed or found or loop.time() >= until:
                        return {**failed, **found}
                    await event.wait_until(until)
        finally:
            _tell_next(told)

    async def _taken(
        self,
        keys: Sequence[SharePartitionKey],
        wanted: Wanted,
        config: ShareGroupConfig,
        event: _Event,
        watched: ExitStack,
        *,
        is_short: bool,
    ) -> Mapping[SharePartitionKey, Got | ApiError]:
        """What the member gets at once; nothing if that `is_short`. `event` watches as long as `watched`."""
        results: dict[SharePartitionKey, Got | ApiError] = {}
        pace = Pace()
        for key in keys:
            if wanted.max_records <= 0 or wanted.max_bytes <= 0:
                break
            if pace.spent(_ELEMENTS_PER_PARTITION):
                await self._services.turns.next()
            try:
                held = self.present(key)
                if held is None:
                    continue
                if is_short:  # It waits for bytes: others may want records that become free.
                    held.replica.watch(event)
                    watched.callback(held.replica.unwatch, event)
                    continue
                held.watch(event)
                watched.callback(held.unwatch, event)
                if not held.may_acquire(event):
                    continue
                got = await self._acquired(held, wanted, config)
            except ApiError as error:
                results[key] = error
                continue
            if got is not None:
                results[key] = got
                wanted = wanted._replace(
                    max_bytes=wanted.max_bytes - got.size_bytes,
                    max_records=wanted.max_records - sum(each.last - each.first + 1 for each in got.acquired),
                )
        return results

    def _is_short(self, keys: Sequence[SharePartitionKey], wanted: Wanted, config: ShareGroupConfig) -> bool:
        """Whether there is less to read than `min_bytes`, also counting what others hold."""
        missing = wanted.min_bytes
        if missing <= 1:
            return False
        for held in filter(None, map(self._held.get, keys)):
            offset = held.machine.next_fetch_offset
            end_offset = held.replica.ends.visible(isolation_level(config))
            if offset < end_offset and held.machine.can_acquire:
                try:
                    found = held.replica.read(Read(offset, missing, end_offset, nowait=True))
                except (ApiError, ColdRead):
                    return False
                missing -= sum(map(len, found.records))
                if missing <= 0 or found.next_offset < end_offset:  # The next batch is more than that.
                    return False
        return True

    def present(self, key: SharePartitionKey) -> HeldPartition | None:
        """One that is in memory; None while it is being read. Raises ApiError."""
        held = self._held.get(key)
        if held is None:
            return None
        if not held.is_current:
            self.drop(held)
            self._led(key)  # Says who leads.
            return None
        self._services.check_not_replaced(held.replica)
        return held

    def _loads(self, keys: Sequence[SharePartitionKey]) -> Mapping[SharePartitionKey, _Load]:
        """Begin to read the states of those that are not in memory."""
        missing = islice((key for key in keys if key not in self._held), _MOST_LOADS)
        return {key: self._load_soon(key) for key in missing}

    async def _acquired(self, held: HeldPartition, wanted: Wanted, config: ShareGroupConfig) -> Got | None:
        """What the member gets of one partition; None for nothing. Raises ApiError."""
        machine, replica = held.machine, held.replica
        for _ in range(_MOST_READS):
            machine.limits = self._settings(held.key.group_id).limits
            machine.log_begins_at(replica.log.log_start_offset)
            offset, end_offset = machine.next_fetch_offset, replica.ends.visible(isolation_level(config))
            if not machine.can_acquire or offset >= end_offset:
                return None
            found = await self._read(held, offset, end_offset, wanted, config)
            taken = machine.acquire(
                wanted.member_id,
                offset,
                found.read_to,
                (place[:2] for place in found.places),
                wanted.max_records,
                is_strict=wanted.is_strict,
                batch_size=wanted.batch_size,
                now_ms=self._services.steady_ms(),
            )
            if taken:
                held.changed()
                return Got(found.holding(taken[0].first, taken[-1].last), taken)
            if machine.next_fetch_offset == offset:
                return None
        return None

    async def _read(
        self, held: HeldPartition, offset: int, end_offset: int, wanted: Wanted, config: ShareGroupConfig
    ) -> Batches:
        """What a fetch may get, of an earlier read if that has it. Raises ApiError."""
        kept, likely = self._ahead.get(held), wanted.max_records * held.bytes_per_record + _MORE_BYTES
        if kept is not None and kept.reads_committed == config.reads_committed:
            if kept.read_from <= offset < kept.read_to:
                return kept.part(offset, wanted.max_bytes)
            if offset == kept.read_to:  # The next fetches go on from there.
                likely = READ_BYTES
        read = Read(offset, min(READ_BYTES, likely), end_offset)
        found = await self._reader.read(held.replica, read, config)
        if not held.is_current:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        held.bytes_per_record = found.bytes_per_offset
        self._ahead.pop(held, None)
        if found.size_bytes <= READ_BYTES:  # One batch may be larger.
            self._ahead[held] = found
        if len(self._ahead) > _MOST_AHEAD:
            del self._ahead[next(iter(self._ahead))]
        return found.part(offset, wanted.max_bytes)

    async def close(self) -> None:
        """Wait for the writes under way."""
        for task in self._loading.values():
            task.cancel()
        for held in list(self._held.values()):
            await held.close()


def _limits(config: ShareGroupConfig) -> Limits:
    return Limits(
        config.max_delivery_count,
        config.max_record_locks,
        config.lock_duration_ms,
        config.may_renew,
        bool(config.dead_letter_topic),
    )


def _failed(loads: Mapping[SharePartitionKey, _Load]) -> Mapping[SharePartitionKey, ApiError]:
    """Why states could not be read. Raises what is not an ApiError."""
    failed = {}
    for key, load in loads.items():
        error = load.exception() if load.done() and not load.cancelled() else None
        if isinstance(error, ApiError) and error.code not in _LATER:
            failed[key] = again(error)
        elif error is not None and not isinstance(error, ApiError):
            raise error
    return failed


def _tell_next(told: dict[HeldPartition, None]) -> None:
    """Who was told of these takes no more of them now."""
    while told:
        told.popitem()[0].tell_next()


class _Event:
    """Set when a share partition has records to give, which `told` keeps, or a replica has more to read."""

    def __init__(self, told: dict[HeldPartition, None]) -> None:
        self.event = asyncio.Event()
        self._told = told

    def may_give(self, held: HeldPartition) -> None:
        self._told[held] = None
        self.event.set()

    def replica_changed(self, replica: Replica) -> None:
        self.event.set()

    def loaded(self, load: _Load) -> None:
        self.event.set()

    async def wait_until(self, deadline: float) -> None:
        """Return when it is set, or at `deadline` on the loop's clock."""
        timer = asyncio.get_running_loop().call_at(deadline, self.event.set)
        try:
            await self.event.wait()
        finally:
            timer.cancel()
