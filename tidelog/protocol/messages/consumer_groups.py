"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the APIs of groups of the consumer protocol.

Declarations only. Source: the JSON definitions of the same names (KIP-848, KIP-1099).
"""

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct, field
from tidelog.protocol.messages.structs import DescribedAssignment, HeartbeatAssignment, TopicPartitions


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
