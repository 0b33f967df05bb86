"""The cluster's image: brokers, topics, leaders, settings, users, ACLs, quotas, producer id blocks.

Owns which topics and partitions exist, where, and since which epoch. A change is a delta: plan one (a pure
check that raises ApiError or returns the delta), make it durable in the store, then `apply` it here.

Invariants:
- a delta is applied only after the store holds it, so the image never shows what a crash would undo;
- a leader epoch never goes back, and rises with each change of the leader;
- a topic's id never changes and is never used again; its name may be, by a later topic with another id;
- a deleted topic's id is remembered until no broker has a folder of it. A folder of any other id that is in
  no topic means that the catalog is not the one under which the folder was made;
- partitions are numbered from 0 without gaps and never become fewer.

Pure: no I/O, clock, asyncio or logging. Source: Kafka's ReplicationControlManager for the checks, their codes
and their words; KIP-516 for ids; KIP-631 for what a change of a partition and a broker's registration say;
KIP-966 for eligible leaders, KIP-858 for directory ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from tidelog.protocol.acls import Acl
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.quotas import Quotas
from tidelog.protocol.scram import ScramCredential, ScramMechanism

_K = TypeVar("_K")
_F = TypeVar("_F")
_V = TypeVar("_V")
MAX_TOPIC_NAME_LENGTH = 249
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
_COMPACTED: Mapping[str, str] = {"cleanup.policy": "compact", "compression.type": "producer"}
"""A record stays until a later one with its key takes its place."""
INTERNAL_TOPIC_CONFIGS: Mapping[str, Mapping[str, str]] = {
    OFFSETS_TOPIC: _COMPACTED,
    TRANSACTIONS_TOPIC: _COMPACTED,
    # Its coordinators delete what later snapshots replace.
    SHARE_STATE_TOPIC: {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "retention.ms": "-1",
        "retention.bytes": "-1",
    },
}
"""What internal topics are made with."""
INTERNAL_TOPICS = frozenset(INTERNAL_TOPIC_CONFIGS)


ALL_BROKERS = ""
"""Kafka's name of the settings of every broker without its own."""


NOBODY = ""
"""An entry of `Catalog.users` that is no user. No password fits its credential. Its keys are a secret of the
cluster. From them the answers to unknown users are computed, so that these look like those to known ones."""


class Listener(NamedTuple):
    """An address by which clients reach a broker: what it advertises for its listener `name`.

    An empty `host` stands for the address to which the client connected.
    """

    name: str
    host: str
    port: int


NO_LEADER: Final = -1
"""The `leader_id` of a partition without one."""
NO_ID: Final = UUID(int=0)
"""Kafka's id of nothing."""


class BrokerRegistration(NamedTuple):
    """A broker of the cluster, and how clients and other brokers reach it."""

    node_id: int
    listeners: tuple[Listener, ...]
    incarnation: UUID = NO_ID
    """Of this start of the broker; NO_ID where no other broker uses the store."""
    directory_id: UUID = NO_ID
    """Of its data folder. Another one means that the disk was replaced."""
    rack: str | None = None
    is_fenced: bool = False
    """Whether it leads nothing and gets no new partition, because its session ended."""
    offline: tuple[tuple[UUID, int], ...] = ()
    """Topic id and partition of replicas whose logs failed since this start: they may not lead."""
    is_stopping: bool = False
    """Whether it was asked to stop (KIP-841, in controlled shutdown). It stays set after the stop."""
    others: str = ""
    """The fields that this release does not know, as JSON: a newer broker registered with them."""


class PartitionAssignment(NamedTuple):
    """The brokers that hold a partition. `leader_id` -1 means that it has no leader now."""

    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    """Rises with each change, also of the in-sync set alone."""
    elr: tuple[int, ...] = ()
    """Replicas outside the in-sync set that have every acknowledged record, so they may lead."""
    adding: tuple[int, ...] = ()
    """Those of `replicas` that a reassignment adds."""
    removing: tuple[int, ...] = ()
    """Those of `replicas` that a reassignment will remove."""

    @property
    def wanted_replicas(self) -> tuple[int, ...]:
        """Its replicas once its reassignment, if there is one, is completed."""
        return tuple(each for each in self.replicas if each not in self.removing)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; `configs` holds only what was set on it, by Kafka's names, as text."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionAssignment, ...]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def has_partition(self, index: int) -> bool:
        return 0 <= index < len(self.partitions)


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker is new, was started again, advertises other addresses than before, or was fenced or not."""

    broker: BrokerRegistration


@dataclass(frozen=True, slots=True)
class BrokerUnregistered:
    """A broker does not belong to the cluster any more, and will not come back with its folders."""

    node_id: int


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic: Topic


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """`held_by`: the brokers that may have a folder of it, see `Catalog.holders`.

    `gone`: topics deleted earlier of which the broker `gone_from` has no folder left, as in FoldersRemoved.
    """

    topic_id: UUID
    held_by: tuple[int, ...] = ()
    gone: tuple[UUID, ...] = ()
    gone_from: int = -1


@dataclass(frozen=True, slots=True)
class FoldersRemoved:
    """A broker has no folder left of topics that were deleted."""

    node_id: int
    topic_ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    topic_id: UUID
    partitions: tuple[PartitionAssignment, ...]


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """Partitions, by their numbers, got other leaders, leader epochs, replicas or in-sync replicas."""

    topic_id: UUID
    partitions: Mapping[int, PartitionAssignment]


@dataclass(frozen=True, slots=True)
class TopicConfigsChanged:
    topic_id: UUID
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BrokerConfigsChanged:
    """The settings that were changed at run time, of `broker`: a broker, all or another resource, see
    `Catalog.broker_configs`."""

    broker: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AclsChanged:
    """Access control entries that are new, and those that are gone."""

    added: tuple[Acl, ...] = ()
    removed: tuple[Acl, ...] = ()


@dataclass(frozen=True, slots=True)
class UserChanged:
    """A user's credentials are these now, and no others. A user without credentials does not exist."""

    user: str
    credentials: Mapping[ScramMechanism, ScramCredential]


@dataclass(frozen=True, slots=True)
class ClientQuotasChanged:
    """The quotas that these entities have from now on; an entity without quotas is not remembered."""

    quotas: Quotas


@dataclass(frozen=True, slots=True)
class ProducerIdsReserved:
    next_producer_id: int


Delta = (
    BrokerRegistered
    | BrokerUnregistered
    | TopicCreated
    | TopicDeleted
    | FoldersRemoved
    | PartitionsAdded
    | PartitionsChanged
    | TopicConfigsChanged
    | BrokerConfigsChanged
    | AclsChanged
    | UserChanged
    | ClientQuotasChanged
    | ProducerIdsReserved
)


class Change(NamedTuple):
    """A delta that was applied, and the topic that it changes, before and after it."""

    delta: Delta
    before: Topic | None = None
    after: Topic | None = None


class NothingToChange(Exception):
    """The newest image needs no such change any more."""


def check_topic_name(name: str) -> None:
    """Raise ApiError(INVALID_TOPIC_EXCEPTION) unless Kafka would take the name."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = "'.' or '..' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"the length of {name!r} is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    elif _LEGAL_NAME.fullmatch(name) is None:
        reason = f"{name!r} contains characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def collision_key(name: str) -> str:
    """The same for two names of which only one topic may exist, because metrics show them alike."""
    return name.replace(".", "_")


class Catalog:
    """The image itself. `revision` counts the deltas applied since the store was made."""

    def __init__(
        self,
        cluster_id: str,
        topics: Iterable[Topic] = (),
        next_producer_id: int = 0,
        revision: int = 0,
        deleted: Mapping[UUID, Iterable[int]] | None = None,
        brokers: Iterable[BrokerRegistration] = (),
        broker_configs: Mapping[str, Mapping[str, str]] | None = None,
        acls: Iterable[Acl] = (),
        users: Mapping[str, Mapping[ScramMechanism, ScramCredential]] | None = None,
        client_quotas: Quotas | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.next_producer_id = next_producer_id
        self.revision = revision
        self.deleted = {topic_id: frozenset(held_by) for topic_id, held_by in (deleted or {}).items()}
        """Ids of deleted topics, and the brokers that may have a folder left of each: at least one."""
        self.brokers = {broker.node_id: broker for broker in brokers}
        self.broker_configs = dict(broker_configs or {})
        """Settings changed at run time: of a broker by its id as text, of all brokers by ALL_BROKERS, of
        another resource by its `configuration.resource_settings.ResourceKind`. Without an entry nothing was
        changed."""
        self.acls = dict.fromkeys(acls)
        """All access control entries, oldest first."""
        self.users = dict(users or {})
        """What is stored of each user's password, by mechanism; at least one."""
        self.client_quotas = dict(client_quotas or {})
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._by_collision_key: dict[str, str] = {}
        for topic in topics:
            self._put(topic)

    def copy(self) -> Catalog:
        """An image on which later changes may be planned."""
        image = Catalog(
            self.cluster_id,
            (),
            self.next_producer_id,
            self.revision,
            self.deleted,
            self.brokers.values(),
            self.broker_configs,
            self.acls,
            self.users,
            self.client_quotas,
        )
        image._by_name.update(self._by_name)
        image._by_id.update(self._by_id)
        image._by_collision_key.update(self._by_collision_key)
        return image

    def __len__(self) -> int:
        return len(self._by_name)

    def topics(self) -> Iterator[Topic]:
        """All topics, oldest first."""
        return iter(self._by_name.values())

    def topic(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def assigned(self, topic: str, index: int) -> PartitionAssignment | None:
        """None for a partition that does not exist."""
        known = self._by_name.get(topic)
        return known.partitions[index] if known is not None and known.has_partition(index) else None

    def name_of(self, topic: str | UUID) -> str:
        """The name of a topic that a request names by its name or its id; empty for an unknown id."""
        if isinstance(topic, str):
            return topic
        found = self._by_id.get(topic)
        return "" if found is None else found.name

    def apply(self, delta: Delta) -> Change:
        """Take over a durable delta. Raises ValueError for one that does not fit the image."""
        change = self._applied(delta)
        self.revision += 1
        return change

    def _applied(self, delta: Delta) -> Change:
        before: Topic | None = None
        after: Topic | None = None
        match delta:
            case BrokerRegistered(broker):
                self.brokers[broker.node_id] = broker
            case BrokerUnregistered(node_id):
                self.brokers.pop(node_id, None)
                self._forget(node_id, list(self.deleted))
            case FoldersRemoved(node_id, topic_ids):
                self._forget(node_id, topic_ids)
            case ProducerIdsReserved(next_producer_id):
                if next_producer_id < self.next_producer_id:
                    raise ValueError(
                        f"producer ids go back from {self.next_producer_id} to {next_producer_id}"
                    )
                self.next_producer_id = next_producer_id
            case BrokerConfigsChanged(broker_name, configs):
                _replace(self.broker_configs, broker_name, configs)
            case AclsChanged(new_acls, gone_acls):
                self._change_acls(new_acls, gone_acls)
            case UserChanged(user, credentials):
                _replace(self.users, user, credentials)
            case ClientQuotasChanged(quotas):
                for entity, values in quotas.items():
                    _replace(self.client_quotas, entity, values)
            case TopicCreated(topic):
                if topic.name in self._by_name or topic.topic_id in self._by_id:
                    raise ValueError(f"topic {topic.name} ({topic.topic_id}) is in the catalog already")
                after = topic
            case TopicDeleted(topic_id, held_by, gone, gone_from):
                before = self._existing(topic_id)
                del self._by_name[before.name], self._by_id[topic_id]
                del self._by_collision_key[collision_key(before.name)]
                if held_by:
                    self.deleted[topic_id] = frozenset(held_by)
                self._forget(gone_from, gone)
            case PartitionsAdded(topic_id, added):
                before = self._existing(topic_id)
                after = replace(before, partitions=before.partitions + added)
            case PartitionsChanged(topic_id, changed):
                before = self._existing(topic_id)
                after = _with_partitions(before, changed)
            case TopicConfigsChanged(topic_id, configs):
                before = self._existing(topic_id)
                after = replace(before, configs=dict(configs))
        if after is not None:
            self._put(after)
        return Change(delta, before, after)

    def _change_acls(self, added: Sequence[Acl], removed: Sequence[Acl]) -> None:
        unknown = [acl for acl in removed if acl not in self.acls]
        present = [acl for acl in added if acl in self.acls]
        if unknown or present or len({*added, *removed}) != len(added) + len(removed):
            raise ValueError(f"ACLs to remove that are unknown: {unknown}, to add that are known: {present}")
        for acl in removed:
            del self.acls[acl]
        self.acls.update(dict.fromkeys(added))

    def _forget(self, node_id: int, topic_ids: Iterable[UUID]) -> None:
        for topic_id in topic_ids:
            left = self.deleted.pop(topic_id, frozenset()) - {node_id}
            if left:
                self.deleted[topic_id] = left

    def holders(self, topic: Topic) -> tuple[int, ...]:
        """The brokers that may have a folder of a topic.

        Those of its replicas, and every other one: a partition may have been moved away from one that was
        down.
        """
        held = {broker for assigned in set(topic.partitions) for broker in assigned.replicas}
        return tuple(sorted(held | self.brokers.keys()))

    def racks(self) -> dict[int, str]:
        """Those of the brokers that named one."""
        return {node_id: broker.rack for node_id, broker in self.brokers.items() if broker.rack}

    def _existing(self, topic_id: UUID) -> Topic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise ValueError(f"no topic has the id {topic_id}")
        return topic

    def _put(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._by_collision_key[collision_key(topic.name)] = topic.name

    def plan_topic(
        self,
        name: str,
        topic_id: UUID,
        partitions: tuple[PartitionAssignment, ...],
        configs: Mapping[str, str],
    ) -> TopicCreated:
        """The delta that creates a topic.

        Raises ApiError: INVALID_TOPIC_EXCEPTION for a bad or colliding name, TOPIC_ALREADY_EXISTS.
        """
        check_topic_name(name)
        if name in self._by_name:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = self._by_collision_key.get(collision_key(name))
        if other is not None:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
            )
        return TopicCreated(Topic(name, topic_id, partitions, dict(configs)))


def _replace(entries: dict[_K, Mapping[_F, _V]], key: _K, values: Mapping[_F, _V]) -> None:
    """Put an entry behind the others, or only remove it where nothing is left of it."""
    entries.pop(key, None)
    if values:
        entries[key] = dict(values)


def _with_partitions(topic: Topic, changed: Mapping[int, PartitionAssignment]) -> Topic:
    """A topic of which some partitions changed. Raises ValueError if they cannot have."""
    partitions = list(topic.partitions)
    for index, now in changed.items():
        if not 0 <= index < len(partitions):
            raise ValueError(f"topic {topic.name} has no partition {index}")
        before, partitions[index] = partitions[index], now
        least = before.leader_epoch + (now.leader_id != before.leader_id)
        if now.leader_epoch < least:
            raise ValueError(
                f"{topic.name}-{index} goes from leader {before.leader_id} in epoch {before.leader_epoch} to "
                f"leader {now.leader_id}: expected epoch {least} or later, got {now.leader_epoch}"
            )
        if now.partition_epoch < before.partition_epoch:
            raise ValueError(
                f"{topic.name}-{index}: expected partition epoch {before.partition_epoch} or later, got "
                f"{now.partition_epoch}"
            )
    return replace(topic, partitions=tuple(partitions))


def least_in_sync(topic: Topic, default: int) -> int:
    """min.insync.replicas of a topic; `default` is the brokers'."""
    return int(topic.configs.get(MIN_INSYNC_REPLICAS, default))
