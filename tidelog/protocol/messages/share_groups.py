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
    member_id: str
    member_epoch: Int32
    rack_id: str | None = field(default=None)  # Where the reader is, so that a near replica can serve it.
    subscribed_topic_names: list[str] | None = field(default=None)


class ShareGroupHeartbeatResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    member_id: str | None = field(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: HeartbeatAssignment | None = field(default=None)


class ShareGroupDescribeRequest(Struct, flexible="0+"):
    group_ids: list[str]
    include_authorized_operations: bool  # Whether to say what the user may do.


class ShareGroupDescribeResponseMember(Struct):
    member_id: str
    rack_id: str | None = field(default=None)  # Where the reader is, so that a near replica can serve it.
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    assignment: DescribedAssignment


class ShareGroupDescribeResponseGroup(Struct):
    error_code: Int16
    error_message: str | None = field(default=None)
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: str
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
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


class DescribeShareGroupOffsetsRequest(Struct, flexible="0+"):
    groups: list[DescribeShareGroupOffsetsRequestGroup]


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32
    start_offset: Offset
    leader_epoch: LeaderEpoch
    lag: Int64 = field("1+", default=-1, ignorable=True)
    error_code: Int16
    error_message: str | None = field(default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str
    topic_id: UUID
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
    start_offset: Offset


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str
    partitions: list[AlterShareGroupOffsetsRequestPartition]


class AlterShareGroupOffsetsRequest(Struct, flexible="0+"):
    group_id: str
    topics: list[AlterShareGroupOffsetsRequestTopic]


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = field(default=None)


class AlterShareGroupOffsetsResponseResponse(Struct):
    topic_name: str
    topic_id: UUID
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
    topic_id: UUID
    error_code: Int16
    error_message: str | None = field(default=None)


class DeleteShareGroupOffsetsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    responses: list[DeleteShareGroupOffsetsResponseResponse]
