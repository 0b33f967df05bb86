"""Records of share groups in the log of `__consumer_offsets`: keys and values.

Declarations only. A record's key and value each begin with an int16 version, see
`protocol.coordinator_records`. The version of a key also says what kind of record it is: 10 to 15.

Source: the JSON definitions of the same names in Kafka's group coordinator (KIP-932).
"""

from tidelog.protocol.messages.declaration import Field, Message, message, structs

_TOPIC_PARTITIONS = (Field("topic_id", "uuid"), Field("partitions", "[]int32"))
_NAMED_TOPIC = (Field("topic_id", "uuid"), Field("topic_name", "string"))


def _group_key(name: str, version: int) -> Message:
    return message(name, "", Field("group_id", "string", str(version)))


def _member_key(name: str, version: int) -> Message:
    return message(
        name, "", Field("group_id", "string", str(version)), Field("member_id", "string", str(version))
    )


SHARE_GROUP_MEMBER_METADATA_KEY = _member_key("ShareGroupMemberMetadataKey", 10)
SHARE_GROUP_MEMBER_METADATA_VALUE = message(
    "ShareGroupMemberMetadataValue",
    "0+",
    Field("rack_id", "string", nullable="0+"),
    Field("client_id", "string"),
    Field("client_host", "string"),
    Field("subscribed_topic_names", "[]string"),
)

SHARE_GROUP_METADATA_KEY = _group_key("ShareGroupMetadataKey", 11)
SHARE_GROUP_METADATA_VALUE = message(
    "ShareGroupMetadataValue", "0+", Field("epoch", "int32"), Field("metadata_hash", "int64")
)

SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_KEY = _group_key("ShareGroupTargetAssignmentMetadataKey", 12)
SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE = message(
    "ShareGroupTargetAssignmentMetadataValue",
    "0+",
    Field("assignment_epoch", "int32"),
    Field("assignment_timestamp", "int64", tag=0),
)

SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY = _member_key("ShareGroupTargetAssignmentMemberKey", 13)
SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = message(
    "ShareGroupTargetAssignmentMemberValue", "0+", structs("topic_partitions", *_TOPIC_PARTITIONS)
)

SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY = _member_key("ShareGroupCurrentMemberAssignmentKey", 14)
SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = message(
    "ShareGroupCurrentMemberAssignmentValue",
    "0+",
    Field("member_epoch", "int32"),
    Field("previous_member_epoch", "int32"),
    Field("state", "int8"),
    structs("assigned_partitions", *_TOPIC_PARTITIONS),
)

SHARE_GROUP_STATE_PARTITION_METADATA_KEY = _group_key("ShareGroupStatePartitionMetadataKey", 15)
SHARE_GROUP_STATE_PARTITION_METADATA_VALUE = message(
    "ShareGroupStatePartitionMetadataValue",
    "0+",
    structs("initializing_topics", *_NAMED_TOPIC, Field("partitions", "[]int32")),
    structs("initialized_topics", *_NAMED_TOPIC, Field("partitions", "[]int32")),
    structs("deleting_topics", *_NAMED_TOPIC),
)
