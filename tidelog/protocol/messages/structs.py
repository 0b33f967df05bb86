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
    topic_partitions: list[TopicPartitions]


class DescribedAssignment(Struct):
    topic_partitions: list[NamedTopicPartitions]


class PartitionError(Struct):
    partition_index: Int32
    error_code: Int16


class TopicErrors(Struct):
    name: str
    partitions: list[PartitionError]


class CurrentLeader(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: LeaderEpoch = field(default=-1)


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = field(default=None)


class DeliveryStateBatch(Struct):
    first_offset: Offset
    last_offset: Offset
    delivery_state: Int8
    delivery_count: Int16  # How often the records were delivered, this time included.
