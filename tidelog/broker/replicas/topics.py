"""Creates, grows, changes and deletes topics on request.

Owns what a request may ask for, and the order in which disk and catalog change. Creating: the folders and
logs first, then the store. If a step fails, all is undone. Deleting: the store first, then the folders.

Invariants: a change that is reported to a client is durable, and its replicas serve; a topic is made whole or
not at all. One change of a name runs at a time; changes of many names run together, so that they share the
syncs of folders (`reconciler`) and of the catalog (`broker.cluster.cluster`), and a deletion does not wait
behind creations. While the store cannot say whether it holds a change, all other changes wait.

For the event loop only.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from tidelog.broker.cluster.catalog import (
    BrokerConfigsChanged,
    Catalog,
    Change,
    Delta,
    FoldersRemoved,
    NothingToChange,
    PartitionAssignment,
    PartitionsAdded,
    PartitionsChanged,
    Topic,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
    collision_key,
    least_in_sync,
)
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.controlled_shutdown import stopping_brokers
from tidelog.broker.cluster.controller import live_brokers
from tidelog.broker.cluster.placement import assign, assign_manually, led_by_live, plan_partitions
from tidelog.broker.cluster.store import STORE_FAILED_ADVICE, StoreConflict, StoreError
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.configuration.cluster_settings import UNIX
from tidelog.broker.configuration.resource_settings import ResourceKind
from tidelog.broker.configuration.topic_configs import TopicConfigs
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.turns import Turns
from tidelog.broker.replicas.reconciler import Reconciler
from tidelog.broker.storage.disk import HandleLimitError, advice_on
from tidelog.broker.tasks import Tasks
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.steps import Steps

MOST_UNREPORTED = 100
"""Deleted topics without a folder here, of which the catalog may not know that."""
_NO_PEER = ""
_NO_TOPIC = ""
_D = TypeVar("_D", bound=Delta)
_T = TypeVar("_T")
ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str | None]]
"""The settings of a resource now -> as they shall be."""
_STORE_ERRORS = (StoreError, StoreConflict, OSError)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """What CreateTopics may ask for; -1 and None stand for the broker's defaults."""

    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)


class Topics:
    """Creates, grows, changes and deletes topics on one broker."""

    def __init__(
        self,
        cluster: Cluster,
        reconciler: Reconciler,
        broker_settings: BrokerSettings,
        settings: TopicConfigs,
        events: PeerEvents,
        turns: Turns,
        *,
        internal: Mapping[str, NewTopic] | None = None,
    ) -> None:
        """`internal`: the defaults of internal topics, by name, whose settings need not pass any check; of
        the replicas they name the most."""
        self.settings = settings
        self._broker_settings = broker_settings
        self._events = events
        self._turns = turns
        self._cluster = cluster
        self._node_id = broker_settings.config.node_id
        self._reconciler = reconciler
        self._internal = internal or {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Of what is being changed: while one holds or awaits it."""
        self._changes = Tasks()

    async def create(
        self, name: str, wanted: NewTopic | None = None, *, validate_only: bool = False
    ) -> Topic:
        """Create a topic, or with `validate_only` say what would be created. Raises ApiError."""
        wanted = wanted or NewTopic()

        def plan(catalog: Catalog) -> Steps[TopicCreated]:
            return self._plan(catalog, name, wanted)

        if validate_only:
            return (await self._turns.run(plan(self._cluster.catalog))).topic

        async def run() -> Topic:
            topic = (await self._planned(plan)).topic

            def again(catalog: Catalog) -> TopicCreated:
                return catalog.plan_topic(
                    name, topic.topic_id, _led(topic.partitions, catalog), topic.configs
                )

            await self._add(topic, 0, again)
            return topic

        return await self._to_the_end(name, run())

    def _plan(self, catalog: Catalog, name: str, wanted: NewTopic) -> Steps[TopicCreated]:
        # The name first, as Kafka does: a repeated request gets the answer that the topic exists.
        catalog.plan_topic(name, UUID(int=0), (), {})
        brokers, topic_id = sorted(live_brokers(catalog)), uuid.uuid4()
        defaults = self._broker_settings.config
        internal = self._internal.get(name, NewTopic())
        if wanted.assignments:
            partitions = yield from assign_manually(wanted.assignments, brokers)
        else:
            count = wanted.num_partitions if wanted.num_partitions != -1 else internal.num_partitions
            count = defaults.num_partitions if count == -1 else count
            factor = wanted.replication_factor
            if factor == -1 and name in self._internal:
                possible = (
                    1 if self._is_one_machine else max(len(brokers), defaults.default_replication_factor)
                )
                factor = min(internal.replication_factor, possible)
            factor = defaults.default_replication_factor if factor == -1 else factor
            partitions = assign(
                count,
                brokers,
                factor,
                begin=topic_id.int,
                racks=catalog.racks(),
                stopping=stopping_brokers(catalog),
            )
        self._check_replicas(partitions)
        return catalog.plan_topic(name, topic_id, partitions, self._checked(name, wanted.configs))

    def _checked(
        self, name: str, configs: Mapping[str, str | None], before: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """A topic's own settings, in place of those `before`; an internal topic gets its defaults even if
        none is named."""
        internal = self._internal.get(name, NewTopic()).configs
        given = {
            key: value for key, value in configs.items() if key not in internal or internal[key] != value
        }
        return {**internal, **self.settings.check(given, before)}  # type: ignore[dict-item]

    @property
    def _is_one_machine(self) -> bool:
        """Whether all brokers are processes of one machine."""
        return self._broker_settings.config.cluster_store.startswith(UNIX)

    def _check_replicas(self, partitions: Iterable[PartitionAssignment]) -> None:
        """Raise ApiError(INVALID_REPLICATION_FACTOR) for several copies on one machine."""
        if self._is_one_machine and any(len(assigned.replicas) > 1 for assigned in partitions):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "The processes of one machine keep one replica of each partition: set the replication "
                "factor to 1.",
            )

    async def add_partitions(
        self,
        name: str,
        total: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Grow a topic to `total` partitions. Raises ApiError."""

        def plan(catalog: Catalog) -> Steps[PartitionsAdded]:
            topic = _existing(catalog, name)
            if topic.is_internal:
                raise ApiError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"The number of partitions of {name} cannot be changed, because groups depend on it.",
                )
            brokers = sorted(live_brokers(catalog))
            racks, stopping = catalog.racks(), stopping_brokers(catalog)
            planned = yield from plan_partitions(topic, total, assignments, brokers, racks, stopping)
            self._check_replicas(planned.partitions)
            return planned

        if validate_only:
            await self._turns.run(plan(self._cluster.catalog))
            return

        async def run() -> None:
            delta = await self._planned(plan)

            def unchanged(catalog: Catalog) -> Topic:
                topic = catalog.topic_by_id(delta.topic_id)
                if topic is None or len(topic.partitions) + len(delta.partitions) != total:
                    raise ApiError(ErrorCode.INVALID_PARTITIONS, f"{name} has changed meanwhile; try again.")
                return topic

            def again(catalog: Catalog) -> PartitionsAdded:
                unchanged(catalog)
                return replace(delta, partitions=_led(delta.partitions, catalog))

            topic = unchanged(self._cluster.catalog)
            grown = replace(topic, partitions=topic.partitions + delta.partitions)
            await self._add(grown, len(topic.partitions), again)

        await self._to_the_end(name, run())

    async def delete(self, topic_id: UUID) -> None:
        """Delete a topic and its data. Raises ApiError."""
        if not self._broker_settings.config.delete_topic_enable:
            raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this broker")

        def plan(catalog: Catalog) -> TopicDeleted:
            topic = catalog.topic_by_id(topic_id)
            if topic is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
            return TopicDeleted(topic_id, catalog.holders(topic), self._gone(catalog), self._node_id)

        topic = self._cluster.catalog.topic_by_id(topic_id)
        await self._to_the_end(topic.name if topic is not None else _NO_TOPIC, self._change(plan))

    async def reassign(
        self, topic_id: UUID, wanted: Mapping[int, Sequence[int] | None], *, may_change_factor: bool
    ) -> dict[int, ApiError]:
        """Begin to give partitions these replicas, or with None restore the former ones. Returns why some
        cannot have them. Raises ApiError."""
        from tidelog.broker.cluster.reassignment import reassigned

        refused: dict[int, ApiError] = {}
        default = self._broker_settings.config.min_insync_replicas

        def plan(catalog: Catalog) -> PartitionsChanged:
            delta = reassigned(
                catalog,
                topic_id,
                wanted,
                lambda topic: least_in_sync(topic, default),
                refused,
                may_change_factor=may_change_factor,
            )
            if self._is_one_machine and delta.partitions:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    "Partitions of several processes cannot be reassigned: stop the broker and start "
                    "it with another number of processes.",
                )
            if not delta.partitions and not self._broker_settings.config.cluster_store:
                raise NothingToChange  # The only broker has the newest image.
            return delta

        async def run() -> None:
            with suppress(NothingToChange):
                await self._change(plan)

        topic = self._cluster.catalog.topic_by_id(topic_id)
        await self._to_the_end(topic.name if topic is not None else _NO_TOPIC, run())
        return refused

    def _gone(self, catalog: Catalog) -> tuple[UUID, ...]:
        """The deleted topics of which this broker has no folder left, and the catalog does not know it yet.

        A deletion at this broker reports them, so that one broker alone needs no commit for it."""
        deleted = catalog.deleted
        return tuple(each for each in self._reconciler.gone if self._node_id in deleted.get(each, ()))

    def follow(self, change: Change) -> None:
        """Report the folders that are gone where others delete the topics."""
        if isinstance(change.delta, TopicDeleted) and len(self._reconciler.gone) >= MOST_UNREPORTED:
            self._changes.begin(self.report_gone())

    async def report_gone(self) -> None:
        """Let the catalog know of which deleted topics this broker has no folder left."""
        await self._reconciler.settled()
        if self._gone(self._cluster.catalog):
            with suppress(*_STORE_ERRORS):  # It is reported later.
                await self._cluster.change(lambda image: FoldersRemoved(self._node_id, self._gone(image)))

    async def change_configs(self, name: str, change: ConfigChange, *, validate_only: bool = False) -> None:
        """Replace a topic's own settings by `change(of the present ones)`, also in its running logs.

        Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG.
        """

        def plan(catalog: Catalog) -> TopicConfigsChanged:
            topic = _existing(catalog, name)
            configs = self._checked(name, change(topic.configs), topic.configs)
            return TopicConfigsChanged(topic.topic_id, configs)

        if validate_only:
            plan(self._cluster.catalog)
            return
        await self._to_the_end(name, self._change(plan))

    async def change_broker_configs(
        self, name: str, change: ConfigChange, *, validate_only: bool = False
    ) -> None:
        """Replace the settings that were changed at run time, of a broker (by its id) or of all
        (ALL_BROKERS), by `change(of the present ones)`. Raises ApiError: INVALID_CONFIG, INVALID_REQUEST."""

        def plan(catalog: Catalog) -> BrokerConfigsChanged:
            present = self._broker_settings.changed(name)
            return BrokerConfigsChanged(name, self._broker_settings.check(name, change(present)))

        await self._change_configs(plan, validate_only=validate_only)

    async def change_resource_configs(
        self, kind: ResourceKind, name: str, change: ConfigChange, *, validate_only: bool = False
    ) -> None:
        """Replace the settings of a group or of client metrics by `change(of the present ones)`; without any
        the resource is gone. Raises ApiError: INVALID_CONFIG, INVALID_REQUEST."""

        def plan(catalog: Catalog) -> BrokerConfigsChanged:
            present = catalog.broker_configs.get(kind.key(name), {})
            checked = kind.check(name, change(present), self._broker_settings)
            return BrokerConfigsChanged(kind.key(name), checked)

        await self._change_configs(plan, validate_only=validate_only)

    async def _change_configs(
        self, plan: Callable[[Catalog], BrokerConfigsChanged], *, validate_only: bool
    ) -> None:
        if validate_only:
            plan(self._cluster.catalog)
        else:
            await self._to_the_end(_NO_TOPIC, self._change(plan))

    async def _planned(self, plan: Callable[[Catalog], Steps[_D]]) -> _D:
        """The result of `plan` for the newest catalog. Raises ApiError."""
        try:
            await self._cluster.settle()
        except _STORE_ERRORS as error:
            raise self._store_failed(error) from error
        await self._reconciler.settled()
        return await self._turns.run(plan(self._cluster.catalog))

    async def _add(self, topic: Topic, first: int, plan: Callable[[Catalog], Delta]) -> None:
        """Make the partitions of `topic` from `first` on, then commit the deltas of `plan`. Raises
        ApiError."""
        try:
            await self._reconciler.prepare(topic, first)
        except OSError as error:
            # Another broker may have made them meanwhile: this raises what is wrong then.
            plan(self._cluster.catalog)
            self._events.error(
                "topic_not_made",
                _NO_PEER,
                topic=topic.name,
                error=str(error),
                advice=advice_on(error, "nothing was changed; free space on the disk, then try again"),
            )
            # A disk may recover, and handles become free, while the client tries again; the limit stays.
            is_lasting = isinstance(error, HandleLimitError)
            code = ErrorCode.POLICY_VIOLATION if is_lasting else ErrorCode.KAFKA_STORAGE_ERROR
            raise ApiError(code, f"the partitions could not be made: {error.strerror or error}") from error
        await self._change(plan, lambda: self._reconciler.discard(topic.topic_id))

    async def _change(
        self, plan: Callable[[Catalog], Delta], dropped: Callable[[], None] | None = None
    ) -> None:
        """Commit the result of `plan`, and return once the replicas match it. Raises ApiError."""
        try:
            await self._cluster.change(plan, dropped)
        except _STORE_ERRORS as error:
            raise self._store_failed(error) from error
        finally:
            await self._reconciler.settled()

    def _store_failed(self, error: Exception) -> ApiError:
        self._events.error("cluster_store_failed", _NO_PEER, error=str(error), advice=STORE_FAILED_ADVICE)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the cluster store failed: {error}")

    async def _to_the_end(self, name: str, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a change to its end even if its caller is cancelled, after earlier changes of this topic or of
        one whose name collides."""

        async def answered() -> _T | ApiError:
            try:
                return await work
            except ApiError as error:
                return error  # As a result, because a refusal without a waiting caller is not a failure.

        answer = await asyncio.shield(self._changes.task(self._in_turn(collision_key(name), answered())))
        if isinstance(answer, ApiError):
            raise again(answer)
        return answer

    async def _in_turn(self, key: str, work: Coroutine[Any, Any, _T]) -> _T:
        async with self._locks.setdefault(key, asyncio.Lock()):
            return await work

    async def settled(self) -> None:
        """Return when the replicas of this broker match the catalog as it is now."""
        await self._reconciler.settled()

    async def close(self) -> None:
        """Let changes that are in progress finish."""
        await self._changes.ended()


def _led(partitions: tuple[PartitionAssignment, ...], catalog: Catalog) -> tuple[PartitionAssignment, ...]:
    """New partitions when they are stored in this catalog. Raises ApiError."""
    return led_by_live(partitions, live_brokers(catalog), stopping_brokers(catalog))


def _existing(catalog: Catalog, name: str) -> Topic:
    topic = catalog.topic(name)
    if topic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    return topic
