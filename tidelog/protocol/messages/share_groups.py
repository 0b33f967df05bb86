"""ShareGroupHeartbeat, ShareGroupDescribe, and the APIs of share groups' offsets.

Declarations only. Source: the JSON definitions of the same names (KIP-932, KIP-1226). Version 0 of the first
two was an early access that brokers do not serve.
"""

from tidelog.protocol.messages.declaration import ERROR_OR_NULL, Field, message, struct, structs

SHARE_GROUP_HEARTBEAT_REQUEST = message(
    "ShareGroupHeartbeatRequest",
    "0+",
    Field("group_id", "string"),
    Field("member_id", "string"),
    Field("member_epoch", "int32"),
    Field("rack_id", "string", nullable="0+", default=None),
    Field("subscribed_topic_names", "[]string", nullable="0+", default=None),
)

SHARE_GROUP_HEARTBEAT_RESPONSE = message(
    "ShareGroupHeartbeatResponse",
    "0+",
    Field("throttle_time_ms", "int32"),
    *ERROR_OR_NULL,
    Field("member_id", "string", nullable="0+", default=None),
    Field("member_epoch", "int32"),
    Field("heartbeat_interval_ms", "int32"),
    struct(
        "assignment",
        structs("topic_partitions", Field("topic_id", "uuid"), Field("partitions", "[]int32")),
        nullable="0+",
        default=None,
    ),
)

SHARE_GROUP_DESCRIBE_REQUEST = message(
    "ShareGroupDescribeRequest",
    "0+",
    Field("group_ids", "[]string"),
    Field("include_authorized_operations", "bool"),
)

SHARE_GROUP_DESCRIBE_RESPONSE = message(
    "ShareGroupDescribeResponse",
    "0+",
    Field("throttle_time_ms", "int32"),
    structs(
        "groups",
        *ERROR_OR_NULL,
        Field("group_id", "string"),
        Field("group_state", "string"),
        Field("group_epoch", "int32"),
        Field("assignment_epoch", "int32"),
        Field("assignor_name", "string"),
        structs(
            "members",
            Field("member_id", "string"),
            Field("rack_id", "string", nullable="0+", default=None),
            Field("member_epoch", "int32"),
            Field("client_id", "string"),
            Field("client_host", "string"),
            Field("subscribed_topic_names", "[]string"),
            struct(
                "assignment",
                structs(
                    "topic_partitions",
                    Field("topic_id", "uuid"),
                    Field("topic_name", "string"),
                    Field("partitions", "[]int32"),
                ),
            ),
        ),
        Field("authorized_operations", "int32", default=-2147483648),
    ),
)

DESCRIBE_SHARE_GROUP_OFFSETS_REQUEST = message(
    "DescribeShareGroupOffsetsRequest",
    "0+",
    structs(
        "groups",
        Field("group_id", "string"),
        structs("topics", Field("topic_name", "string"), Field("partitions", "[]int32"), nullable="0+"),
    ),
)

DESCRIBE_SHARE_GROUP_OFFSETS_RESPONSE = message(
    "DescribeShareGroupOffsetsResponse",
    "0+",
    Field("throttle_time_ms", "int32"),
    structs(
        "groups",
        Field("group_id", "string"),
        structs(
            "topics",
            Field("topic_name", "string"),
            Field("topic_id", "uuid"),
            structs(
                "partitions",
                Field("partition_index", "int32"),
                Field("start_offset", "int64"),
                Field("leader_epoch", "int32"),
                Field("lag", "int64", "1+", default=-1, ignorable=True),
                *ERROR_OR_NULL,
            ),
        ),
        *ERROR_OR_NULL,
    ),
)

ALTER_SHARE_GROUP_OFFSETS_REQUEST = message(
    "AlterShareGroupOffsetsRequest",
    "0+",
    Field("group_id", "string"),
    structs(
        "topics",
        Field("topic_name", "string"),
        structs("partitions", Field("partition_index", "int32"), Field("start_offset", "int64")),
    ),
)

ALTER_SHARE_GROUP_OFFSETS_RESPONSE = message(
    "AlterShareGroupOffsetsResponse",
    "0+",
    Field("throttle_time_ms", "int32"),
    *ERROR_OR_NULL,
    structs(
        "responses",
        Field("topic_name", "string"),
        Field("topic_id", "uuid"),
        structs(
            "partitions",
            Field("partition_index", "int32"),
            *ERROR_OR_NULL,
        ),
    ),
)

DELETE_SHARE_GROUP_OFFSETS_REQUEST = message(
    "DeleteShareGroupOffsetsRequest",
    "0+",
    Field("group_id", "string"),
    structs("topics", Field("topic_name", "string")),
)

DELETE_SHARE_GROUP_OFFSETS_RESPONSE = message(
    "DeleteShareGroupOffsetsResponse",
    "0+",
    Field("throttle_time_ms", "int32"),
    *ERROR_OR_NULL,
    structs(
        "responses",
        Field("topic_name", "string"),
        Field("topic_id", "uuid"),
        *ERROR_OR_NULL,
    ),
)
