"""Structs that several messages have in common.

Declarations only. Source: the JSON definitions of the messages that name them.
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct, field
from tidelog.protocol.types import LeaderEpoch, Offset


class TopicPartitions(Struct):
    topic_id: UUID
    partitions: list[Int32]


class NamedTopicPartitions(Struct):
    topic_id: UUID
    topic_name: str
    partitions: list[Int32]


class PartitionsByName(Struct):
    topic: str
    partitions: list[Int32]


class HeartbeatAssignment(Struct):
    topic_partitions: list[TopicPartitions]  # All that is assigned to the member, not only what changed.


class DescribedAssignment(Struct):
    topic_partitions: list[NamedTopicPartitions]


class PartitionError(Struct):
    partition_index: Int32
    error_code: Int16


class TopicErrors(Struct):
    name: str
    partitions: list[PartitionError]


class CurrentLeader(Struct):
    leader_id: Int32 = field(default=-1)  # -1: unknown.
    leader_epoch: LeaderEpoch = field(default=-1)  # -1: unknown.


class NodeEndpoint(Struct):
    node_id: Int32
    host: str  # Of the listener by which the request came.
    port: Int32
    rack: str | None = field(default=None)  # Null: the broker has none.


class DeliveryStateBatch(Struct):
    first_offset: Offset
    last_offset: Offset  # Inclusive.
    delivery_state: Int8  # 0: available, 2: acknowledged, 3: archiving (KIP-1191), 4: archived.
    delivery_count: Int16  # How often the records were delivered, this time included.
