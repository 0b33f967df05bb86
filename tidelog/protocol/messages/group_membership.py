"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the APIs of members of a group of the classic protocol.

Declarations only. Source: the JSON definitions of the same names (KIP-62, KIP-345, KIP-394, KIP-559,
KIP-800).
"""

from tidelog.protocol.messages.declaration import Int16, Int32, Struct, field


class JoinGroupRequestProtocol(Struct):
    name: str
    metadata: bytes


class JoinGroupRequest(Struct, flexible="6+"):
    group_id: str
    session_timeout_ms: Int32  # Without a heartbeat for so long, the member is removed.
    # How long the group waits for the member to join again.
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: str  # Empty in the first request of a member.
    group_instance_id: str | None = field("5+", default=None)
    protocol_type: str  # What the group is for: consumer, connect.
    protocols: list[JoinGroupRequestProtocol]  # The assignors that the member knows, the best first.
    reason: str | None = field("8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str
    group_instance_id: str | None = field("5+", default=None, ignorable=True)
    metadata: bytes


class JoinGroupResponse(Struct, flexible="6+"):
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    error_code: Int16
    generation_id: Int32 = field(default=-1)
    protocol_type: str | None = field("7+", default=None, ignorable=True)
    protocol_name: str | None = field(nullable="7+")
    leader: str  # The member that assigns.
    skip_assignment: bool = field("9+", default=False)  # Whether the leader shall keep the assignment.
    member_id: str
    members: list[JoinGroupResponseMember]  # Of all members, for the leader only.


class SyncGroupRequestAssignment(Struct):
    member_id: str
    assignment: bytes


class SyncGroupRequest(Struct, flexible="4+"):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = field("3+", default=None)
    protocol_type: str | None = field("5+", default=None, ignorable=True)
    protocol_name: str | None = field("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]  # From the leader only.


class SyncGroupResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16
    protocol_type: str | None = field("5+", default=None, ignorable=True)
    protocol_name: str | None = field("5+", default=None, ignorable=True)
    assignment: bytes


class HeartbeatRequest(Struct, flexible="4+"):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = field("3+", default=None)


class HeartbeatResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16


class LeaveGroupRequestMember(Struct):
    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", default=None)
    reason: str | None = field("5+", default=None, ignorable=True)


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
    error_code: Int16
    members: list[LeaveGroupResponseMember] = field("3+")
