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
    member_id: str  # A UUID that the member made; in version 0 empty in the first request.
    member_epoch: Int32  # As last answered; 0: join, -1: leave, -2: leave for a while.
    instance_id: str | None = field(default=None)  # Of a static member; null: none, or as before.
    rack_id: str | None = field(default=None)  # Where the member is; null: none, or as before.
    rebalance_timeout_ms: Int32 = field(default=-1)  # How long it may take to revoke; -1: as before.
    subscribed_topic_names: list[str] | None = field(default=None)  # Null: as before.
    subscribed_topic_regex: str | None = field("1+", default=None)  # In RE2's syntax; null: as before.
    server_assignor: str | None = field(default=None)  # uniform or range, in the broker; null: as before.
    topic_partitions: list[TopicPartitions] | None = field(default=None)  # What it owns; null: as before.


class ConsumerGroupHeartbeatResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    member_id: str | None = field(default=None)  # In version 0 the broker makes it.
    member_epoch: Int32  # What the next request has to name.
    heartbeat_interval_ms: Int32  # From one request of the member to the next.
    assignment: HeartbeatAssignment | None = field(default=None)  # Null: as before.


class ConsumerGroupDescribeRequest(Struct, flexible="0+"):
    group_ids: list[str]
    include_authorized_operations: bool  # Whether to say what the user may do.


class ConsumerGroupDescribeResponseMember(Struct):
    member_id: str
    instance_id: str | None = field(default=None)  # Of a static member; null: none.
    rack_id: str | None = field(default=None)  # Where the member is; null: unknown.
    member_epoch: Int32  # The epoch of the group that the member has reached.
    client_id: str
    client_host: str  # The address, behind a slash.
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None = field(default=None)  # Topics by pattern; the broker evaluates it.
    assignment: DescribedAssignment  # What the member owns now.
    target_assignment: DescribedAssignment  # What it is to own once all members are reconciled.
    member_type: Int8 = field("1+", default=-1, ignorable=True)  # -1: unknown, 0: classic, 1: consumer.


class ConsumerGroupDescribeResponseGroup(Struct):
    error_code: Int16
    error_message: str | None = field(default=None)
    group_id: str
    group_state: str  # Empty, Assigning, Reconciling or Stable.
    group_epoch: Int32  # Rises with each change of members, subscriptions or their topics.
    assignment_epoch: Int32  # The group_epoch for which the targets were computed.
    assignor_name: str  # uniform or range.
    members: list[ConsumerGroupDescribeResponseMember]
    authorized_operations: Int32 = field(default=-2147483648)


class ConsumerGroupDescribeResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    groups: list[ConsumerGroupDescribeResponseGroup]


class ConsumerProtocolSubscription(Struct):
    topics: list[str]
    user_data: bytes | None = field(default=None)  # Of the member's assignor alone; null: none.
    owned_partitions: list[PartitionsByName] = field("1+", ignorable=True)  # What the member has now.
    generation_id: Int32 = field("2+", default=-1, ignorable=True)  # Of owned_partitions; -1: unknown.
    rack_id: str | None = field("3+", default=None, ignorable=True)  # Where the member is; null: unknown.


class ConsumerProtocolAssignment(Struct):
    assigned_partitions: list[PartitionsByName]
    user_data: bytes | None = field(default=None)  # Of the leader's assignor alone; null: none.


class StickyAssignorUserData(Struct):
    """Version 0 ends before the generation."""

    previous_assignment: list[PartitionsByName]  # What the member had before.
    generation: Int32 = field("1+", default=-1, ignorable=True)  # Of that assignment; -1: unknown.
