"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the APIs of groups of the consumer protocol.

Declarations only. Source: the JSON definitions of the same names (KIP-848, KIP-1099).
"""

from tidelog.protocol.messages.declaration import Field, message, struct, structs

_TOPIC_PARTITIONS = (Field("topic_id", "uuid", "0+"), Field("partitions", "[]int32", "0+"))
_DESCRIBED_ASSIGNMENT = (
    structs(
        "topic_partitions",
        "0+",
        Field("topic_id", "uuid", "0+"),
        Field("topic_name", "string", "0+"),
        Field("partitions", "[]int32", "0+"),
    ),
)

CONSUMER_GROUP_HEARTBEAT_REQUEST = message(
    "ConsumerGroupHeartbeatRequest",
    "0+",
    Field("group_id", "string", "0+"),
    Field("member_id", "string", "0+"),
    Field("member_epoch", "int32", "0+"),
    Field("instance_id", "string", "0+", nullable="0+", default=None),
    Field("rack_id", "string", "0+", nullable="0+", default=None),
    Field("rebalance_timeout_ms", "int32", "0+", default=-1),
    Field("subscribed_topic_names", "[]string", "0+", nullable="0+", default=None),
    Field("subscribed_topic_regex", "string", "1+", nullable="1+", default=None),
    Field("server_assignor", "string", "0+", nullable="0+", default=None),
    structs("topic_partitions", "0+", *_TOPIC_PARTITIONS, nullable="0+", default=None),
)

CONSUMER_GROUP_HEARTBEAT_RESPONSE = message(
    "ConsumerGroupHeartbeatResponse",
    "0+",
    Field("throttle_time_ms", "int32", "0+"),
    Field("error_code", "int16", "0+"),
    Field("error_message", "string", "0+", nullable="0+", default=None),
    Field("member_id", "string", "0+", nullable="0+", default=None),
    Field("member_epoch", "int32", "0+"),
    Field("heartbeat_interval_ms", "int32", "0+"),
    struct(
        "assignment", "0+", structs("topic_partitions", "0+", *_TOPIC_PARTITIONS), nullable="0+", default=None
    ),
)

CONSUMER_GROUP_DESCRIBE_REQUEST = message(
    "ConsumerGroupDescribeRequest",
    "0+",
    Field("group_ids", "[]string", "0+"),
    Field("include_authorized_operations", "bool", "0+"),
)

CONSUMER_GROUP_DESCRIBE_RESPONSE = message(
    "ConsumerGroupDescribeResponse",
    "0+",
    Field("throttle_time_ms", "int32", "0+"),
    structs(
        "groups",
        "0+",
        Field("error_code", "int16", "0+"),
        Field("error_message", "string", "0+", nullable="0+", default=None),
        Field("group_id", "string", "0+"),
        Field("group_state", "string", "0+"),
        Field("group_epoch", "int32", "0+"),
        Field("assignment_epoch", "int32", "0+"),
        Field("assignor_name", "string", "0+"),
        structs(
            "members",
            "0+",
            Field("member_id", "string", "0+"),
            Field("instance_id", "string", "0+", nullable="0+", default=None),
            Field("rack_id", "string", "0+", nullable="0+", default=None),
            Field("member_epoch", "int32", "0+"),
            Field("client_id", "string", "0+"),
            Field("client_host", "string", "0+"),
            Field("subscribed_topic_names", "[]string", "0+"),
            Field("subscribed_topic_regex", "string", "0+", nullable="0+", default=None),
            struct("assignment", "0+", *_DESCRIBED_ASSIGNMENT),
            struct("target_assignment", "0+", *_DESCRIBED_ASSIGNMENT),
            Field("member_type", "int8", "1+", default=-1, ignorable=True),
        ),
        Field("authorized_operations", "int32", "0+", default=-2147483648),
    ),
)
