"""ShareGroupHeartbeat, ShareGroupDescribe, and the APIs of share groups' offsets.

Declarations only. Source: the JSON definitions of the same names (KIP-932, KIP-1226). Version 0 of the first
two was an early access that brokers do not serve.
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int16, Int32, Int64, Struct, field
from tidelog.protocol.messages.structs import DescribedAssignment, HeartbeatAssignment
from tidelog.protocol.types import LeaderEpoch, Offset


class ShareGroupHeartbeatRequest(Struct, flexible="0+"):
    group_id: str
    member_id: str  # A UUID that the member made, of at most 36 characters.
    member_epoch: Int32  # As last answered; 0: join, -1: leave.
    rack_id: str | None = field(default=None)  # Where the member is; null: none, or as before.
    subscribed_topic_names: list[str] | None = field(default=None)  # Null: as before.


class ShareGroupHeartbeatResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    member_id: str | None = field(default=None)  # As in the request.
    member_epoch: Int32  # What the next request has to name.
    heartbeat_interval_ms: Int32  # From one request of the member to the next.
    assignment: HeartbeatAssignment | None = field(default=None)  # Null: as before.


class ShareGroupDescribeRequest(Struct, flexible="0+"):
    group_ids: list[str]
    include_authorized_operations: bool  # Whether to say what the user may do.


class ShareGroupDescribeResponseMember(Struct):
    member_id: str
    rack_id: str | None = field(default=None)  # Where the member is; null: unknown.
    member_epoch: Int32  # The epoch of the group that the member has reached.
    client_id: str
    client_host: str  # The address, behind a slash.
    subscribed_topic_names: list[str]
    assignment: DescribedAssignment  # What the member reads now.


class ShareGroupDescribeResponseGroup(Struct):
    error_code: Int16
    error_message: str | None = field(default=None)
    group_id: str
    group_state: str  # Empty or Stable.
    group_epoch: Int32  # Rises with each change of members, subscriptions or their topics.
    assignment_epoch: Int32  # The group_epoch for which the targets were computed.
    assignor_name: str  # Always simple.
    members: list[ShareGroupDescribeResponseMember]
    authorized_operations: Int32 = field(default=-2147483648)


class ShareGroupDescribeResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    groups: list[ShareGroupDescribeResponseGroup]


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str
    partitions: list[Int32]


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None  # Null: all that have a state.


class DescribeShareGroupOffsetsRequest(Struct, flexible="0+"):
    groups: list[DescribeShareGroupOffsetsRequestGroup]


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32
    start_offset: Offset  # Before it all records are done; -1: nothing was read yet, or an error.
    leader_epoch: LeaderEpoch  # Of the leader that stored it last; 0: none.
    lag: Int64 = field("1+", default=-1, ignorable=True)  # Records to be delivered yet; -1: unknown.
    error_code: Int16
    error_message: str | None = field(default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str
    topic_id: UUID  # The zero uuid: the topic is unknown, or refused.
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16
    error_message: str | None = field(default=None)


class DescribeShareGroupOffsetsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    groups: list[DescribeShareGroupOffsetsResponseGroup]


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: Int32
    start_offset: Offset  # The first record to deliver; below 0 is refused.


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str
    partitions: list[AlterShareGroupOffsetsRequestPartition]


class AlterShareGroupOffsetsRequest(Struct, flexible="0+"):
    group_id: str  # Of a group without members.
    topics: list[AlterShareGroupOffsetsRequestTopic]


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = field(default=None)


class AlterShareGroupOffsetsResponseResponse(Struct):
    topic_name: str
    topic_id: UUID  # The zero uuid: the topic is unknown, or refused.
    partitions: list[AlterShareGroupOffsetsResponsePartition]


class AlterShareGroupOffsetsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    responses: list[AlterShareGroupOffsetsResponseResponse]


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str


class DeleteShareGroupOffsetsRequest(Struct, flexible="0+"):
    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic]


class DeleteShareGroupOffsetsResponseResponse(Struct):
    topic_name: str
    topic_id: UUID  # The zero uuid: the topic has no offsets, or is refused.
    error_code: Int16
    error_message: str | None = field(default=None)


class DeleteShareGroupOffsetsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    responses: list[DeleteShareGroupOffsetsResponseResponse]
