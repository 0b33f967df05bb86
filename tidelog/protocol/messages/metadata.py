"""ApiVersions, Metadata and DescribeCluster, a client's first requests, and DescribeTopicPartitions.

Declarations only. Source: the JSON definitions of the same names (KIP-430, KIP-511, KIP-516, KIP-584,
KIP-700, KIP-919, KIP-966, KIP-1073, KIP-1102).
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Int64, Struct, field
from tidelog.protocol.types import LeaderEpoch

NO_AUTHORIZED_OPERATIONS = -2147483648


class ApiVersionsRequest(Struct, flexible="3+"):
    client_software_name: str = field("3+", ignorable=True)  # Of the client's library (KIP-511).
    client_software_version: str = field("3+", ignorable=True)


class ApiVersionsResponseApiKey(Struct):
    api_key: Int16  # A number of `protocol.schema.ApiKey`.
    min_version: Int16
    max_version: Int16  # Inclusive.


class ApiVersionsResponseSupportedFeature(Struct):
    name: str = field("3+")  # For example transaction.version (KIP-584).
    min_version: Int16 = field("3+")
    max_version: Int16 = field("3+")


class ApiVersionsResponseFinalizedFeature(Struct):
    name: str = field("3+")
    max_version_level: Int16 = field("3+")  # The version that holds in the cluster.
    min_version_level: Int16 = field("3+")  # The same as max_version_level here.


class ApiVersionsResponse(Struct, flexible="3+"):
    error_code: Int16
    api_keys: list[ApiVersionsResponseApiKey]
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    supported_features: list[ApiVersionsResponseSupportedFeature] = field("3+", ignorable=True, tag=0)
    finalized_features_epoch: Int64 = field("3+", default=-1, ignorable=True, tag=1)  # -1: unknown.
    finalized_features: list[ApiVersionsResponseFinalizedFeature] = field("3+", ignorable=True, tag=2)
    zk_migration_ready: bool = field("3+", default=False, ignorable=True, tag=3)  # Of ZooKeeper; never true.


class MetadataRequestTopic(Struct):
    topic_id: UUID = field("10+", ignorable=True)  # It decides, if it is not the zero uuid (KIP-516).
    name: str | None = field(nullable="10+")  # Ignored beside an id.


class MetadataRequest(Struct, flexible="9+"):
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")  # Null, or in version 0 empty: all.
    allow_auto_topic_creation: bool = field("4+", default=True)  # Whether to create what is missing.
    include_cluster_authorized_operations: bool = field("8-10")  # Whether to say what the user may do.
    include_topic_authorized_operations: bool = field("8+")  # Whether to say what the user may do.


class MetadataResponseBroker(Struct):
    node_id: Int32
    host: str  # Of the listener by which the request came.
    port: Int32
    rack: str | None = field("1+", default=None, ignorable=True)  # Null: the broker has none.


class MetadataResponsePartition(Struct):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32  # -1: there is none now.
    leader_epoch: LeaderEpoch = field("7+", default=-1, ignorable=True)  # Counts the leaders.
    replica_nodes: list[Int32]  # The first is preferred as leader.
    isr_nodes: list[Int32]  # The replicas that are in sync with the leader.
    offline_replicas: list[Int32] = field("5+", ignorable=True)  # Replicas whose broker does not run.


class MetadataResponseTopic(Struct):
    error_code: Int16
    name: str | None = field(nullable="12+")  # Null: an id that the user may not see. Empty: unknown id.
    topic_id: UUID = field("10+", ignorable=True)  # The zero uuid: the name is unknown, or refused.
    is_internal: bool = field("1+", default=False, ignorable=True)  # Whether brokers keep state in it.
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field("8+", default=-2147483648)


class MetadataResponse(Struct, flexible="9+"):
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None = field("2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)  # -1: there is none now.
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field("8-10", default=-2147483648)
    error_code: Int16 = field("13+", ignorable=True)  # Of the request as a whole (KIP-1102).


class DescribeClusterRequest(Struct, flexible="0+"):
    include_cluster_authorized_operations: bool  # Whether to say what the user may do.
    endpoint_type: Int8 = field("1+", default=1)  # 1: brokers, 2: controllers, which is refused here.
    include_fenced_brokers: bool = field("2+")  # Whether to name brokers that are fenced too.


class DescribeClusterResponseBroker(Struct):
    broker_id: Int32
    host: str  # Of the listener by which the request came.
    port: Int32
    rack: str | None = field(default=None)  # Null: the broker has none.
    is_fenced: bool = field("2+")  # Whether the broker may not lead or serve now.


class DescribeClusterResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    endpoint_type: Int8 = field("1+", default=1)  # As in the request.
    cluster_id: str
    controller_id: Int32 = field(default=-1)  # -1: there is none now.
    brokers: list[DescribeClusterResponseBroker]
    cluster_authorized_operations: Int32 = field(default=-2147483648)


class DescribeTopicPartitionsRequestTopic(Struct):
    name: str


class TopicPartitionsCursor(Struct):
    topic_name: str  # Of the first topic that is wanted.
    partition_index: Int32  # Its first partition that is wanted.


class DescribeTopicPartitionsRequest(Struct, flexible="0+"):
    topics: list[DescribeTopicPartitionsRequestTopic]  # Empty: all topics.
    response_partition_limit: Int32 = field(default=2000)  # The broker has a limit of its own too.
    cursor: TopicPartitionsCursor | None = field(default=None)  # Where to go on; null: at the start.


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32  # -1: there is none now.
    leader_epoch: LeaderEpoch = field(default=-1, ignorable=True)  # Counts the leaders.
    replica_nodes: list[Int32]  # The first is preferred as leader.
    isr_nodes: list[Int32]  # The replicas that are in sync with the leader.
    eligible_leader_replicas: list[Int32] | None = field(default=None)  # Not in sync, but may lead (KIP-966).
    last_known_elr: list[Int32] | None = field(default=None)  # Always empty here.
    offline_replicas: list[Int32] = field(ignorable=True)  # Replicas whose broker does not run.


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16
    name: str | None
    topic_id: UUID = field(ignorable=True)
    is_internal: bool = field(default=False, ignorable=True)  # Whether brokers keep their own state in it.
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = field(default=-2147483648)


class DescribeTopicPartitionsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: TopicPartitionsCursor | None = field(default=None)  # Null: there are no more.
