"""OffsetFetch, OffsetCommit and OffsetDelete: the offsets that a group has committed.

Declarations only. Source: the JSON definitions of the same names (KIP-320, KIP-447, KIP-496, KIP-709,
KIP-848). OffsetFetch has two layouts: one group up to version 7, a list of them from version 8.
"""

from tidelog.protocol.messages.declaration import Field, by_partition, message, structs

OFFSET_FETCH_REQUEST = message(
    "OffsetFetchRequest",
    "6+",
    Field("group_id", "string", "0-7"),
    structs(
        "topics",
        Field("name", "string", "0-7"),
        Field("partition_indexes", "[]int32", "0-7"),
        nullable="2-7",
        versions="0-7",
    ),
    structs(
        "groups",
        Field("group_id", "string", "8+"),
        Field("member_id", "string", "9+", nullable="9+", default=None, ignorable=True),
        Field("member_epoch", "int32", "9+", default=-1, ignorable=True),
        structs(
            "topics",
            Field("name", "string", "8-9", ignorable=True),
            Field("topic_id", "uuid", "10+", ignorable=True),
            Field("partition_indexes", "[]int32", "8+"),
            nullable="8+",
            versions="8+",
        ),
        versions="8+",
    ),
    Field("require_stable", "bool", "7+", default=False),
)

OFFSET_FETCH_RESPONSE = message(
    "OffsetFetchResponse",
    "6+",
    Field("throttle_time_ms", "int32", "3+", ignorable=True),
    structs(
        "topics",
        Field("name", "string", "0-7"),
        structs(
            "partitions",
            Field("partition_index", "int32", "0-7"),
            Field("committed_offset", "int64", "0-7"),
            Field("committed_leader_epoch", "int32", "5-7", default=-1, ignorable=True),
            Field("metadata", "string", "0-7", nullable="0-7"),
            Field("error_code", "int16", "0-7"),
            versions="0-7",
        ),
        versions="0-7",
    ),
    Field("error_code", "int16", "2-7", default=0, ignorable=True),
    structs(
        "groups",
        Field("group_id", "string", "8+"),
        structs(
            "topics",
            Field("name", "string", "8-9", ignorable=True),
            Field("topic_id", "uuid", "10+", ignorable=True),
            structs(
                "partitions",
                Field("partition_index", "int32", "8+"),
                Field("committed_offset", "int64", "8+"),
                Field("committed_leader_epoch", "int32", "8+", default=-1, ignorable=True),
                Field("metadata", "string", "8+", nullable="8+"),
                Field("error_code", "int16", "8+"),
                versions="8+",
            ),
            versions="8+",
        ),
        Field("error_code", "int16", "8+", default=0),
        versions="8+",
    ),
)

OFFSET_COMMIT_REQUEST = message(
    "OffsetCommitRequest",
    "8+",
    Field("group_id", "string"),
    Field("generation_id_or_member_epoch", "int32", "1+", default=-1, ignorable=True),
    Field("member_id", "string", "1+", ignorable=True),
    Field("group_instance_id", "string", "7+", nullable="7+", default=None),
    Field("retention_time_ms", "int64", "2-4", default=-1, ignorable=True),
    structs(
        "topics",
        Field("name", "string", "0-9", ignorable=True),
        Field("topic_id", "uuid", "10+", ignorable=True),
        structs(
            "partitions",
            Field("partition_index", "int32"),
            Field("committed_offset", "int64"),
            Field("committed_leader_epoch", "int32", "6+", default=-1, ignorable=True),
            Field("committed_metadata", "string", nullable="0+"),
        ),
    ),
)

OFFSET_COMMIT_RESPONSE = message(
    "OffsetCommitResponse",
    "8+",
    Field("throttle_time_ms", "int32", "3+", ignorable=True),
    structs(
        "topics",
        Field("name", "string", "0-9", ignorable=True),
        Field("topic_id", "uuid", "10+", ignorable=True),
        structs("partitions", Field("partition_index", "int32"), Field("error_code", "int16")),
    ),
)

OFFSET_DELETE_REQUEST = message("OffsetDeleteRequest", "1+", Field("group_id", "string"), by_partition())

OFFSET_DELETE_RESPONSE = message(
    "OffsetDeleteResponse",
    "1+",
    Field("error_code", "int16"),
    Field("throttle_time_ms", "int32", ignorable=True),
    by_partition(Field("error_code", "int16")),
)
