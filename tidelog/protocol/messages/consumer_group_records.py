"""Records of groups of the consumer protocol in the log of `__consumer_offsets`: keys and values.

Declarations only. A record's key and value each begin with an int16 version, see
`protocol.coordinator_records`. The version of a key also says what kind of record it is: 3 to 8 and 16.

Source: the JSON definitions of the same names in Kafka's group coordinator (KIP-848, KIP-1101).
"""

from tidelog.protocol.messages.declaration import Field, Message, message, struct, structs

_TOPIC_PARTITIONS = (Field("topic_id", "uuid"), Field("partitions", "[]int32"))


def _group_key(name: str, version: int) -> Message:
    return message(name, "", Field("group_id", "string", str(version)))


def _member_key(name: str, version: int) -> Message:
    group_key = _group_key(name, version)
    return group_key._replace(fields=(*group_key.fields, Field("member_id", "string", str(version))))


CONSUMER_GROUP_METADATA_KEY = _group_key("ConsumerGroupMetadataKey", 3)
CONSUMER_GROUP_METADATA_VALUE = message(
    "ConsumerGroupMetadataValue", "0+", Field("epoch", "int32"), Field("metadata_hash", "int64", tag=0)
)

CONSUMER_GROUP_PARTITION_METADATA_KEY = _group_key("ConsumerGroupPartitionMetadataKey", 4)
CONSUMER_GROUP_PARTITION_METADATA_VALUE = message(
    "ConsumerGroupPartitionMetadataValue",
    "0+",
    structs(
        "topics",
        Field("topic_id", "uuid"),
        Field("topic_name", "string"),
        Field("num_partitions", "int32"),
        structs("partition_metadata", Field("partition", "int32"), Field("racks", "[]string")),
    ),
)

CONSUMER_GROUP_MEMBER_METADATA_KEY = _member_key("ConsumerGroupMemberMetadataKey", 5)
CONSUMER_GROUP_MEMBER_METADATA_VALUE = message(
    "ConsumerGroupMemberMetadataValue",
    "0+",
    Field("instance_id", "string", nullable="0+"),
    Field("rack_id", "string", nullable="0+"),
    Field("client_id", "string"),
    Field("client_host", "string"),
    Field("subscribed_topic_names", "[]string"),
    Field("subscribed_topic_regex", "string", nullable="0+"),
    Field("rebalance_timeout_ms", "int32", default=-1),
    Field("server_assignor", "string", nullable="0+"),
    struct(
        "classic_member_metadata",
        Field("session_timeout_ms", "int32"),
        structs("supported_protocols", Field("name", "string"), Field("metadata", "bytes")),
        nullable="0+",
        default=None,
        tag=0,
    ),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY = _group_key("ConsumerGroupTargetAssignmentMetadataKey", 6)
CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE = message(
    "ConsumerGroupTargetAssignmentMetadataValue", "0+", Field("assignment_epoch", "int32")
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY = _member_key("ConsumerGroupTargetAssignmentMemberKey", 7)
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = message(
    "ConsumerGroupTargetAssignmentMemberValue", "0+", structs("topic_partitions", *_TOPIC_PARTITIONS)
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY = _member_key("ConsumerGroupCurrentMemberAssignmentKey", 8)
CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = message(
    "ConsumerGroupCurrentMemberAssignmentValue",
    "0+",
    Field("member_epoch", "int32"),
    Field("previous_member_epoch", "int32"),
    Field("state", "int8"),
    structs("assigned_partitions", *_TOPIC_PARTITIONS),
    structs("partitions_pending_revocation", *_TOPIC_PARTITIONS),
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
    Field("topics", "[]string"),
    Field("version", "int64"),
    Field("timestamp", "int64"),
)
