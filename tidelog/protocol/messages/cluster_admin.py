"""APIs to operate a cluster: log folders, leaders, reassignments, quorum, features.

Declarations only. Source: the JSON definitions of the same names (KIP-113, KIP-183, KIP-455, KIP-460,
KIP-584, KIP-595, KIP-631, KIP-827, KIP-836, KIP-853, KIP-1142).
"""

from tidelog.protocol.messages.declaration import ERROR, Field, by_partition, message, structs

_THROTTLE = Field("throttle_time_ms", "int32")
_TIMEOUT = Field("timeout_ms", "int32", default=60_000)
ALTER_REPLICA_LOG_DIRS_REQUEST = message(
    "AlterReplicaLogDirsRequest",
    "2+",
    structs(
        "dirs",
        Field("path", "string"),
        structs("topics", Field("name", "string"), Field("partitions", "[]int32")),
    ),
)

ALTER_REPLICA_LOG_DIRS_RESPONSE = message(
    "AlterReplicaLogDirsResponse",
    "2+",
    _THROTTLE,
    structs(
        "results",
        Field("topic_name", "string"),
        structs("partitions", Field("partition_index", "int32"), Field("error_code", "int16")),
    ),
)

DESCRIBE_LOG_DIRS_REQUEST = message(
    "DescribeLogDirsRequest",
    "2+",
    structs("topics", Field("topic", "string"), Field("partitions", "[]int32"), nullable="0+"),
)

DESCRIBE_LOG_DIRS_RESPONSE = message(
    "DescribeLogDirsResponse",
    "2+",
    _THROTTLE,
    Field("error_code", "int16", "3+", ignorable=True),
    structs(
        "results",
        Field("error_code", "int16"),
        Field("log_dir", "string"),
        by_partition(
            Field("partition_size", "int64"), Field("offset_lag", "int64"), Field("is_future_key", "bool")
        ),
        Field("total_bytes", "int64", "4+", default=-1, ignorable=True),
        Field("usable_bytes", "int64", "4+", default=-1, ignorable=True),
    ),
)

ELECT_LEADERS_REQUEST = message(
    "ElectLeadersRequest",
    "2+",
    Field("election_type", "int8", "1+"),
    structs("topic_partitions", Field("topic", "string"), Field("partitions", "[]int32"), nullable="0+"),
    _TIMEOUT,
)

ELECT_LEADERS_RESPONSE = message(
    "ElectLeadersResponse",
    "2+",
    _THROTTLE,
    Field("error_code", "int16", "1+", ignorable=True),
    structs(
        "replica_election_results",
        Field("topic", "string"),
        structs("partition_result", Field("partition_id", "int32"), *ERROR),
    ),
)

ALTER_PARTITION_REASSIGNMENTS_REQUEST = message(
    "AlterPartitionReassignmentsRequest",
    "0+",
    _TIMEOUT,
    Field("allow_replication_factor_change", "bool", "1+", default=True),
    by_partition(Field("replicas", "[]int32", nullable="0+", default=None)),
)

ALTER_PARTITION_REASSIGNMENTS_RESPONSE = message(
    "AlterPartitionReassignmentsResponse",
    "0+",
    _THROTTLE,
    Field("allow_replication_factor_change", "bool", "1+", default=True, ignorable=True),
    *ERROR,
    structs(
        "responses", Field("name", "string"), structs("partitions", Field("partition_index", "int32"), *ERROR)
    ),
)

LIST_PARTITION_REASSIGNMENTS_REQUEST = message(
    "ListPartitionReassignmentsRequest",
    "0+",
    _TIMEOUT,
    structs(
        "topics", Field("name", "string"), Field("partition_indexes", "[]int32"), nullable="0+", default=None
    ),
)

LIST_PARTITION_REASSIGNMENTS_RESPONSE = message(
    "ListPartitionReassignmentsResponse",
    "0+",
    _THROTTLE,
    *ERROR,
    by_partition(
        Field("replicas", "[]int32"),
        Field("adding_replicas", "[]int32"),
        Field("removing_replicas", "[]int32"),
    ),
)

LIST_CONFIG_RESOURCES_REQUEST = message(
    "ListConfigResourcesRequest", "0+", Field("resource_types", "[]int8", "1+")
)

LIST_CONFIG_RESOURCES_RESPONSE = message(
    "ListConfigResourcesResponse",
    "0+",
    _THROTTLE,
    Field("error_code", "int16"),
    structs(
        "config_resources",
        Field("resource_name", "string"),
        Field("resource_type", "int8", "1+", default=16, ignorable=True),
    ),
)

_QUORUM_REPLICA = (
    Field("replica_id", "int32"),
    Field("replica_directory_id", "uuid", "2+", ignorable=True),
    Field("log_end_offset", "int64"),
    Field("last_fetch_timestamp", "int64", "1+", default=-1, ignorable=True),
    Field("last_caught_up_timestamp", "int64", "1+", default=-1, ignorable=True),
)

DESCRIBE_QUORUM_REQUEST = message(
    "DescribeQuorumRequest",
    "0+",
    structs(
        "topics", Field("topic_name", "string"), structs("partitions", Field("partition_index", "int32"))
    ),
)

DESCRIBE_QUORUM_RESPONSE = message(
    "DescribeQuorumResponse",
    "0+",
    Field("error_code", "int16"),
    Field("error_message", "string", "2+", nullable="2+", ignorable=True),
    structs(
        "topics",
        Field("topic_name", "string"),
        structs(
            "partitions",
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", "2+", nullable="2+", ignorable=True),
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32"),
            Field("high_watermark", "int64"),
            structs("current_voters", *_QUORUM_REPLICA),
            structs("observers", *_QUORUM_REPLICA),
        ),
    ),
    structs(
        "nodes",
        Field("node_id", "int32", "2+"),
        structs(
            "listeners",
            Field("name", "string", "2+"),
            Field("host", "string", "2+"),
            Field("port", "uint16", "2+"),
            versions="2+",
        ),
        ignorable=True,
        versions="2+",
    ),
)

UPDATE_FEATURES_REQUEST = message(
    "UpdateFeaturesRequest",
    "0+",
    _TIMEOUT,
    structs(
        "feature_updates",
        Field("feature", "string"),
        Field("max_version_level", "int16"),
        Field("allow_downgrade", "bool", "0"),
        Field("upgrade_type", "int8", "1+", default=1),
    ),
    Field("validate_only", "bool", "1+"),
)

UPDATE_FEATURES_RESPONSE = message(
    "UpdateFeaturesResponse",
    "0+",
    _THROTTLE,
    *ERROR,
    structs("results", Field("feature", "string"), *ERROR, ignorable=True, versions="0-1"),
)

UNREGISTER_BROKER_REQUEST = message("UnregisterBrokerRequest", "0+", Field("broker_id", "int32"))

UNREGISTER_BROKER_RESPONSE = message("UnregisterBrokerResponse", "0+", _THROTTLE, *ERROR)
