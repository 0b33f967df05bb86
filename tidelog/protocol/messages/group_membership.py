"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the APIs of members of a group of the classic protocol.

Declarations only. Source: the JSON definitions of the same names (KIP-62, KIP-345, KIP-394, KIP-559,
KIP-800).
"""

from tidelog.protocol.messages.declaration import Field, message, structs

JOIN_GROUP_REQUEST = message(
    "JoinGroupRequest",
    "6+",
    Field("group_id", "string"),
    Field("session_timeout_ms", "int32"),
    Field("rebalance_timeout_ms", "int32", "1+", default=-1, ignorable=True),
    Field("member_id", "string"),
    Field("group_instance_id", "string", "5+", nullable="5+", default=None),
    Field("protocol_type", "string"),
    structs("protocols", Field("name", "string"), Field("metadata", "bytes")),
    Field("reason", "string", "8+", nullable="8+", default=None, ignorable=True),
)

JOIN_GROUP_RESPONSE = message(
    "JoinGroupResponse",
    "6+",
    Field("throttle_time_ms", "int32", "2+", ignorable=True),
    Field("error_code", "int16"),
    Field("generation_id", "int32", default=-1),
    Field("protocol_type", "string", "7+", nullable="7+", default=None, ignorable=True),
    Field("protocol_name", "string", nullable="7+"),
    Field("leader", "string"),
    Field("skip_assignment", "bool", "9+", default=False),
    Field("member_id", "string"),
    structs(
        "members",
        Field("member_id", "string"),
        Field("group_instance_id", "string", "5+", nullable="5+", default=None, ignorable=True),
        Field("metadata", "bytes"),
    ),
)

SYNC_GROUP_REQUEST = message(
    "SyncGroupRequest",
    "4+",
    Field("group_id", "string"),
    Field("generation_id", "int32"),
    Field("member_id", "string"),
    Field("group_instance_id", "string", "3+", nullable="3+", default=None),
    Field("protocol_type", "string", "5+", nullable="5+", default=None, ignorable=True),
    Field("protocol_name", "string", "5+", nullable="5+", default=None, ignorable=True),
    structs("assignments", Field("member_id", "string"), Field("assignment", "bytes")),
)

SYNC_GROUP_RESPONSE = message(
    "SyncGroupResponse",
    "4+",
    Field("throttle_time_ms", "int32", "1+", ignorable=True),
    Field("error_code", "int16"),
    Field("protocol_type", "string", "5+", nullable="5+", default=None, ignorable=True),
    Field("protocol_name", "string", "5+", nullable="5+", default=None, ignorable=True),
    Field("assignment", "bytes"),
)

HEARTBEAT_REQUEST = message(
    "HeartbeatRequest",
    "4+",
    Field("group_id", "string"),
    Field("generation_id", "int32"),
    Field("member_id", "string"),
    Field("group_instance_id", "string", "3+", nullable="3+", default=None),
)

HEARTBEAT_RESPONSE = message(
    "HeartbeatResponse",
    "4+",
    Field("throttle_time_ms", "int32", "1+", ignorable=True),
    Field("error_code", "int16"),
)

LEAVE_GROUP_REQUEST = message(
    "LeaveGroupRequest",
    "4+",
    Field("group_id", "string"),
    Field("member_id", "string", "0-2"),
    structs(
        "members",
        Field("member_id", "string", "3+"),
        Field("group_instance_id", "string", "3+", nullable="3+", default=None),
        Field("reason", "string", "5+", nullable="5+", default=None, ignorable=True),
        versions="3+",
    ),
)

LEAVE_GROUP_RESPONSE = message(
    "LeaveGroupResponse",
    "4+",
    Field("throttle_time_ms", "int32", "1+", ignorable=True),
    Field("error_code", "int16"),
    structs(
        "members",
        Field("member_id", "string", "3+"),
        Field("group_instance_id", "string", "3+", nullable="3+"),
        Field("error_code", "int16", "3+"),
        versions="3+",
    ),
)
