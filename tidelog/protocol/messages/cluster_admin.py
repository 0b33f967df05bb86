"""APIs to operate a cluster: log folders, leaders, reassignments, quorum, features.

Declarations only. Source: the JSON definitions of the same names (KIP-113, KIP-183, KIP-455, KIP-460,
KIP-584, KIP-595, KIP-631, KIP-827, KIP-836, KIP-853, KIP-1142).
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Int64, Struct, Uint16, field
from tidelog.protocol.messages.structs import PartitionError, PartitionsByName
from tidelog.protocol.types import LeaderEpoch, Offset, TimestampMs


class AlterReplicaLogDirsRequestTopic(Struct):
    name: str
    partitions: list[Int32]


class AlterReplicaLogDirsRequestDir(Struct):
    path: str
    topics: list[AlterReplicaLogDirsRequestTopic]


class AlterReplicaLogDirsRequest(Struct, flexible="2+"):
    dirs: list[AlterReplicaLogDirsRequestDir]


class AlterReplicaLogDirsResponseResult(Struct):
    topic_name: str
    partitions: list[PartitionError]


class AlterReplicaLogDirsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    results: list[AlterReplicaLogDirsResponseResult]


class DescribeLogDirsRequest(Struct, flexible="2+"):
    topics: list[PartitionsByName] | None


class DescribeLogDirsResponsePartition(Struct):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64  # How many records the replica is behind.
    is_future_key: bool  # Whether it is a copy that will replace the replica.


class DescribeLogDirsResponseTopic(Struct):
    name: str
    partitions: list[DescribeLogDirsResponsePartition]


class DescribeLogDirsResponseResult(Struct):
    error_code: Int16
    log_dir: str
    topics: list[DescribeLogDirsResponseTopic]
    total_bytes: Int64 = field("4+", default=-1, ignorable=True)
    usable_bytes: Int64 = field("4+", default=-1, ignorable=True)


class DescribeLogDirsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16 = field("3+", ignorable=True)
    results: list[DescribeLogDirsResponseResult]


class ElectLeadersRequest(Struct, flexible="2+"):
    election_type: Int8 = field("1+")  # 0: preferred replica, 1: any replica that is left.
    topic_partitions: list[PartitionsByName] | None
    timeout_ms: Int32 = field(default=60_000)


class ElectLeadersResponsePartitionResult(Struct):
    partition_id: Int32
    error_code: Int16
    error_message: str | None


class ElectLeadersResponseReplicaElectionResult(Struct):
    topic: str
    partition_result: list[ElectLeadersResponsePartitionResult]


class ElectLeadersResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16 = field("1+", ignorable=True)
    replica_election_results: list[ElectLeadersResponseReplicaElectionResult]


class AlterPartitionReassignmentsRequestPartition(Struct):
    partition_index: Int32
    replicas: list[Int32] | None = field(default=None)  # Null: cancel the move.


class AlterPartitionReassignmentsRequestTopic(Struct):
    name: str
    partitions: list[AlterPartitionReassignmentsRequestPartition]


class AlterPartitionReassignmentsRequest(Struct, flexible="0+"):
    timeout_ms: Int32 = field(default=60_000)
    allow_replication_factor_change: bool = field("1+", default=True)
    topics: list[AlterPartitionReassignmentsRequestTopic]


class AlterPartitionReassignmentsResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: str | None


class AlterPartitionReassignmentsResponseResponse(Struct):
    name: str
    partitions: list[AlterPartitionReassignmentsResponsePartition]


class AlterPartitionReassignmentsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    allow_replication_factor_change: bool = field("1+", default=True, ignorable=True)
    error_code: Int16
    error_message: str | None
    responses: list[AlterPartitionReassignmentsResponseResponse]


class ListPartitionReassignmentsRequestTopic(Struct):
    name: str
    partition_indexes: list[Int32]


class ListPartitionReassignmentsRequest(Struct, flexible="0+"):
    timeout_ms: Int32 = field(default=60_000)
    topics: list[ListPartitionReassignmentsRequestTopic] | None = field(default=None)


class ListPartitionReassignmentsResponsePartition(Struct):
    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


class ListPartitionReassignmentsResponseTopic(Struct):
    name: str
    partitions: list[ListPartitionReassignmentsResponsePartition]


class ListPartitionReassignmentsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    topics: list[ListPartitionReassignmentsResponseTopic]


class ListConfigResourcesRequest(Struct, flexible="0+"):
    resource_types: list[Int8] = field("1+")


class ListConfigResourcesResponseConfigResource(Struct):
    resource_name: str
    resource_type: Int8 = field("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    config_resources: list[ListConfigResourcesResponseConfigResource]


class DescribeQuorumRequestPartition(Struct):
    partition_index: Int32


class DescribeQuorumRequestTopic(Struct):
    topic_name: str
    partitions: list[DescribeQuorumRequestPartition]


class DescribeQuorumRequest(Struct, flexible="0+"):
    topics: list[DescribeQuorumRequestTopic]


class DescribeQuorumResponseCurrentVoter(Struct):
    replica_id: Int32
    replica_directory_id: UUID = field("2+", ignorable=True)  # The log directory of the replica.
    log_end_offset: Offset
    last_fetch_timestamp: TimestampMs = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: TimestampMs = field("1+", default=-1, ignorable=True)


class DescribeQuorumResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = field("2+", ignorable=True)
    leader_id: Int32
    leader_epoch: LeaderEpoch
    high_watermark: Offset  # The end of what all in-sync replicas have.
    current_voters: list[DescribeQuorumResponseCurrentVoter]
    observers: list[DescribeQuorumResponseCurrentVoter]


class DescribeQuorumResponseTopic(Struct):
    topic_name: str
    partitions: list[DescribeQuorumResponsePartition]


class DescribeQuorumResponseListener(Struct):
    name: str = field("2+")
    host: str = field("2+")
    port: Uint16 = field("2+")


class DescribeQuorumResponseNode(Struct):
    node_id: Int32 = field("2+")
    listeners: list[DescribeQuorumResponseListener] = field("2+")


class DescribeQuorumResponse(Struct, flexible="0+"):
    error_code: Int16
    error_message: str | None = field("2+", ignorable=True)
    topics: list[DescribeQuorumResponseTopic]
    nodes: list[DescribeQuorumResponseNode] = field("2+", ignorable=True)


class UpdateFeaturesRequestFeatureUpdate(Struct):
    feature: str
    max_version_level: Int16
    allow_downgrade: bool = field("0")
    upgrade_type: Int8 = field("1+", default=1)  # 1: upgrade, 2: safe downgrade, 3: unsafe downgrade.


class UpdateFeaturesRequest(Struct, flexible="0+"):
    timeout_ms: Int32 = field(default=60_000)
    feature_updates: list[UpdateFeaturesRequestFeatureUpdate]
    validate_only: bool = field("1+")  # Check the request, change nothing.


class UpdateFeaturesResponseResult(Struct):
    feature: str
    error_code: Int16
    error_message: str | None


class UpdateFeaturesResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    results: list[UpdateFeaturesResponseResult] = field("0-1", ignorable=True)


class UnregisterBrokerRequest(Struct, flexible="0+"):
    broker_id: Int32


class UnregisterBrokerResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
