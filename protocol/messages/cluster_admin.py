"""APIs to operate a cluster: log folders, leaders, reassignments, quorum, features, telemetry.

Declarations only. Source: the JSON definitions of the same names (KIP-113, KIP-183, KIP-455, KIP-460,
KIP-584, KIP-595, KIP-714, KIP-827, KIP-836, KIP-853, KIP-1142).
"""

from tidelog.protocol.messages.declaration import Field, Message

_THROTTLE = Field("throttle_time_ms", "int32", "0+")
_TIMEOUT = Field("timeout_ms", "int32", "0+", default=60_000)
_ERROR = (Field("error_code", "int16", "0+"), Field("error_message", "string", "0+", nullable="0+"))

DESCRIBE_LOG_DIRS_REQUEST = Message(
    "DescribeLogDirsRequest",
    flexible="2+",
    fields=(
        Field(
            "topics",
            "[]struct",
            "0+",
            nullable="0+",
            fields=(Field("topic", "string", "0+"), Field("partitions", "[]int32", "0+")),
        ),
    ),
)

DESCRIBE_LOG_DIRS_RESPONSE = Message(
    "DescribeLogDirsResponse",
    flexible="2+",
    fields=(
        _THROTTLE,
        Field("error_code", "int16", "3+", ignorable=True),
        Field(
            "results",
            "[]struct",
            "0+",
            fields=(
                Field("error_code", "int16", "0+"),
                Field("log_dir", "string", "0+"),
                Field(
                    "topics",
                    "[]struct",
                    "0+",
                    fields=(
                        Field("name", "string", "0+"),
                        Field(
                            "partitions",
                            "[]struct",
                            "0+",
                            fields=(
                                Field("partition_index", "int32", "0+"),
                                Field("partition_size", "int64", "0+"),
                                Field("offset_lag", "int64", "0+"),
                                Field("is_future_key", "bool", "0+"),
                            ),
                        ),
                    ),
                ),
                Field("total_bytes", "int64", "4+", default=-1, ignorable=True),
                Field("usable_bytes", "int64", "4+", default=-1, ignorable=True),
            ),
        ),
    ),
)

ELECT_LEADERS_REQUEST = Message(
    "ElectLeadersRequest",
    flexible="2+",
    fields=(
        Field("election_type", "int8", "1+"),
        Field(
            "topic_partitions",
            "[]struct",
            "0+",
            nullable="0+",
            fields=(Field("topic", "string", "0+"), Field("partitions", "[]int32", "0+")),
        ),
        _TIMEOUT,
    ),
)

ELECT_LEADERS_RESPONSE = Message(
    "ElectLeadersResponse",
    flexible="2+",
    fields=(
        _THROTTLE,
        Field("error_code", "int16", "1+", ignorable=True),
        Field(
            "replica_election_results",
            "[]struct",
            "0+",
            fields=(
                Field("topic", "string", "0+"),
                Field(
                    "partition_result",
                    "[]struct",
                    "0+",
                    fields=(Field("partition_id", "int32", "0+"), *_ERROR),
                ),
            ),
        ),
    ),
)

ALTER_PARTITION_REASSIGNMENTS_REQUEST = Message(
    "AlterPartitionReassignmentsRequest",
    flexible="0+",
    fields=(
        _TIMEOUT,
        Field("allow_replication_factor_change", "bool", "1+", default=True),
        Field(
            "topics",
            "[]struct",
            "0+",
            fields=(
                Field("name", "string", "0+"),
                Field(
                    "partitions",
                    "[]struct",
                    "0+",
                    fields=(
                        Field("partition_index", "int32", "0+"),
                        Field("replicas", "[]int32", "0+", nullable="0+", default=None),
                    ),
                ),
            ),
        ),
    ),
)

ALTER_PARTITION_REASSIGNMENTS_RESPONSE = Message(
    "AlterPartitionReassignmentsResponse",
    flexible="0+",
    fields=(
        _THROTTLE,
        Field("allow_replication_factor_change", "bool", "1+", default=True, ignorable=True),
        *_ERROR,
        Field(
            "responses",
            "[]struct",
            "0+",
            fields=(
                Field("name", "string", "0+"),
                Field(
                    "partitions",
                    "[]struct",
                    "0+",
                    fields=(Field("partition_index", "int32", "0+"), *_ERROR),
                ),
            ),
        ),
    ),
)

LIST_PARTITION_REASSIGNMENTS_REQUEST = Message(
    "ListPartitionReassignmentsRequest",
    flexible="0+",
    fields=(
        _TIMEOUT,
        Field(
            "topics",
            "[]struct",
            "0+",
            nullable="0+",
            default=None,
            fields=(Field("name", "string", "0+"), Field("partition_indexes", "[]int32", "0+")),
        ),
    ),
)

LIST_PARTITION_REASSIGNMENTS_RESPONSE = Message(
    "ListPartitionReassignmentsResponse",
    flexible="0+",
    fields=(
        _THROTTLE,
        *_ERROR,
        Field(
            "topics",
            "[]struct",
            "0+",
            fields=(
                Field("name", "string", "0+"),
                Field(
                    "partitions",
                    "[]struct",
                    "0+",
                    fields=(
                        Field("partition_index", "int32", "0+"),
                        Field("replicas", "[]int32", "0+"),
                        Field("adding_replicas", "[]int32", "0+"),
                        Field("removing_replicas", "[]int32", "0+"),
                    ),
                ),
            ),
        ),
    ),
)

LIST_CONFIG_RESOURCES_REQUEST = Message(
    "ListConfigResourcesRequest",
    flexible="0+",
    fields=(Field("resource_types", "[]int8", "1+"),),
)

LIST_CONFIG_RESOURCES_RESPONSE = Message(
    "ListConfigResourcesResponse",
    flexible="0+",
    fields=(
        _THROTTLE,
        Field("error_code", "int16", "0+"),
        Field(
            "config_resources",
            "[]struct",
            "0+",
            fields=(
                Field("resource_name", "string", "0+"),
                Field("resource_type", "int8", "1+", default=16, ignorable=True),
            ),
        ),
    ),
)

_QUORUM_REPLICA = (
    Field("replica_id", "int32", "0+"),
    Field("replica_directory_id", "uuid", "2+", ignorable=True),
    Field("log_end_offset", "int64", "0+"),
    Field("last_fetch_timestamp", "int64", "1+", default=-1, ignorable=True),
    Field("last_caught_up_timestamp", "int64", "1+", default=-1, ignorable=True),
)

DESCRIBE_QUORUM_REQUEST = Message(
    "DescribeQuorumRequest",
    flexible="0+",
    fields=(
        Field(
            "topics",
            "[]struct",
            "0+",
            fields=(
                Field("topic_name", "string", "0+"),
                Field("partitions", "[]struct", "0+", fields=(Field("partition_index", "int32", "0+"),)),
            ),
        ),
    ),
)

DESCRIBE_QUORUM_RESPONSE = Message(
    "DescribeQuorumResponse",
    flexible="0+",
    fields=(
        Field("error_code", "int16", "0+"),
        Field("error_message", "string", "2+", nullable="2+", ignorable=True),
        Field(
            "topics",
            "[]struct",
            "0+",
            fields=(
                Field("topic_name", "string", "0+"),
                Field(
                    "partitions",
                    "[]struct",
                    "0+",
                    fields=(
                        Field("partition_index", "int32", "0+"),
                        Field("error_code", "int16", "0+"),
                        Field("error_message", "string", "2+", nullable="2+", ignorable=True),
                        Field("leader_id", "int32", "0+"),
                        Field("leader_epoch", "int32", "0+"),
                        Field("high_watermark", "int64", "0+"),
                        Field("current_voters", "[]struct", "0+", fields=_QUORUM_REPLICA),
                        Field("observers", "[]struct", "0+", fields=_QUORUM_REPLICA),
                    ),
                ),
            ),
        ),
        Field(
            "nodes",
            "[]struct",
            "2+",
            ignorable=True,
            fields=(
                Field("node_id", "int32", "2+"),
                Field(
                    "listeners",
                    "[]struct",
                    "2+",
                    fields=(
                        Field("name", "string", "2+"),
                        Field("host", "string", "2+"),
                        Field("port", "uint16", "2+"),
                    ),
                ),
            ),
        ),
    ),
)

UPDATE_FEATURES_REQUEST = Message(
    "UpdateFeaturesRequest",
    flexible="0+",
    fields=(
        _TIMEOUT,
        Field(
            "feature_updates",
            "[]struct",
            "0+",
            fields=(
                Field("feature", "string", "0+"),
                Field("max_version_level", "int16", "0+"),
                Field("allow_downgrade", "bool", "0"),
                Field("upgrade_type", "int8", "1+", default=1),
            ),
        ),
        Field("validate_only", "bool", "1+"),
    ),
)

UPDATE_FEATURES_RESPONSE = Message(
    "UpdateFeaturesResponse",
    flexible="0+",
    fields=(
        _THROTTLE,
        *_ERROR,
        Field(
            "results",
            "[]struct",
            "0-1",
            ignorable=True,
            fields=(Field("feature", "string", "0+"), *_ERROR),
        ),
    ),
)

GET_TELEMETRY_SUBSCRIPTIONS_REQUEST = Message(
    "GetTelemetrySubscriptionsRequest",
    flexible="0+",
    fields=(Field("client_instance_id", "uuid", "0+"),),
)

GET_TELEMETRY_SUBSCRIPTIONS_RESPONSE = Message(
    "GetTelemetrySubscriptionsResponse",
    flexible="0+",
    fields=(
        _THROTTLE,
        Field("error_code", "int16", "0+"),
        Field("client_instance_id", "uuid", "0+"),
        Field("subscription_id", "int32", "0+"),
        Field("accepted_compression_types", "[]int8", "0+"),
        Field("push_interval_ms", "int32", "0+"),
        Field("telemetry_max_bytes", "int32", "0+"),
        Field("delta_temporality", "bool", "0+"),
        Field("requested_metrics", "[]string", "0+"),
    ),
)
