"""Fetch, ListOffsets and OffsetForLeaderEpoch: APIs that read records and offsets.

Declarations only; `protocol.hot` holds the hand-tuned twins of Fetch. Source: FetchRequest.json,
FetchResponse.json, ListOffsetsRequest.json, ListOffsetsResponse.json, OffsetForLeaderEpochRequest.json,
OffsetForLeaderEpochResponse.json (KIP-227, KIP-320, KIP-392, KIP-595).
"""

from tidelog.protocol.messages.declaration import Field, message, struct, structs
from tidelog.protocol.messages.produce import LEADER_ID_AND_EPOCH

FETCH_REQUEST = message(
    "FetchRequest",
    "12+",
    Field("cluster_id", "string", "12+", nullable="12+", default=None, ignorable=True, tag=0),
    Field("replica_id", "int32", "0+", default=-1),
    Field("max_wait_ms", "int32", "0+"),
    Field("min_bytes", "int32", "0+"),
    Field("max_bytes", "int32", "3+", default=0x7FFFFFFF, ignorable=True),
    Field("isolation_level", "int8", "4+", ignorable=True),
    Field("session_id", "int32", "7+", ignorable=True),
    Field("session_epoch", "int32", "7+", default=-1, ignorable=True),
    structs(
        "topics",
        "0+",
        Field("topic", "string", "0+"),
        structs(
            "partitions",
            "0+",
            Field("partition", "int32", "0+"),
            Field("current_leader_epoch", "int32", "9+", default=-1, ignorable=True),
            Field("fetch_offset", "int64", "0+"),
            Field("last_fetched_epoch", "int32", "12+", default=-1),
            Field("log_start_offset", "int64", "5+", default=-1, ignorable=True),
            Field("partition_max_bytes", "int32", "0+"),
        ),
    ),
    structs(
        "forgotten_topics_data", "7+", Field("topic", "string", "7+"), Field("partitions", "[]int32", "7+")
    ),
    Field("rack_id", "string", "11+", ignorable=True),
)

FETCH_RESPONSE = message(
    "FetchResponse",
    "12+",
    Field("throttle_time_ms", "int32", "1+", ignorable=True),
    Field("error_code", "int16", "7+", ignorable=True),
    Field("session_id", "int32", "7+"),
    structs(
        "responses",
        "0+",
        Field("topic", "string", "0+"),
        structs(
            "partitions",
            "0+",
            Field("partition_index", "int32", "0+"),
            Field("error_code", "int16", "0+"),
            Field("high_watermark", "int64", "0+"),
            Field("last_stable_offset", "int64", "4+", default=-1, ignorable=True),
            Field("log_start_offset", "int64", "5+", default=-1, ignorable=True),
            struct(
                "diverging_epoch",
                "12+",
                Field("epoch", "int32", "12+", default=-1),
                Field("end_offset", "int64", "12+", default=-1),
                tag=0,
            ),
            struct("current_leader", "12+", *LEADER_ID_AND_EPOCH, tag=1),
            struct(
                "snapshot_id",
                "12+",
                Field("end_offset", "int64", "0+", default=-1),
                Field("epoch", "int32", "0+", default=-1),
                tag=2,
            ),
            structs(
                "aborted_transactions",
                "4+",
                Field("producer_id", "int64", "4+"),
                Field("first_offset", "int64", "4+"),
                nullable="4+",
                ignorable=True,
            ),
            Field("preferred_read_replica", "int32", "11+", default=-1),
            Field("records", "records", "0+", nullable="0+"),
        ),
    ),
)

LIST_OFFSETS_REQUEST = message(
    "ListOffsetsRequest",
    "6+",
    Field("replica_id", "int32", "0+"),
    Field("isolation_level", "int8", "2+"),
    structs(
        "topics",
        "0+",
        Field("name", "string", "0+"),
        structs(
            "partitions",
            "0+",
            Field("partition_index", "int32", "0+"),
            Field("current_leader_epoch", "int32", "4+", default=-1, ignorable=True),
            Field("timestamp", "int64", "0+"),
        ),
    ),
)

# Kafka declares leader_epoch as not ignorable, and its broker's code omits it below version 4. Here a handler
# answers the same values for every version, so an older version may drop it.
LIST_OFFSETS_RESPONSE = message(
    "ListOffsetsResponse",
    "6+",
    Field("throttle_time_ms", "int32", "2+", ignorable=True),
    structs(
        "topics",
        "0+",
        Field("name", "string", "0+"),
        structs(
            "partitions",
            "0+",
            Field("partition_index", "int32", "0+"),
            Field("error_code", "int16", "0+"),
            Field("timestamp", "int64", "1+", default=-1),
            Field("offset", "int64", "1+", default=-1),
            Field("leader_epoch", "int32", "4+", default=-1, ignorable=True),
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH_REQUEST = message(
    "OffsetForLeaderEpochRequest",
    "4+",
    Field("replica_id", "int32", "3+", default=-2, ignorable=True),
    structs(
        "topics",
        "0+",
        Field("topic", "string", "0+"),
        structs(
            "partitions",
            "0+",
            Field("partition", "int32", "0+"),
            Field("current_leader_epoch", "int32", "2+", default=-1, ignorable=True),
            Field("leader_epoch", "int32", "0+"),
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH_RESPONSE = message(
    "OffsetForLeaderEpochResponse",
    "4+",
    Field("throttle_time_ms", "int32", "2+", ignorable=True),
    structs(
        "topics",
        "0+",
        Field("topic", "string", "0+"),
        structs(
            "partitions",
            "0+",
            Field("error_code", "int16", "0+"),
            Field("partition", "int32", "0+"),
            Field("leader_epoch", "int32", "1+", default=-1, ignorable=True),
            Field("end_offset", "int64", "0+", default=-1),
        ),
    ),
)
