"""Fetch, ListOffsets, OffsetForLeaderEpoch, FetchSnapshot: APIs that read records, offsets and snapshots.

Declarations only; `protocol.hot` holds the hand-tuned twins of Fetch. Source: the JSON definitions of the
same names (KIP-227, KIP-320, KIP-392, KIP-516, KIP-595, KIP-630, KIP-853, KIP-903, KIP-951, KIP-1166).
"""

from tidelog.protocol.messages.declaration import Field, by_partition, message, struct, structs
from tidelog.protocol.messages.produce import LEADER_ID_AND_EPOCH, NODE_ENDPOINT

FETCH_REQUEST = message(
    "FetchRequest",
    "12+",
    Field("cluster_id", "string", "12+", nullable="12+", default=None, ignorable=True, tag=0),
    Field("replica_id", "int32", "0-14", default=-1),
    struct(
        "replica_state",
        Field("replica_id", "int32", "15+", default=-1),
        Field("replica_epoch", "int64", "15+", default=-1),
        tag=1,
        versions="15+",
    ),
    Field("max_wait_ms", "int32"),
    Field("min_bytes", "int32"),
    Field("max_bytes", "int32", "3+", default=0x7FFFFFFF, ignorable=True),
    Field("isolation_level", "int8", "4+", ignorable=True),
    Field("session_id", "int32", "7+", ignorable=True),
    Field("session_epoch", "int32", "7+", default=-1, ignorable=True),
    structs(
        "topics",
        Field("topic", "string", "0-12", ignorable=True),
        Field("topic_id", "uuid", "13+", ignorable=True),
        structs(
            "partitions",
            Field("partition", "int32"),
            Field("current_leader_epoch", "int32", "9+", default=-1, ignorable=True),
            Field("fetch_offset", "int64"),
            Field("last_fetched_epoch", "int32", "12+", default=-1),
            Field("log_start_offset", "int64", "5+", default=-1, ignorable=True),
            Field("partition_max_bytes", "int32"),
            Field("replica_directory_id", "uuid", "17+", ignorable=True, tag=0),
            Field("high_watermark", "int64", "18+", default=0x7FFFFFFFFFFFFFFF, ignorable=True, tag=1),
        ),
    ),
    structs(
        "forgotten_topics_data",
        Field("topic", "string", "7-12", ignorable=True),
        Field("topic_id", "uuid", "13+", ignorable=True),
        Field("partitions", "[]int32", "7+"),
        versions="7+",
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
        Field("topic", "string", "0-12", ignorable=True),
        Field("topic_id", "uuid", "13+", ignorable=True),
        structs(
            "partitions",
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
            Field("high_watermark", "int64"),
            Field("last_stable_offset", "int64", "4+", default=-1, ignorable=True),
            Field("log_start_offset", "int64", "5+", default=-1, ignorable=True),
            struct(
                "diverging_epoch",
                Field("epoch", "int32", "12+", default=-1),
                Field("end_offset", "int64", "12+", default=-1),
                tag=0,
                versions="12+",
            ),
            struct("current_leader", *LEADER_ID_AND_EPOCH, tag=1, versions="12+"),
            struct(
                "snapshot_id",
                Field("end_offset", "int64", default=-1),
                Field("epoch", "int32", default=-1),
                tag=2,
                versions="12+",
            ),
            structs(
                "aborted_transactions",
                Field("producer_id", "int64", "4+"),
                Field("first_offset", "int64", "4+"),
                nullable="4+",
                ignorable=True,
                versions="4+",
            ),
            Field("preferred_read_replica", "int32", "11+", default=-1),
            Field("records", "records", nullable="0+"),
        ),
    ),
    structs("node_endpoints", *NODE_ENDPOINT, tag=0, versions="16+"),
)

LIST_OFFSETS_REQUEST = message(
    "ListOffsetsRequest",
    "6+",
    Field("replica_id", "int32"),
    Field("isolation_level", "int8", "2+"),
    by_partition(
        Field("current_leader_epoch", "int32", "4+", default=-1, ignorable=True), Field("timestamp", "int64")
    ),
    Field("timeout_ms", "int32", "10+", ignorable=True),
)

# Kafka declares leader_epoch as not ignorable, and its broker's code omits it below version 4. Here a handler
# answers the same values for every version, so an older version may drop it.
LIST_OFFSETS_RESPONSE = message(
    "ListOffsetsResponse",
    "6+",
    Field("throttle_time_ms", "int32", "2+", ignorable=True),
    by_partition(
        Field("error_code", "int16"),
        Field("timestamp", "int64", "1+", default=-1),
        Field("offset", "int64", "1+", default=-1),
        Field("leader_epoch", "int32", "4+", default=-1, ignorable=True),
    ),
)

OFFSET_FOR_LEADER_EPOCH_REQUEST = message(
    "OffsetForLeaderEpochRequest",
    "4+",
    Field("replica_id", "int32", "3+", default=-2, ignorable=True),
    structs(
        "topics",
        Field("topic", "string"),
        structs(
            "partitions",
            Field("partition", "int32"),
            Field("current_leader_epoch", "int32", "2+", default=-1, ignorable=True),
            Field("leader_epoch", "int32"),
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH_RESPONSE = message(
    "OffsetForLeaderEpochResponse",
    "4+",
    Field("throttle_time_ms", "int32", "2+", ignorable=True),
    structs(
        "topics",
        Field("topic", "string"),
        structs(
            "partitions",
            Field("error_code", "int16"),
            Field("partition", "int32"),
            Field("leader_epoch", "int32", "1+", default=-1, ignorable=True),
            Field("end_offset", "int64", default=-1),
        ),
    ),
)

_SNAPSHOT_ID = struct("snapshot_id", Field("end_offset", "int64"), Field("epoch", "int32"))

FETCH_SNAPSHOT_REQUEST = message(
    "FetchSnapshotRequest",
    "0+",
    Field("cluster_id", "string", nullable="0+", default=None, ignorable=True, tag=0),
    Field("replica_id", "int32", default=-1),
    Field("max_bytes", "int32", default=0x7FFFFFFF),
    structs(
        "topics",
        Field("name", "string"),
        structs(
            "partitions",
            Field("partition", "int32"),
            Field("current_leader_epoch", "int32"),
            _SNAPSHOT_ID,
            Field("position", "int64"),
            Field("replica_directory_id", "uuid", "1+", ignorable=True, tag=0),
        ),
    ),
)

FETCH_SNAPSHOT_RESPONSE = message(
    "FetchSnapshotResponse",
    "0+",
    Field("throttle_time_ms", "int32", ignorable=True),
    Field("error_code", "int16"),
    structs(
        "topics",
        Field("name", "string"),
        structs(
            "partitions",
            Field("index", "int32"),
            Field("error_code", "int16"),
            _SNAPSHOT_ID,
            struct("current_leader", *LEADER_ID_AND_EPOCH, tag=0),
            Field("size", "int64"),
            Field("position", "int64"),
            Field("unaligned_records", "records"),
        ),
    ),
    structs(
        "node_endpoints",
        Field("node_id", "int32"),
        Field("host", "string"),
        Field("port", "uint16"),
        tag=0,
        versions="1+",
    ),
)
