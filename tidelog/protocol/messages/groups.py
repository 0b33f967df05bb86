"""FindCoordinator, and the APIs of groups: classic members, administration, committed offsets.

Declarations only. Source: the JSON definitions of the same names (KIP-62, KIP-98, KIP-320, KIP-345, KIP-394,
KIP-430, KIP-447, KIP-496, KIP-518, KIP-559, KIP-699, KIP-709, KIP-800, KIP-848, KIP-1043). Unlike there,
every field of FindCoordinator's response is ignorable. It has two layouts: one coordinator up to version 3, a
list of them from version 4. OffsetFetch has two as well: one group up to version 7, a list of them from
version 8.
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Int64, Struct, field
from tidelog.protocol.messages.structs import PartitionError, TopicErrors
from tidelog.protocol.types import LeaderEpoch, Offset


class FindCoordinatorRequest(Struct, flexible="3+"):
    key: str = field("0-3")  # A group id, a transactional id, or group:topic id:partition.
    key_type: Int8 = field("1+", default=0)  # 0: group, 1: transactional id, 2: share partition.
    coordinator_keys: list[str] = field("4+")  # Several of one type (KIP-699).


class FindCoordinatorResponseCoordinator(Struct):
    key: str = field("4+")
    node_id: Int32 = field("4+")  # -1: an error.
    host: str = field("4+")  # Of the listener of the request.
    port: Int32 = field("4+")
    error_code: Int16 = field("4+")
    error_message: str | None = field("4+", ignorable=True)


class FindCoordinatorResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("0-3", ignorable=True)
    error_message: str | None = field("1-3", ignorable=True)  # NONE without an error, as in Kafka.
    node_id: Int32 = field("0-3", ignorable=True)  # -1: an error.
    host: str = field("0-3", ignorable=True)
    port: Int32 = field("0-3", ignorable=True)
    coordinators: list[FindCoordinatorResponseCoordinator] = field("4+", ignorable=True)


class JoinGroupRequestProtocol(Struct):
    name: str  # Of an assignor.
    metadata: bytes  # In groups of consumers a ConsumerProtocolSubscription.


class JoinGroupRequest(Struct, flexible="6+"):
    group_id: str
    session_timeout_ms: Int32  # Without a heartbeat for so long, the member is removed.
    # How long the group waits for the member to join again.
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: str  # Empty in the first request of a member.
    group_instance_id: str | None = field("5+", default=None)  # Of a static member (KIP-345).
    protocol_type: str  # What the group is for: consumer, connect.
    protocols: list[JoinGroupRequestProtocol]  # The assignors that the member knows, the best first.
    reason: str | None = field("8+", default=None, ignorable=True)  # Why it joins (KIP-800); ignored here.


class JoinGroupResponseMember(Struct):
    member_id: str
    group_instance_id: str | None = field("5+", default=None, ignorable=True)  # Of a static member, or null.
    metadata: bytes  # Of the protocol that was chosen.


class JoinGroupResponse(Struct, flexible="6+"):
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    error_code: Int16
    generation_id: Int32 = field(default=-1)  # Counts the rebalances; -1: an error.
    protocol_type: str | None = field("7+", default=None, ignorable=True)  # Of the group; null: an error.
    protocol_name: str | None = field(nullable="7+")  # The assignor that all members know.
    leader: str  # The member that assigns.
    skip_assignment: bool = field("9+", default=False)  # Whether the leader shall keep the assignment.
    member_id: str  # What the member has to use from now on.
    members: list[JoinGroupResponseMember]  # Of all members, for the leader only.


class SyncGroupRequestAssignment(Struct):
    member_id: str
    assignment: bytes  # In groups of consumers a ConsumerProtocolAssignment.


class SyncGroupRequest(Struct, flexible="4+"):
    group_id: str
    generation_id: Int32  # From the answer to JoinGroup.
    member_id: str
    group_instance_id: str | None = field("3+", default=None)  # Of a static member; null: none.
    protocol_type: str | None = field("5+", default=None, ignorable=True)  # Of the group; null: no check.
    protocol_name: str | None = field("5+", default=None, ignorable=True)  # Of the group; null: no check.
    assignments: list[SyncGroupRequestAssignment]  # From the leader only.


class SyncGroupResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16
    protocol_type: str | None = field("5+", default=None, ignorable=True)  # Of the group; null: an error.
    protocol_name: str | None = field("5+", default=None, ignorable=True)  # Of the group; null: an error.
    assignment: bytes  # What the leader wrote for this member.


class HeartbeatRequest(Struct, flexible="4+"):
    group_id: str
    generation_id: Int32  # From the answer to JoinGroup.
    member_id: str
    group_instance_id: str | None = field("3+", default=None)  # Of a static member; null: none.


class HeartbeatResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16


class LeaveGroupRequestMember(Struct):
    member_id: str = field("3+")  # Empty: the instance id says which member leaves.
    group_instance_id: str | None = field("3+", default=None)  # Of a static member; null: none.
    reason: str | None = field("5+", default=None, ignorable=True)  # Why it leaves (KIP-800); ignored here.


class LeaveGroupRequest(Struct, flexible="4+"):
    group_id: str
    member_id: str = field("0-2")
    members: list[LeaveGroupRequestMember] = field("3+")


class LeaveGroupResponseMember(Struct):
    member_id: str = field("3+")
    group_instance_id: str | None = field("3+")  # Of a static member, which keeps its place over a restart.
    error_code: Int16 = field("3+")


class LeaveGroupResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16  # Up to version 2 that of the member.
    members: list[LeaveGroupResponseMember] = field("3+")


class DescribeGroupsRequest(Struct, flexible="5+"):
    groups: list[str]
    include_authorized_operations: bool = field("3+")  # Whether to say what the user may do.


class DescribeGroupsResponseMember(Struct):
    member_id: str
    group_instance_id: str | None = field("4+", default=None, ignorable=True)  # Of a static member, or null.
    client_id: str
    client_host: str  # The address, behind a slash.
    member_metadata: bytes  # What the member sent for the protocol in use.
    member_assignment: bytes  # As the leader wrote it.


class DescribeGroupsResponseGroup(Struct):
    error_code: Int16  # From version 6 on GROUP_ID_NOT_FOUND for an unknown group (KIP-1043).
    error_message: str | None = field("6+", default=None)
    group_id: str
    group_state: str  # Empty, PreparingRebalance, CompletingRebalance, Stable or Dead.
    protocol_type: str  # What the group is for: consumer, connect.
    protocol_data: str  # The assignor in use; empty: none.
    members: list[DescribeGroupsResponseMember]
    authorized_operations: Int32 = field("3+", default=-2147483648)


class DescribeGroupsResponse(Struct, flexible="5+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    groups: list[DescribeGroupsResponseGroup]


class ListGroupsRequest(Struct, flexible="3+"):
    states_filter: list[str] = field("4+")  # Names in any case (KIP-518); empty: all.
    types_filter: list[str] = field("5+")  # classic, consumer or share; empty: all.


class ListGroupsResponseGroup(Struct):
    group_id: str
    protocol_type: str  # What the group is for: consumer, connect, share.
    group_state: str = field("4+", ignorable=True)  # As the description of its type names it.
    group_type: str = field("5+", ignorable=True)  # classic, consumer or share (KIP-848).


class ListGroupsResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16
    groups: list[ListGroupsResponseGroup]


class DeleteGroupsRequest(Struct, flexible="2+"):
    groups_names: list[str]


class DeleteGroupsResponseResult(Struct):
    group_id: str
    error_code: Int16


class DeleteGroupsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    results: list[DeleteGroupsResponseResult]


class OffsetFetchRequestTopic(Struct):
    name: str = field("0-7")
    partition_indexes: list[Int32] = field("0-7")


class OffsetFetchRequestGroupTopic(Struct):
    name: str = field("8-9", ignorable=True)
    topic_id: UUID = field("10+", ignorable=True)
    partition_indexes: list[Int32] = field("8+")


class OffsetFetchRequestGroup(Struct):
    group_id: str = field("8+")
    member_id: str | None = field("9+", default=None, ignorable=True)  # Null: the reader is no member.
    member_epoch: Int32 = field("9+", default=-1, ignorable=True)  # -1: the reader is no member.
    topics: list[OffsetFetchRequestGroupTopic] | None = field("8+")  # Null: all that have offsets.


class OffsetFetchRequest(Struct, flexible="6+"):
    group_id: str = field("0-7")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7")  # Null: all with offsets.
    groups: list[OffsetFetchRequestGroup] = field("8+")
    require_stable: bool = field("7+", default=False)  # Refuse offsets that an open transaction may change.


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = field("0-7")
    committed_offset: Offset = field("0-7")  # Of the next record to read; -1: none is committed.
    committed_leader_epoch: LeaderEpoch = field("5-7", default=-1, ignorable=True)  # -1: unknown.
    metadata: str | None = field("0-7")  # Any text that the client kept with the offset.
    error_code: Int16 = field("0-7")


class OffsetFetchResponseTopic(Struct):
    name: str = field("0-7")
    partitions: list[OffsetFetchResponsePartition] = field("0-7")


class OffsetFetchResponseTopicPartition(Struct):
    partition_index: Int32 = field("8+")
    committed_offset: Offset = field("8+")  # Of the next record to read; -1: none is committed.
    committed_leader_epoch: LeaderEpoch = field("8+", default=-1, ignorable=True)  # -1: unknown.
    metadata: str | None = field("8+")  # Any text that the client kept with the offset.
    error_code: Int16 = field("8+")


class OffsetFetchResponseGroupTopic(Struct):
    name: str = field("8-9", ignorable=True)
    topic_id: UUID = field("10+", ignorable=True)
    partitions: list[OffsetFetchResponseTopicPartition] = field("8+")


class OffsetFetchResponseGroup(Struct):
    group_id: str = field("8+")
    topics: list[OffsetFetchResponseGroupTopic] = field("8+")
    error_code: Int16 = field("8+", default=0)


class OffsetFetchResponse(Struct, flexible="6+"):
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7")
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+")


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Offset  # Of the next record to read.
    committed_leader_epoch: LeaderEpoch = field("6+", default=-1, ignorable=True)  # -1: unknown.
    committed_metadata: str | None  # Any text that the client keeps with the offset.


class OffsetCommitRequestTopic(Struct):
    name: str = field("0-9", ignorable=True)
    topic_id: UUID = field("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Struct, flexible="8+"):
    group_id: str
    generation_id_or_member_epoch: Int32 = field("1+", default=-1, ignorable=True)  # -1: not a member.
    member_id: str = field("1+", ignorable=True)  # Empty: the client is no member.
    group_instance_id: str | None = field("7+", default=None)  # Of a static member; null: none.
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)  # -1: as the broker is set.
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponseTopic(Struct):
    name: str = field("0-9", ignorable=True)
    topic_id: UUID = field("10+", ignorable=True)
    partitions: list[PartitionError]


class OffsetCommitResponse(Struct, flexible="8+"):
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic]


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32


class OffsetDeleteRequestTopic(Struct):
    name: str
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Struct, flexible="1+"):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteResponse(Struct, flexible="1+"):
    error_code: Int16
    throttle_time_ms: Int32 = field(ignorable=True)
    topics: list[TopicErrors]
