"""APIs to operate a cluster: log folders, leaders, reassignments, quorum, features, telemetry.

Declarations only. Source: the JSON definitions of the same names (KIP-113, KIP-183, KIP-455, KIP-460,
KIP-584, KIP-595, KIP-714, KIP-827, KIP-836, KIP-853, KIP-1142).
"""

from tidelog.protocol.messages.declaration import ERROR, Field, message, structs

_THROTTLE = Field("throttle_time_ms", "int32", "0+")
_TIMEOUT = Field("timeout_ms", "int32", "0+", default=60_000)
DESCRIBE_LOG_DIRS_REQUEST = message(
    "DescribeLogDirsRequest",
    "2+",
    structs(
        "topics", "0+", Field("topic", "string", "0+"), Field("partitions", "[]int32", "0+"), nullable="0+"
    ),
)

DESCRIBE_LOG_DIRS_RESPONSE = message(
    "DescribeLogDirsResponse",
    "2+",
    _THROTTLE,
    Field("error_code", "int16", "3+", ignorable=True),
    structs(
        "results",
        "0+",
        Field("error_code", "int16", "0+"),
        Field("log_dir", "string", "0+"),
        structs(
            "topics",
            "0+",
            Field("name", "string", "0+"),
            structs(
                "partitions",
                "0+",
                Field("partition_index", "int32", "0+"),
                Field("partition_size", "int64", "0+"),
                Field("offset_lag", "int64", "0+"),
                Field("is_future_key", "bool", "0+"),
            ),
        ),
        Field("total_bytes", "int64", "4+", default=-1, ignorable=True),
        Field("usable_bytes", "int64", "4+", default=-1, ignorable=True),
    ),
)

ELECT_LEADERS_REQUEST = message(
    "ElectLeadersRequest",
    "2+",
    Field("election_type", "int8", "1+"),
    structs(
        "topic_partitions",
        "0+",
        Field("topic", "string", "0+"),
        Field("partitions", "[]int32", "0+"),
        nullable="0+",
    ),
    _TIMEOUT,
)

ELECT_LEADERS_RESPONSE = message(
    "ElectLeadersResponse",
    "2+",
    _THROTTLE,
    Field("error_code", "int16", "1+", ignorable=True),
    structs(
        "replica_election_results",
        "0+",
        Field("topic", "string", "0+"),
        structs("partition_result", "0+", Field("partition_id", "int32", "0+"), *ERROR),
    ),
)

ALTER_PARTITION_REASSIGNMENTS_REQUEST = message(
    "AlterPartitionReassignmentsRequest",
    "0+",
    _TIMEOUT,
    Field("allow_replication_factor_change", "bool", "1+", default=True),
    structs(
        "topics",
        "0+",
        Field("name", "string", "0+"),
        structs(
            "partitions",
            "0+",
            Field("partition_index", "int32", "0+"),
            Field("replicas", "[]int32", "0+", nullable="0+", default=None),
        ),
    ),
)

ALTER_PARTITION_REASSIGNMENTS_RESPONSE = message(
    "AlterPartitionReassignmentsResponse",
    "0+",
    _THROTTLE,
    Field("allow_replication_factor_change", "bool", "1+", default=True, ignorable=True),
    *ERROR,
    structs(
        "responses",
        "0+",
        Field("name", "string", "0+"),
        structs("partitions", "0+", Field("partition_index", "int32", "0+"), *ERROR),
    ),
)

LIST_PARTITION_REASSIGNMENTS_REQUEST = message(
    "ListPartitionReassignmentsRequest",
    "0+",
    _TIMEOUT,
    structs(
        "topics",
        "0+",
        Field("name", "string", "0+"),
        Field("partition_indexes", "[]int32", "0+"),
        nullable="0+",
        default=None,
    ),
)

LIST_PARTITION_REASSIGNMENTS_RESPONSE = message(
    "ListPartitionReassignmentsResponse",
    "0+",
    _THROTTLE,
    *ERROR,
    structs(
        "topics",
        "0+",
        Field("name", "string", "0+"),
        structs(
            "partitions",
            "0+",
            Field("partition_index", "int32", "0+"),
            Field("replicas", "[]int32", "0+"),
            Field("adding_replicas", "[]int32", "0+"),
            Field("removing_replicas", "[]int32", "0+"),
        ),
    ),
)

LIST_CONFIG_RESOURCES_REQUEST = message(
    "ListConfigResourcesRequest", "0+", Field("resource_types", "[]int8", "1+")
)

LIST_CONFIG_RESOURCES_RESPONSE = message(
    "ListConfigResourcesResponse",
    "0+",
    _THROTTLE,
    Field("error_code", "int16", "0+"),
    structs(
        "config_resources",
        "0+",
        Field("resource_name", "string", "0+"),
        Field("resource_type", "int8", "1+", default=16, ignorable=True),
    ),
)

_QUORUM_REPLICA = (
    Field("replica_id", "int32", "0+"),
    Field("replica_directory_id", "uuid", "2+", ignorable=True),
    Field("log_end_offset", "int64", "0+"),
    Field("last_fetch_timestamp", "int64", "1+", default=-1, ignorable=True),
    Field("last_caught_up_timestamp", "int64", "1+", default=-1, ignorable=True),
)

DESCRIBE_QUORUM_REQUEST = message(
    "DescribeQuorumRequest",
    "0+",
    structs(
        "topics",
        "0+",
        Field("topic_name", "string", "0+"),
        structs("partitions", "0+", Field("partition_index", "int32", "0+")),
    ),
)

DESCRIBE_QUORUM_RESPONSE = message(
    "DescribeQuorumResponse",
    "0+",
    Field("error_code", "int16", "0+"),
    Field("error_message", "string", "2+", nullable="2+", ignorable=True),
    structs(
        "topics",
        "0+",
        Field("topic_name", "string", "0+"),
        structs(
            "partitions",
            "0+",
            Field("partition_index", "int32", "0+"),
            Field("error_code", "int16", "0+"),
            Field("error_message", "string", "2+", nullable="2+", ignorable=True),
            Field("leader_id", "int32", "0+"),
            Field("leader_epoch", "int32", "0+"),
            Field("high_watermark", "int64", "0+"),
            structs("current_voters", "0+", *_QUORUM_REPLICA),
            structs("observers", "0+", *_QUORUM_REPLICA),
        ),
    ),
    structs(
        "nodes",
        "2+",
        Field("node_id", "int32", "2+"),
        structs(
            "listeners",
            "2+",
            Field("name", "string", "2+"),
            Field("host", "string", "2+"),
            Field("port", "uint16", "2+"),
        ),
        ignorable=True,
    ),
)

UPDATE_FEATURES_REQUEST = message(
    "UpdateFeaturesRequest",
    "0+",
    _TIMEOUT,
    structs(
        "feature_updates",
        "0+",
        Field("feature", "string", "0+"),
        Field("max_version_level", "int16", "0+"),
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
    structs("results", "0-1", Field("feature", "string", "0+"), *ERROR, ignorable=True),
)

GET_TELEMETRY_SUBSCRIPTIONS_REQUEST = message(
    "GetTelemetrySubscriptionsRequest", "0+", Field("client_instance_id", "uuid", "0+")
)

GET_TELEMETRY_SUBSCRIPTIONS_RESPONSE = message(
    "GetTelemetrySubscriptionsResponse",
    "0+",
    _THROTTLE,
    Field("error_code", "int16", "0+"),
    Field("client_instance_id", "uuid", "0+"),
    Field("subscription_id", "int32", "0+"),
    Field("accepted_compression_types", "[]int8", "0+"),
    Field("push_interval_ms", "int32", "0+"),
    Field("telemetry_max_bytes", "int32", "0+"),
    Field("delta_temporality", "bool", "0+"),
    Field("requested_metrics", "[]string", "0+"),
)
