"""Records of groups of the consumer protocol in the log of `__consumer_offsets`: keys and values.

Declarations only. A record's key and value each begin with an int16 version, see
`protocol.coordinator_records`. The version of a key also says what kind of record it is: 3 to 8 and 16.

Source: the JSON definitions of the same names in Kafka's group coordinator (KIP-848, KIP-1101).
"""

from tidelog.protocol.messages.declaration import Field, Message, message, struct, structs

_TOPIC_PARTITIONS = (Field("topic_id", "uuid", "0+"), Field("partitions", "[]int32", "0+"))


def _group_key(name: str, version: int) -> Message:
    return message(name, "", Field("group_id", "string", str(version)))


def _member_key(name: str, version: int) -> Message:
    group_key = _group_key(name, version)
    return group_key._replace(fields=(*group_key.fields, Field("member_id", "string", str(version))))


CONSUMER_GROUP_METADATA_KEY = _group_key("ConsumerGroupMetadataKey", 3)
CONSUMER_GROUP_METADATA_VALUE = message(
    "ConsumerGroupMetadataValue",
    "0+",
    Field("epoch", "int32", "0+"),
    Field("metadata_hash", "int64", "0+", tag=0),
)

CONSUMER_GROUP_PARTITION_METADATA_KEY = _group_key("ConsumerGroupPartitionMetadataKey", 4)
CONSUMER_GROUP_PARTITION_METADATA_VALUE = message(
    "ConsumerGroupPartitionMetadataValue",
    "0+",
    structs(
        "topics",
        "0+",
        Field("topic_id", "uuid", "0+"),
        Field("topic_name", "string", "0+"),
        Field("num_partitions", "int32", "0+"),
        structs(
            "partition_metadata", "0+", Field("partition", "int32", "0+"), Field("racks", "[]string", "0+")
        ),
    ),
)

CONSUMER_GROUP_MEMBER_METADATA_KEY = _member_key("ConsumerGroupMemberMetadataKey", 5)
CONSUMER_GROUP_MEMBER_METADATA_VALUE = message(
    "ConsumerGroupMemberMetadataValue",
    "0+",
    Field("instance_id", "string", "0+", nullable="0+"),
    Field("rack_id", "string", "0+", nullable="0+"),
    Field("client_id", "string", "0+"),
    Field("client_host", "string", "0+"),
    Field("subscribed_topic_names", "[]string", "0+"),
    Field("subscribed_topic_regex", "string", "0+", nullable="0+"),
    Field("rebalance_timeout_ms", "int32", "0+", default=-1),
    Field("server_assignor", "string", "0+", nullable="0+"),
    struct(
        "classic_member_metadata",
        "0+",
        Field("session_timeout_ms", "int32", "0+"),
        structs("supported_protocols", "0+", Field("name", "string", "0+"), Field("metadata", "bytes", "0+")),
        nullable="0+",
        default=None,
        tag=0,
    ),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY = _group_key("ConsumerGroupTargetAssignmentMetadataKey", 6)
CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE = message(
    "ConsumerGroupTargetAssignmentMetadataValue", "0+", Field("assignment_epoch", "int32", "0+")
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY = _member_key("ConsumerGroupTargetAssignmentMemberKey", 7)
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = message(
    "ConsumerGroupTargetAssignmentMemberValue", "0+", structs("topic_partitions", "0+", *_TOPIC_PARTITIONS)
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY = _member_key("ConsumerGroupCurrentMemberAssignmentKey", 8)
CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = message(
    "ConsumerGroupCurrentMemberAssignmentValue",
    "0+",
    Field("member_epoch", "int32", "0+"),
    Field("previous_member_epoch", "int32", "0+"),
    Field("state", "int8", "0+"),
    structs("assigned_partitions", "0+", *_TOPIC_PARTITIONS),
    structs("partitions_pending_revocation", "0+", *_TOPIC_PARTITIONS),
)

CONSUMER_GROUP_REGULAR_EXPRESSION_KEY = message(
    "ConsumerGroupRegularExpressionKey",
    "",
    Field("group_id", "string", "16"),
    Field("regular_expression", "string", "16"),
)
CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE = message(
    "ConsumerGroupRegularExpressionValue",
    "0+",
    Field("topics", "[]string", "0+"),
    Field("version", "int64", "0+"),
    Field("timestamp", "int64", "0+"),
)
