"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the APIs of members of a group of the classic protocol.

Declarations only. Source: the JSON definitions of the same names (KIP-62, KIP-345, KIP-394, KIP-559,
KIP-800).
"""

from tidelog.protocol.messages.declaration import Field, Message

JOIN_GROUP_REQUEST = Message(
    "JoinGroupRequest",
    flexible="6+",
    fields=(
        Field("group_id", "string", "0+"),
        Field("session_timeout_ms", "int32", "0+"),
        Field("rebalance_timeout_ms", "int32", "1+", default=-1, ignorable=True),
        Field("member_id", "string", "0+"),
        Field("group_instance_id", "string", "5+", nullable="5+", default=None),
        Field("protocol_type", "string", "0+"),
        Field(
            "protocols",
            "[]struct",
            "0+",
            fields=(
                Field("name", "string", "0+"),
                Field("metadata", "bytes", "0+"),
            ),
        ),
        Field("reason", "string", "8+", nullable="8+", default=None, ignorable=True),
    ),
)

JOIN_GROUP_RESPONSE = Message(
    "JoinGroupResponse",
    flexible="6+",
    fields=(
        Field("throttle_time_ms", "int32", "2+", ignorable=True),
        Field("error_code", "int16", "0+"),
        Field("generation_id", "int32", "0+", default=-1),
        Field("protocol_type", "string", "7+", nullable="7+", default=None, ignorable=True),
        Field("protocol_name", "string", "0+", nullable="7+"),
        Field("leader", "string", "0+"),
        Field("skip_assignment", "bool", "9+", default=False),
        Field("member_id", "string", "0+"),
        Field(
            "members",
            "[]struct",
            "0+",
            fields=(
                Field("member_id", "string", "0+"),
                Field("group_instance_id", "string", "5+", nullable="5+", default=None, ignorable=True),
                Field("metadata", "bytes", "0+"),
            ),
        ),
    ),
)

SYNC_GROUP_REQUEST = Message(
    "SyncGroupRequest",
    flexible="4+",
    fields=(
        Field("group_id", "string", "0+"),
        Field("generation_id", "int32", "0+"),
        Field("member_id", "string", "0+"),
        Field("group_instance_id", "string", "3+", nullable="3+", default=None),
        Field("protocol_type", "string", "5+", nullable="5+", default=None, ignorable=True),
        Field("protocol_name", "string", "5+", nullable="5+", default=None, ignorable=True),
        Field(
            "assignments",
            "[]struct",
            "0+",
            fields=(
                Field("member_id", "string", "0+"),
                Field("assignment", "bytes", "0+"),
            ),
        ),
    ),
)

SYNC_GROUP_RESPONSE = Message(
    "SyncGroupResponse",
    flexible="4+",
    fields=(
        Field("throttle_time_ms", "int32", "1+", ignorable=True),
        Field("error_code", "int16", "0+"),
        Field("protocol_type", "string", "5+", nullable="5+", default=None, ignorable=True),
        Field("protocol_name", "string", "5+", nullable="5+", default=None, ignorable=True),
        Field("assignment", "bytes", "0+"),
    ),
)

HEARTBEAT_REQUEST = Message(
    "HeartbeatRequest",
    flexible="4+",
    fields=(
        Field("group_id", "string", "0+"),
        Field("generation_id", "int32", "0+"),
        Field("member_id", "string", "0+"),
        Field("group_instance_id", "string", "3+", nullable="3+", default=None),
    ),
)

HEARTBEAT_RESPONSE = Message(
    "HeartbeatResponse",
    flexible="4+",
    fields=(
        Field("throttle_time_ms", "int32", "1+", ignorable=True),
        Field("error_code", "int16", "0+"),
    ),
)

LEAVE_GROUP_REQUEST = Message(
    "LeaveGroupRequest",
    flexible="4+",
    fields=(
        Field("group_id", "string", "0+"),
        Field("member_id", "string", "0-2"),
        Field(
            "members",
            "[]struct",
            "3+",
            fields=(
                Field("member_id", "string", "3+"),
                Field("group_instance_id", "string", "3+", nullable="3+", default=None),
                Field("reason", "string", "5+", nullable="5+", default=None, ignorable=True),
            ),
        ),
    ),
)

LEAVE_GROUP_RESPONSE = Message(
    "LeaveGroupResponse",
    flexible="4+",
    fields=(
        Field("throttle_time_ms", "int32", "1+", ignorable=True),
        Field("error_code", "int16", "0+"),
        Field(
            "members",
            "[]struct",
            "3+",
            fields=(
                Field("member_id", "string", "3+"),
                Field("group_instance_id", "string", "3+", nullable="3+"),
                Field("error_code", "int16", "3+"),
            ),
        ),
    ),
)
