"""The values that `Admin` takes and returns.

Owns: the types for topics, configurations, clusters, producers and groups. Invariants: immutable; a number
that the broker did not give is -1.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from tidelog.protocol.types import TopicPartition
from tidelog.wire.metadata import Node, PartitionInfo


class NewTopic(NamedTuple):
    """A topic to create. -1 means the broker's default. `topic_configs` are by Kafka's names."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    topic_configs: Mapping[str, str] | None = None


class TopicDescription(NamedTuple):
    """A topic of the cluster. `topic_id` is a uuid.UUID, all zero if the brokers have no topic ids."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


class ConfigResourceType(IntEnum):
    """The type of resource that a configuration belongs to."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A resource with a configuration. The name of a broker is its node id in digits."""

    resource_type: ConfigResourceType
    name: str


class ConfigEntry(NamedTuple):
    """One setting; `value` None hides a secret.

    `source` is Kafka's number: set on the topic (1), at run time on the broker (2) or on all brokers (3),
    at the broker's start (4), or the default (5).
    """

    name: str
    value: str | None
    read_only: bool
    is_sensitive: bool
    source: int
    documentation: str | None


class ClusterDescription(NamedTuple):
    """The cluster; `controller_id` is a node id, -1 for none."""

    cluster_id: str
    controller_id: int
    brokers: tuple[Node, ...]


class ProducerDescription(NamedTuple):
    """A partition's state of one producer. `last_timestamp` is in milliseconds; -1 means none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class Reassignment(NamedTuple):
    """A partition that gets other replicas. Node ids; `replicas` are those of now and those that come, with
    `adding` and `removing` among them."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class GroupListing(NamedTuple):
    """One group of the list. `state` is Kafka's name of the state. `type` is that of the protocol by which
    members join: "classic", "consumer" or "share". Both are "" if the broker does not give them."""

    group_id: str
    state: str
    protocol_type: str
    type: str = ""


class GroupMember(NamedTuple):
    """`instance_id` is that of a static member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class GroupDescription(NamedTuple):
    """A group. `protocol` is the name of its assignor, "" while a classic group has no generation."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    type: str = "classic"


class CommittedOffset(NamedTuple):
    """A group's committed offset of a partition: the offset of the next record to read."""

    offset: int
    leader_epoch: int
    metadata: str


class ShareOffset(NamedTuple):
    """Where a share group is in a partition. All records before `start_offset` are done; `lag` is the number
    of records that are not done yet, -1 if the broker does not give it."""

    start_offset: int
    leader_epoch: int
    lag: int


class TransactionListing(NamedTuple):
    """One transactional id of the list. `state` is Kafka's name of the state."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id and its transaction. `timeout_ms` None: its producer may prepare transactions, which
    no time aborts. `start_ms` None: it never had a transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int | None
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


class ClaimedTransaction(NamedTuple):
    """A transactional id that was taken over. `claim` is the producer id and epoch that may end its
    transaction, `transaction` those of the transaction itself, None if the id has none."""

    transactional_id: str
    claim: tuple[int, int]
    transaction: tuple[int, int] | None
