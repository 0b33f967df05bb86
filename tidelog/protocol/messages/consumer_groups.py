"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, and what consumers of a classic group write into bytes of
JoinGroup and SyncGroup, which brokers pass on.

Declarations only. Subscription and assignment begin with an int16 version; user data has none. Source: the
JSON definitions of the same names (KIP-848, KIP-1099; KIP-429, KIP-792, KIP-881), the user data of Kafka's
StickyAssignor (KIP-54, KIP-341).
"""

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct, field
from tidelog.protocol.messages.structs import (
    DescribedAssignment,
    HeartbeatAssignment,
    PartitionsByName,
    TopicPartitions,
)


class ConsumerGroupHeartbeatRequest(Struct, flexible="0+"):
    group_id: str
    member_id: str
    member_epoch: Int32  # 0: join, -1: leave, -2: leave for a while.
    instance_id: str | None = field(default=None)  # Of a static member.
    rack_id: str | None = field(default=None)  # Where the reader is, so that a near replica can serve it.
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[str] | None = field(default=None)
    subscribed_topic_regex: str | None = field("1+", default=None)
    server_assignor: str | None = field(default=None)  # Who assigns partitions in the broker.
    # What the member owns; null: as before.
    topic_partitions: list[TopicPartitions] | None = field(default=None)


class ConsumerGroupHeartbeatResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    member_id: str | None = field(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: HeartbeatAssignment | None = field(default=None)  # Null: as before.


class ConsumerGroupDescribeRequest(Struct, flexible="0+"):
    group_ids: list[str]
    include_authorized_operations: bool  # Whether to say what the user may do.


class ConsumerGroupDescribeResponseMember(Struct):
    member_id: str
    instance_id: str | None = field(default=None)  # Of a static member.
    rack_id: str | None = field(default=None)  # Where the reader is, so that a near replica can serve it.
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None = field(default=None)  # Topics by pattern; the broker evaluates it.
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: Int8 = field("1+", default=-1, ignorable=True)  # -1: unknown, 0: classic, 1: consumer.


class ConsumerGroupDescribeResponseGroup(Struct):
    error_code: Int16
    error_message: str | None = field(default=None)
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: str
    members: list[ConsumerGroupDescribeResponseMember]
    authorized_operations: Int32 = field(default=-2147483648)


class ConsumerGroupDescribeResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    groups: list[ConsumerGroupDescribeResponseGroup]


class ConsumerProtocolSubscription(Struct):
    topics: list[str]
    user_data: bytes | None = field(default=None)
    owned_partitions: list[PartitionsByName] = field("1+", ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: str | None = field("3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Struct):
    assigned_partitions: list[PartitionsByName]
    user_data: bytes | None = field(default=None)


class StickyAssignorUserData(Struct):
    """Version 0 ends before the generation."""

    previous_assignment: list[PartitionsByName]
    generation: Int32 = field("1+", default=-1, ignorable=True)
