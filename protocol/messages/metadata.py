"""ApiVersions, Metadata and DescribeCluster, a client's first requests, and DescribeTopicPartitions.

Declarations only. Source: ApiVersionsRequest.json, ApiVersionsResponse.json, MetadataRequest.json,
MetadataResponse.json, DescribeClusterRequest.json, DescribeClusterResponse.json,
DescribeTopicPartitionsRequest.json, DescribeTopicPartitionsResponse.json (KIP-430, KIP-511, KIP-516, KIP-584,
KIP-700, KIP-919, KIP-966).
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
    Field("error_code", "int16", "0+"),
    structs(
        "api_keys",
        "0+",
        Field("api_key", "int16", "0+"),
        Field("min_version", "int16", "0+"),
        Field("max_version", "int16", "0+"),
    ),
    Field("throttle_time_ms", "int32", "1+", ignorable=True),
    structs(
        "supported_features",
        "3+",
        Field("name", "string", "3+"),
        Field("min_version", "int16", "3+"),
        Field("max_version", "int16", "3+"),
        ignorable=True,
        tag=0,
    ),
    Field("finalized_features_epoch", "int64", "3+", default=-1, ignorable=True, tag=1),
    structs(
        "finalized_features",
        "3+",
        Field("name", "string", "3+"),
        Field("max_version_level", "int16", "3+"),
        Field("min_version_level", "int16", "3+"),
        ignorable=True,
        tag=2,
    ),
    Field("zk_migration_ready", "bool", "3+", default=False, ignorable=True, tag=3),
)

METADATA_REQUEST = message(
    "MetadataRequest",
    "9+",
    structs(
        "topics",
        "0+",
        Field("topic_id", "uuid", "10+", ignorable=True),
        Field("name", "string", "0+", nullable="10+"),
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
        "0+",
        Field("node_id", "int32", "0+"),
        Field("host", "string", "0+"),
        Field("port", "int32", "0+"),
        Field("rack", "string", "1+", nullable="1+", default=None, ignorable=True),
    ),
    Field("cluster_id", "string", "2+", nullable="2+", default=None, ignorable=True),
    Field("controller_id", "int32", "1+", default=-1, ignorable=True),
    structs(
        "topics",
        "0+",
        Field("error_code", "int16", "0+"),
        Field("name", "string", "0+", nullable="12+"),
        Field("topic_id", "uuid", "10+", ignorable=True),
        Field("is_internal", "bool", "1+", default=False, ignorable=True),
        structs(
            "partitions",
            "0+",
            Field("error_code", "int16", "0+"),
            Field("partition_index", "int32", "0+"),
            Field("leader_id", "int32", "0+"),
            Field("leader_epoch", "int32", "7+", default=-1, ignorable=True),
            Field("replica_nodes", "[]int32", "0+"),
            Field("isr_nodes", "[]int32", "0+"),
            Field("offline_replicas", "[]int32", "5+", ignorable=True),
        ),
        Field("topic_authorized_operations", "int32", "8+", default=NO_AUTHORIZED_OPERATIONS),
    ),
    Field("cluster_authorized_operations", "int32", "8-10", default=NO_AUTHORIZED_OPERATIONS),
)

DESCRIBE_CLUSTER_REQUEST = message(
    "DescribeClusterRequest",
    "0+",
    Field("include_cluster_authorized_operations", "bool", "0+"),
    Field("endpoint_type", "int8", "1+", default=1),
)

DESCRIBE_CLUSTER_RESPONSE = message(
    "DescribeClusterResponse",
    "0+",
    Field("throttle_time_ms", "int32", "0+"),
    Field("error_code", "int16", "0+"),
    Field("error_message", "string", "0+", nullable="0+", default=None),
    Field("endpoint_type", "int8", "1+", default=1),
    Field("cluster_id", "string", "0+"),
    Field("controller_id", "int32", "0+", default=-1),
    structs(
        "brokers",
        "0+",
        Field("broker_id", "int32", "0+"),
        Field("host", "string", "0+"),
        Field("port", "int32", "0+"),
        Field("rack", "string", "0+", nullable="0+", default=None),
    ),
    Field("cluster_authorized_operations", "int32", "0+", default=NO_AUTHORIZED_OPERATIONS),
)

_CURSOR = (Field("topic_name", "string", "0+"), Field("partition_index", "int32", "0+"))

DESCRIBE_TOPIC_PARTITIONS_REQUEST = message(
    "DescribeTopicPartitionsRequest",
    "0+",
    structs("topics", "0+", Field("name", "string", "0+")),
    Field("response_partition_limit", "int32", "0+", default=2000),
    struct("cursor", "0+", *_CURSOR, nullable="0+", default=None),
)

DESCRIBE_TOPIC_PARTITIONS_RESPONSE = message(
    "DescribeTopicPartitionsResponse",
    "0+",
    Field("throttle_time_ms", "int32", "0+", ignorable=True),
    structs(
        "topics",
        "0+",
        Field("error_code", "int16", "0+"),
        Field("name", "string", "0+", nullable="0+"),
        Field("topic_id", "uuid", "0+", ignorable=True),
        Field("is_internal", "bool", "0+", default=False, ignorable=True),
        structs(
            "partitions",
            "0+",
            Field("error_code", "int16", "0+"),
            Field("partition_index", "int32", "0+"),
            Field("leader_id", "int32", "0+"),
            Field("leader_epoch", "int32", "0+", default=-1, ignorable=True),
            Field("replica_nodes", "[]int32", "0+"),
            Field("isr_nodes", "[]int32", "0+"),
            Field("eligible_leader_replicas", "[]int32", "0+", nullable="0+", default=None),
            Field("last_known_elr", "[]int32", "0+", nullable="0+", default=None),
            Field("offline_replicas", "[]int32", "0+", ignorable=True),
        ),
        Field("topic_authorized_operations", "int32", "0+", default=NO_AUTHORIZED_OPERATIONS),
    ),
    struct("next_cursor", "0+", *_CURSOR, nullable="0+", default=None),
)
