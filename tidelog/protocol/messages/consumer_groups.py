"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the APIs of groups of the consumer protocol.

Declarations only. Source: the JSON definitions of the same names (KIP-848, KIP-1099).
"""

from tidelog.protocol.messages.declaration import Field, message, struct, structs

_TOPIC_PARTITIONS = (Field("topic_id", "uuid"), Field("partitions", "[]int32"))
_DESCRIBED_ASSIGNMENT = (
    structs(
        "topic_partitions",
        Field("topic_id", "uuid"),
        Field("topic_name", "string"),
        Field("partitions", "[]int32"),
    ),
)

CONSUMER_GROUP_HEARTBEAT_REQUEST = message(
    "ConsumerGroupHeartbeatRequest",
    "0+",
    Field("group_id", "string"),
    Field("member_id", "string"),
    Field("member_epoch", "int32"),
    Field("instance_id", "string", nullable="0+", default=None),
    Field("rack_id", "string", nullable="0+", default=None),
    Field("rebalance_timeout_ms", "int32", default=-1),
    Field("subscribed_topic_names", "[]string", nullable="0+", default=None),
    Field("subscribed_topic_regex", "string", "1+", nullable="1+", default=None),
    Field("server_assignor", "string", nullable="0+", default=None),
    structs("topic_partitions", *_TOPIC_PARTITIONS, nullable="0+", default=None),
)

CONSUMER_GROUP_HEARTBEAT_RESPONSE = message(
    "ConsumerGroupHeartbeatResponse",
    "0+",
    Field("throttle_time_ms", "int32"),
    Field("error_code", "int16"),
    Field("error_message", "string", nullable="0+", default=None),
    Field("member_id", "string", nullable="0+", default=None),
    Field("member_epoch", "int32"),
    Field("heartbeat_interval_ms", "int32"),
    struct("assignment", structs("topic_partitions", *_TOPIC_PARTITIONS), nullable="0+", default=None),
)

CONSUMER_GROUP_DESCRIBE_REQUEST = message(
    "ConsumerGroupDescribeRequest",
    "0+",
    Field("group_ids", "[]string"),
    Field("include_authorized_operations", "bool"),
)

CONSUMER_GROUP_DESCRIBE_RESPONSE = message(
    "ConsumerGroupDescribeResponse",
    "0+",
    Field("throttle_time_ms", "int32"),
    structs(
        "groups",
        Field("error_code", "int16"),
        Field("error_message", "string", nullable="0+", default=None),
        Field("group_id", "string"),
        Field("group_state", "string"),
        Field("group_epoch", "int32"),
        Field("assignment_epoch", "int32"),
        Field("assignor_name", "string"),
        structs(
            "members",
            Field("member_id", "string"),
            Field("instance_id", "string", nullable="0+", default=None),
            Field("rack_id", "string", nullable="0+", default=None),
            Field("member_epoch", "int32"),
            Field("client_id", "string"),
            Field("client_host", "string"),
            Field("subscribed_topic_names", "[]string"),
            Field("subscribed_topic_regex", "string", nullable="0+", default=None),
            struct("assignment", *_DESCRIBED_ASSIGNMENT),
            struct("target_assignment", *_DESCRIBED_ASSIGNMENT),
            Field("member_type", "int8", "1+", default=-1, ignorable=True),
        ),
        Field("authorized_operations", "int32", default=-2147483648),
    ),
)
