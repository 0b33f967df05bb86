"""ApiVersions, Metadata and DescribeCluster, a client's first requests, and DescribeTopicPartitions.

Declarations only. Source: the JSON definitions of the same names (KIP-430, KIP-511, KIP-516, KIP-584,
KIP-700, KIP-919, KIP-966, KIP-1073, KIP-1102).
"""

from tidelog.protocol.messages.declaration import Field, message, struct, structs

NO_AUTHORIZED_OPERATIONS = -2147483648
"""The bit field of authorized operations if the client did not request it."""

API_VERSIONS_REQUEST = message(
    "ApiVersionsRequest",
    "3+",
    Field("client_software_name", "string", "3+", ignorable=True),
    Field("client_software_version", "string", "3+", ignorable=True),
)

API_VERSIONS_RESPONSE = message(
    "ApiVersionsResponse",
    "3+",
    Field("error_code", "int16"),
    structs(
        "api_keys", Field("api_key", "int16"), Field("min_version", "int16"), Field("max_version", "int16")
    ),
    Field("throttle_time_ms", "int32", "1+", ignorable=True),
    structs(
        "supported_features",
        Field("name", "string", "3+"),
        Field("min_version", "int16", "3+"),
        Field("max_version", "int16", "3+"),
        ignorable=True,
        tag=0,
        versions="3+",
    ),
    Field("finalized_features_epoch", "int64", "3+", default=-1, ignorable=True, tag=1),
    structs(
        "finalized_features",
        Field("name", "string", "3+"),
        Field("max_version_level", "int16", "3+"),
        Field("min_version_level", "int16", "3+"),
        ignorable=True,
        tag=2,
        versions="3+",
    ),
    Field("zk_migration_ready", "bool", "3+", default=False, ignorable=True, tag=3),
)

METADATA_REQUEST = message(
    "MetadataRequest",
    "9+",
    structs(
        "topics",
        Field("topic_id", "uuid", "10+", ignorable=True),
        Field("name", "string", nullable="10+"),
        nullable="1+",
    ),
    Field("allow_auto_topic_creation", "bool", "4+", default=True),
    Field("include_cluster_authorized_operations", "bool", "8-10"),
    Field("include_topic_authorized_operations", "bool", "8+"),
)

METADATA_RESPONSE = message(
    "MetadataResponse",
    "9+",
    Field("throttle_time_ms", "int32", "3+", ignorable=True),
    structs(
        "brokers",
        Field("node_id", "int32"),
        Field("host", "string"),
        Field("port", "int32"),
        Field("rack", "string", "1+", nullable="1+", default=None, ignorable=True),
    ),
    Field("cluster_id", "string", "2+", nullable="2+", default=None, ignorable=True),
    Field("controller_id", "int32", "1+", default=-1, ignorable=True),
    structs(
        "topics",
        Field("error_code", "int16"),
        Field("name", "string", nullable="12+"),
        Field("topic_id", "uuid", "10+", ignorable=True),
        Field("is_internal", "bool", "1+", default=False, ignorable=True),
        structs(
            "partitions",
            Field("error_code", "int16"),
            Field("partition_index", "int32"),
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32", "7+", default=-1, ignorable=True),
            Field("replica_nodes", "[]int32"),
            Field("isr_nodes", "[]int32"),
            Field("offline_replicas", "[]int32", "5+", ignorable=True),
        ),
        Field("topic_authorized_operations", "int32", "8+", default=NO_AUTHORIZED_OPERATIONS),
    ),
    Field("cluster_authorized_operations", "int32", "8-10", default=NO_AUTHORIZED_OPERATIONS),
    Field("error_code", "int16", "13+", ignorable=True),
)

DESCRIBE_CLUSTER_REQUEST = message(
    "DescribeClusterRequest",
    "0+",
    Field("include_cluster_authorized_operations", "bool"),
    Field("endpoint_type", "int8", "1+", default=1),
    Field("include_fenced_brokers", "bool", "2+"),
)

DESCRIBE_CLUSTER_RESPONSE = message(
    "DescribeClusterResponse",
    "0+",
    Field("throttle_time_ms", "int32"),
    Field("error_code", "int16"),
    Field("error_message", "string", nullable="0+", default=None),
    Field("endpoint_type", "int8", "1+", default=1),
    Field("cluster_id", "string"),
    Field("controller_id", "int32", default=-1),
    structs(
        "brokers",
        Field("broker_id", "int32"),
        Field("host", "string"),
        Field("port", "int32"),
        Field("rack", "string", nullable="0+", default=None),
        Field("is_fenced", "bool", "2+"),
    ),
    Field("cluster_authorized_operations", "int32", default=NO_AUTHORIZED_OPERATIONS),
)

_CURSOR = (Field("topic_name", "string"), Field("partition_index", "int32"))

DESCRIBE_TOPIC_PARTITIONS_REQUEST = message(
    "DescribeTopicPartitionsRequest",
    "0+",
    structs("topics", Field("name", "string")),
    Field("response_partition_limit", "int32", default=2000),
    struct("cursor", *_CURSOR, nullable="0+", default=None),
)

DESCRIBE_TOPIC_PARTITIONS_RESPONSE = message(
    "DescribeTopicPartitionsResponse",
    "0+",
    Field("throttle_time_ms", "int32", ignorable=True),
    structs(
        "topics",
        Field("error_code", "int16"),
        Field("name", "string", nullable="0+"),
        Field("topic_id", "uuid", ignorable=True),
        Field("is_internal", "bool", default=False, ignorable=True),
        structs(
            "partitions",
            Field("error_code", "int16"),
            Field("partition_index", "int32"),
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32", default=-1, ignorable=True),
            Field("replica_nodes", "[]int32"),
            Field("isr_nodes", "[]int32"),
            Field("eligible_leader_replicas", "[]int32", nullable="0+", default=None),
            Field("last_known_elr", "[]int32", nullable="0+", default=None),
            Field("offline_replicas", "[]int32", ignorable=True),
        ),
        Field("topic_authorized_operations", "int32", default=NO_AUTHORIZED_OPERATIONS),
    ),
    struct("next_cursor", *_CURSOR, nullable="0+", default=None),
)
