"""The coordinator of groups: a `group_machine` over each partition of `__consumer_offsets`.

Owns what happens to groups without a request: offsets that expire, groups that are empty, and changes of the
topics that groups of the consumer protocol read.

On the event loop. Source: Kafka's GroupCoordinatorService.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from tidelog.broker.cluster.catalog import (
    OFFSETS_TOPIC,
    Catalog,
    Change,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.resource_settings import GROUPS
from tidelog.broker.coordinator import shards
from tidelog.broker.coordinator.consumer_groups.group import ResolvedRegex, SubscribedTopic
from tidelog.broker.coordinator.consumer_groups.messages import ConsumerGroupSettings
from tidelog.broker.coordinator.consumer_groups.regexes import matching
from tidelog.broker.coordinator.decision import Decision
from tidelog.broker.coordinator.group_machine import GROUP_RECORD_FORMATS, GroupMachine, GroupRules
from tidelog.broker.coordinator.groups.messages import GroupLimits, ListedGroup
from tidelog.broker.coordinator.share_groups.machine import ShareGroupSettings
from tidelog.broker.tasks import is_set_within, kept
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import TransactionMarker

REFRESH_PAUSE_SECONDS = 0.1
"""Between two refreshes, so that many changes of topics in a short time cause few of them."""
_MS_PER_MINUTE = 60_000
_ADVICE = (
    "check the disk that holds the data folder; `tidelog log verify` shows what is damaged. Until it can be "
    "read, groups of this partition cannot commit. Deleting the topic deletes all committed offsets"
)
_Sees = Callable[[str], bool]


class GroupCoordinator(shards.Coordinator[GroupMachine]):
    """Coordinates the groups of one broker."""

    def __init__(self, parts: shards.CoordinatorParts) -> None:
        self._catalog = parts.catalog
        self._clock_ms = parts.clock_ms
        kind = shards.ShardKind(
            OFFSETS_TOPIC,
            GROUP_RECORD_FORMATS,
            self._machine,
            self._begin,
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            _ADVICE,
        )
        super().__init__(kind, parts)
        self.partition_of = self._shards.partition_of
        self._sweep_soon = asyncio.Event()
        self._topics_changed = asyncio.Event()
        self._viewers: dict[str, _Sees] | None = None
        """Group -> which topics the member may describe that sent its newest heartbeat."""
        parts.settings.when_changed(self._settings_changed)

    def start(self) -> None:
        """Begin to replay the existing partitions, and to remove offsets that expire."""
        self._shards.start()
        self._tasks.begin(kept(self._sweep_repeatedly))
        self._tasks.begin(kept(self._refresh_repeatedly))

    def follow(self, change: Change) -> None:
        """Remove the offsets of a topic that is deleted, and refresh the groups that read a changed topic."""
        super().follow(change)
        if isinstance(change.delta, TopicDeleted):
            self._sweep_soon.set()
        if isinstance(change.delta, TopicCreated | TopicDeleted | PartitionsAdded):
            self.refresh_soon()

    def _machine(self) -> GroupMachine:
        return GroupMachine(_rules_of(self._settings.config), CatalogTopics(self._catalog))

    async def _begin(self, shard: shards.Shard[GroupMachine]) -> None:
        """Set the timers of the groups that were replayed. Their topics may have changed meanwhile."""
        for some in shards.some_at_once(list(shard.machine.groups.ids())):
            await shard.runtime.run(partial(shard.machine.groups.loaded, some))
        self.refresh_soon()

    def _settings_changed(self) -> None:
        for machine in self._shards.machines():
            machine.set_rules(_rules_of(self._settings.config))

    def machines(self) -> list[GroupMachine]:
        """Those of the partitions that were replayed; to read from, not to change."""
        return [shard.machine for shard in self._shards.loaded()]

    def machine_of(self, group_id: str) -> GroupMachine | None:
        """That of the group's partition; to read from, not to change. None if it is not replayed."""
        try:
            shard = self._shards.of(group_id)
        except ApiError:
            return None
        return shard.machine if shard.is_loaded else None

    @property
    def has_topic(self) -> bool:
        """Whether the topic exists that committed offsets are stored in."""
        return self._shards.partition_count > 0

    async def end_transaction(self, partition: int, marker: TransactionMarker) -> None:
        """Let what a transaction committed in this partition count, or forget it; durable at the return.

        Raises ApiError.
        """
        shard = self._shards.of_partition(partition)
        await shard.run(partial(shard.machine.offsets.end_transaction, marker))

    def listed(self) -> AsyncIterator[ListedGroup | ApiError]:
        """All groups of this broker, and the error of each partition that cannot list its groups."""
        return self._listed(lambda machine: sorted(machine.all_ids()), GroupMachine.listed)

    async def _sweep_repeatedly(self) -> None:
        while True:
            seconds = self._settings.config.offsets_retention_check_interval_ms / 1000
            await is_set_within(self._sweep_soon, seconds)
            self._sweep_soon.clear()
            await self.sweep()

    async def sweep(self) -> None:
        """Remove offsets that expired, offsets of deleted topics, and groups without members and offsets."""
        advice = "the broker tries again at the next check"
        await self._shards.for_each(self._sweep_shard, "offsets_not_expired", advice)

    async def _sweep_shard(self, shard: shards.Shard[GroupMachine]) -> None:
        await shard.runtime.run(shard.machine.offsets.begin_sweep)
        while await shard.runtime.run(partial(self._sweep_some, shard.machine)):
            pass
        for some in shards.some_at_once(list(shard.machine.groups.ids())):
            await shard.runtime.run(partial(shard.machine.forget_idle, some))

    def _sweep_some(self, machine: GroupMachine, now_ms: int) -> Decision[Any, bool]:
        # A clock that was set must not make offsets expire: the earlier of the two clocks decides.
        return machine.offsets.sweep(min(now_ms, self._clock_ms()), self._topic_id)

    def _topic_id(self, name: str) -> UUID | None:
        topic = self._catalog.topic(name)
        return None if topic is None else topic.topic_id

    def hide_topics(self) -> None:
        """From now on a regular expression matches only topics that a member of the group may describe."""
        self._viewers = {}

    def seen_by(self, group_id: str, sees: _Sees) -> None:
        """A member of the group, which may describe the topics that `sees` says, sent a heartbeat."""
        if self._viewers is None:
            return
        if group_id not in self._viewers:
            self.refresh_soon()  # No member was known that may describe the matching topics.
        self._viewers[group_id] = sees

    async def resolve(self, regex: str, sees: _Sees | None = None) -> ResolvedRegex:
        """The topics that a regular expression matches, of those that `sees` says (None: of all).

        Raises ApiError(INVALID_REGULAR_EXPRESSION).
        """
        revision = self._catalog.revision
        names = [topic.name for topic in self._catalog.topics() if sees is None or sees(topic.name)]
        steps = matching(regex, names)
        try:
            while True:
                next(steps)
                await asyncio.sleep(0)
        except StopIteration as end:
            return ResolvedRegex(end.value, revision, self._clock_ms())

    def refresh_soon(self) -> None:
        """Let the groups of the consumer protocol know which topics exist now, soon after this."""
        self._topics_changed.set()

    async def _refresh_repeatedly(self) -> None:
        while True:
            await self._topics_changed.wait()
            self._topics_changed.clear()
            await self.refresh()
            await asyncio.sleep(REFRESH_PAUSE_SECONDS)

    async def refresh(self) -> None:
        """Let the groups of the consumer protocol know which topics exist now."""
        advice = "the broker tries again after the next change of a topic"
        await self._shards.for_each(self._refresh_shard, "groups_not_refreshed", advice)
        if self._viewers:
            present = {group_id for machine in self.machines() for group_id in machine.groups.consumer.ids()}
            self._viewers = {name: sees for name, sees in self._viewers.items() if name in present}

    async def _refresh_shard(self, shard: shards.Shard[GroupMachine]) -> None:
        groups = shard.machine.groups.consumer
        resolved = {regex: await self.resolve(regex) for regex in groups.regexes}
        for group_id in list(groups.ids()):
            seen = self._seen(group_id, groups.regexes_of(group_id), resolved)
            await shard.runtime.run(partial(groups.topics_changed, group_id, seen))
        share = shard.machine.groups.share
        for group_id in list(share.ids()):
            await shard.runtime.run(partial(share.topics_deleted, group_id))

    def _seen(
        self, group_id: str, regexes: Iterable[str], resolved: Mapping[str, ResolvedRegex]
    ) -> Mapping[str, ResolvedRegex]:
        """What of the matches the group may see; {} leaves its expressions as they are."""
        if self._viewers is None:
            return resolved
        sees = self._viewers.get(group_id)
        if sees is None:
            return {}
        return {
            regex: found._replace(topics=frozenset(filter(sees, found.topics)))
            for regex in regexes
            if (found := resolved.get(regex)) is not None
        }


class CatalogTopics:
    """The topics of the catalog and the settings of groups, as groups see them."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def subscribed_topic(self, name: str) -> SubscribedTopic | None:
        topic = self._catalog.topic(name)
        return None if topic is None else SubscribedTopic(topic.topic_id, len(topic.partitions))

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self._catalog.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        return self._catalog.broker_configs.get(GROUPS.key(group_id), {})


def _rules_of(config: BrokerConfig) -> GroupRules:
    limits = GroupLimits(
        config.group_initial_rebalance_delay_ms,
        config.group_min_session_timeout_ms,
        config.group_max_session_timeout_ms,
        config.group_max_size,
        config.groups_max_bytes,
    )
    policy = config.group_consumer_migration_policy
    settings = ConsumerGroupSettings(
        config.group_consumer_session_timeout_ms,
        config.group_consumer_heartbeat_interval_ms,
        config.group_consumer_max_size,
        config.group_consumer_assignors,
        may_upgrade=policy in ("upgrade", "bidirectional"),
        may_downgrade=policy in ("downgrade", "bidirectional"),
    )
    share = ShareGroupSettings(
        config.group_share_session_timeout_ms,
        config.group_share_heartbeat_interval_ms,
        config.group_share_max_size,
    )
    return GroupRules(config.offsets_retention_minutes * _MS_PER_MINUTE, limits, settings, share)
