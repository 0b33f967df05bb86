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
    path: str  # Absolute; only the one data folder of the broker is accepted.
    topics: list[AlterReplicaLogDirsRequestTopic]


class AlterReplicaLogDirsRequest(Struct, flexible="2+"):
    dirs: list[AlterReplicaLogDirsRequestDir]  # Of several folders for one partition the last counts.


class AlterReplicaLogDirsResponseResult(Struct):
    topic_name: str
    partitions: list[PartitionError]


class AlterReplicaLogDirsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    results: list[AlterReplicaLogDirsResponseResult]


class DescribeLogDirsRequest(Struct, flexible="2+"):
    topics: list[PartitionsByName] | None  # Null: all topics.


class DescribeLogDirsResponsePartition(Struct):
    partition_index: Int32
    partition_size: Int64  # Bytes of the log's segments.
    offset_lag: Int64  # How many records the replica is behind; always 0 here.
    is_future_key: bool  # Whether it is a copy that will replace the replica; always false here.


class DescribeLogDirsResponseTopic(Struct):
    name: str
    partitions: list[DescribeLogDirsResponsePartition]


class DescribeLogDirsResponseResult(Struct):
    error_code: Int16
    log_dir: str  # The absolute path of the data folder.
    topics: list[DescribeLogDirsResponseTopic]  # Only those with a replica in the folder.
    total_bytes: Int64 = field("4+", default=-1, ignorable=True)  # Size of the volume; -1: unknown.
    usable_bytes: Int64 = field("4+", default=-1, ignorable=True)  # Free space on the volume; -1: unknown.


class DescribeLogDirsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16 = field("3+", ignorable=True)
    results: list[DescribeLogDirsResponseResult]  # One, of the data folder.


class ElectLeadersRequest(Struct, flexible="2+"):
    election_type: Int8 = field("1+")  # 0: preferred replica, 1: any replica that is left.
    topic_partitions: list[PartitionsByName] | None  # Null: all partitions.
    timeout_ms: Int32 = field(default=60_000)  # How long the election may take; ignored here.


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
    replicas: list[Int32] | None = field(default=None)  # The first leads if it can. Null: cancel the move.


class AlterPartitionReassignmentsRequestTopic(Struct):
    name: str
    partitions: list[AlterPartitionReassignmentsRequestPartition]


class AlterPartitionReassignmentsRequest(Struct, flexible="0+"):
    timeout_ms: Int32 = field(default=60_000)  # How long the change may take; ignored here.
    allow_replication_factor_change: bool = field("1+", default=True)  # False: their number must stay.
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
    allow_replication_factor_change: bool = field("1+", default=True, ignorable=True)  # Always true here.
    error_code: Int16
    error_message: str | None
    responses: list[AlterPartitionReassignmentsResponseResponse]


class ListPartitionReassignmentsRequestTopic(Struct):
    name: str
    partition_indexes: list[Int32]


class ListPartitionReassignmentsRequest(Struct, flexible="0+"):
    timeout_ms: Int32 = field(default=60_000)  # How long the look-up may take; ignored here.
    topics: list[ListPartitionReassignmentsRequestTopic] | None = field(default=None)  # Null: all topics.


class ListPartitionReassignmentsResponsePartition(Struct):
    partition_index: Int32
    replicas: list[Int32]  # All of them, also those that are added or removed.
    adding_replicas: list[Int32]  # Those that get a copy now.
    removing_replicas: list[Int32]  # Those that go once the others are in sync.


class ListPartitionReassignmentsResponseTopic(Struct):
    name: str
    partitions: list[ListPartitionReassignmentsResponsePartition]


class ListPartitionReassignmentsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    topics: list[ListPartitionReassignmentsResponseTopic]  # Only what is being reassigned now.


class ListConfigResourcesRequest(Struct, flexible="0+"):
    resource_types: list[Int8] = field("1+")  # 2: topic, 4: broker, 16: metrics, 32: group; empty: all.


class ListConfigResourcesResponseConfigResource(Struct):
    resource_name: str
    resource_type: Int8 = field("1+", default=16, ignorable=True)  # As in the request; 16 in version 0.


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
    topics: list[DescribeQuorumRequestTopic]  # Only partition 0 of __cluster_metadata exists.


class DescribeQuorumResponseCurrentVoter(Struct):
    replica_id: Int32  # The id of the controller.
    replica_directory_id: UUID = field("2+", ignorable=True)  # The log directory; the zero uuid here.
    log_end_offset: Offset  # The revision of the catalog.
    last_fetch_timestamp: TimestampMs = field("1+", default=-1, ignorable=True)  # -1: unknown, as here.
    last_caught_up_timestamp: TimestampMs = field("1+", default=-1, ignorable=True)  # -1: unknown, as here.


class DescribeQuorumResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = field("2+", ignorable=True)
    leader_id: Int32  # The controller; -1: there is none now.
    leader_epoch: LeaderEpoch  # Always 0 here.
    high_watermark: Offset  # The revision of the catalog.
    current_voters: list[DescribeQuorumResponseCurrentVoter]  # The controller alone.
    observers: list[DescribeQuorumResponseCurrentVoter]  # Always empty here.


class DescribeQuorumResponseTopic(Struct):
    topic_name: str
    partitions: list[DescribeQuorumResponsePartition]


class DescribeQuorumResponseListener(Struct):
    name: str = field("2+")
    host: str = field("2+")
    port: Uint16 = field("2+")


class DescribeQuorumResponseNode(Struct):
    node_id: Int32 = field("2+")  # Of each broker of the cluster.
    listeners: list[DescribeQuorumResponseListener] = field("2+")


class DescribeQuorumResponse(Struct, flexible="0+"):
    error_code: Int16
    error_message: str | None = field("2+", ignorable=True)
    topics: list[DescribeQuorumResponseTopic]
    nodes: list[DescribeQuorumResponseNode] = field("2+", ignorable=True)


class UpdateFeaturesRequestFeatureUpdate(Struct):
    feature: str
    max_version_level: Int16  # The version that is to hold; only the present one is accepted.
    allow_downgrade: bool = field("0")  # Whether it may be lower than now; ignored here.
    upgrade_type: Int8 = field("1+", default=1)  # 1: upgrade, 2: safe downgrade, 3: unsafe; ignored here.


class UpdateFeaturesRequest(Struct, flexible="0+"):
    timeout_ms: Int32 = field(default=60_000)  # How long the change may take; ignored here.
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
    broker_id: Int32  # Of a broker that is gone for ever.


class UnregisterBrokerResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
