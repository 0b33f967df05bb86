"""The types of messages, made from their declarations by tests/unit/protocol/test_message_types.py.

Owns: for each message, a class X: what decoding returns, where every declared field is present; and a dict
XDict: what encoding accepts, where a missing field gets its default. A struct in a message has the message's
name before its own. The requests that a broker decodes, the responses that it encodes; the reverse where a
client or a broker requests the API; keys and values of records. Those that no code names, also not through
another one, are left out. Produce and Fetch have the values of `protocol.hot`.

Invariants: nothing of it exists at run time, so it is imported under TYPE_CHECKING only.
"""

from collections.abc import Sequence
from typing import TypedDict
from uuid import UUID

from tidelog.protocol.types import Buffer, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs

class ListOffsetsRequest:
    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsRequestTopic]
    timeout_ms: int

class ListOffsetsRequestTopic:
    name: str
    partitions: list[ListOffsetsRequestPartition]

class ListOffsetsRequestPartition:
    partition_index: int
    current_leader_epoch: LeaderEpoch
    timestamp: TimestampMs

class ListOffsetsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[ListOffsetsResponseTopicDict]

class ListOffsetsResponseTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[ListOffsetsResponsePartitionDict]

class ListOffsetsResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int

class ListOffsetsRequestDict(TypedDict, total=False):
    replica_id: int
    isolation_level: int
    topics: Sequence[ListOffsetsRequestTopicDict]
    timeout_ms: int

class ListOffsetsRequestTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[ListOffsetsRequestPartitionDict]

class ListOffsetsRequestPartitionDict(TypedDict, total=False):
    partition_index: int
    current_leader_epoch: int
    timestamp: int

class ListOffsetsResponse:
    throttle_time_ms: int
    topics: list[ListOffsetsResponseTopic]

class ListOffsetsResponseTopic:
    name: str
    partitions: list[ListOffsetsResponsePartition]

class ListOffsetsResponsePartition:
    partition_index: int
    error_code: int
    timestamp: TimestampMs
    offset: Offset
    leader_epoch: LeaderEpoch

class MetadataRequest:
    topics: list[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool

class MetadataRequestTopic:
    topic_id: UUID
    name: str | None

class MetadataResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    brokers: Sequence[MetadataResponseBrokerDict]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[MetadataResponseTopicDict]
    cluster_authorized_operations: int
    error_code: int

class MetadataResponseBrokerDict(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None

class MetadataResponseTopicDict(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: Sequence[MetadataResponsePartitionDict]
    topic_authorized_operations: int

class MetadataResponsePartitionDict(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int]

class MetadataRequestDict(TypedDict, total=False):
    topics: Sequence[MetadataRequestTopicDict] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool

class MetadataRequestTopicDict(TypedDict, total=False):
    topic_id: UUID
    name: str | None

class MetadataResponse:
    throttle_time_ms: int
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int

class MetadataResponseBroker:
    node_id: int
    host: str
    port: int
    rack: str | None

class MetadataResponseTopic:
    error_code: int
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: int

class MetadataResponsePartition:
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: LeaderEpoch
    replica_nodes: list[int]
    isr_nodes: list[int]
    offline_replicas: list[int]

class OffsetCommitRequest:
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRequestTopic]

class OffsetCommitRequestTopic:
    name: str
    topic_id: UUID
    partitions: list[OffsetCommitRequestPartition]

class OffsetCommitRequestPartition:
    partition_index: int
    committed_offset: Offset
    committed_leader_epoch: LeaderEpoch
    committed_metadata: str | None

class OffsetCommitResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[OffsetCommitResponseTopicDict]

class OffsetCommitResponseTopicDict(TypedDict, total=False):
    name: str
    topic_id: UUID
    partitions: Sequence[OffsetCommitResponsePartitionDict]

class OffsetCommitResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    error_code: int

class OffsetCommitRequestDict(TypedDict, total=False):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: Sequence[OffsetCommitRequestTopicDict]

class OffsetCommitRequestTopicDict(TypedDict, total=False):
    name: str
    topic_id: UUID
    partitions: Sequence[OffsetCommitRequestPartitionDict]

class OffsetCommitRequestPartitionDict(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None

class OffsetCommitResponse:
    throttle_time_ms: int
    topics: list[OffsetCommitResponseTopic]

class OffsetCommitResponseTopic:
    name: str
    topic_id: UUID
    partitions: list[OffsetCommitResponsePartition]

class OffsetCommitResponsePartition:
    partition_index: int
    error_code: int

class OffsetFetchRequest:
    group_id: str
    topics: list[OffsetFetchRequestTopic] | None
    groups: list[OffsetFetchRequestGroup]
    require_stable: bool

class OffsetFetchRequestTopic:
    name: str
    partition_indexes: list[int]

class OffsetFetchRequestGroup:
    group_id: str
    member_id: str | None
    member_epoch: int
    topics: list[OffsetFetchRequestGroupTopic] | None

class OffsetFetchRequestGroupTopic:
    name: str
    topic_id: UUID
    partition_indexes: list[int]

class OffsetFetchResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[OffsetFetchResponseTopicDict]
    error_code: int
    groups: Sequence[OffsetFetchResponseGroupDict]

class OffsetFetchResponseTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetFetchResponsePartitionDict]

class OffsetFetchResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int

class OffsetFetchResponseGroupDict(TypedDict, total=False):
    group_id: str
    topics: Sequence[OffsetFetchResponseGroupTopicDict]
    error_code: int

class OffsetFetchResponseGroupTopicDict(TypedDict, total=False):
    name: str
    topic_id: UUID
    partitions: Sequence[OffsetFetchResponsePartitionDict]

class OffsetFetchRequestDict(TypedDict, total=False):
    group_id: str
    topics: Sequence[OffsetFetchRequestTopicDict] | None
    groups: Sequence[OffsetFetchRequestGroupDict]
    require_stable: bool

class OffsetFetchRequestTopicDict(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]

class OffsetFetchRequestGroupDict(TypedDict, total=False):
    group_id: str
    member_id: str | None
    member_epoch: int
    topics: Sequence[OffsetFetchRequestGroupTopicDict] | None

class OffsetFetchRequestGroupTopicDict(TypedDict, total=False):
    name: str
    topic_id: UUID
    partition_indexes: Sequence[int]

class OffsetFetchResponse:
    throttle_time_ms: int
    topics: list[OffsetFetchResponseTopic]
    error_code: int
    groups: list[OffsetFetchResponseGroup]

class OffsetFetchResponseTopic:
    name: str
    partitions: list[OffsetFetchResponsePartition]

class OffsetFetchResponsePartition:
    partition_index: int
    committed_offset: Offset
    committed_leader_epoch: LeaderEpoch
    metadata: str | None
    error_code: int

class OffsetFetchResponseGroup:
    group_id: str
    topics: list[OffsetFetchResponseGroupTopic]
    error_code: int

class OffsetFetchResponseGroupTopic:
    name: str
    topic_id: UUID
    partitions: list[OffsetFetchResponsePartition]

class FindCoordinatorRequest:
    key: str
    key_type: int
    coordinator_keys: list[str]

class FindCoordinatorResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: Sequence[FindCoordinatorResponseCoordinatorDict]

class FindCoordinatorResponseCoordinatorDict(TypedDict, total=False):
    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None

class FindCoordinatorRequestDict(TypedDict, total=False):
    key: str
    key_type: int
    coordinator_keys: Sequence[str]

class FindCoordinatorResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: list[FindCoordinatorResponseCoordinator]

class FindCoordinatorResponseCoordinator:
    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None

class JoinGroupRequest:
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: str | None

class JoinGroupRequestProtocol:
    name: str
    metadata: bytes

class JoinGroupResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: Sequence[JoinGroupResponseMemberDict]

class JoinGroupResponseMemberDict(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    metadata: Buffer

class JoinGroupRequestDict(TypedDict, total=False):
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocolDict]
    reason: str | None

class JoinGroupRequestProtocolDict(TypedDict, total=False):
    name: str
    metadata: Buffer

class JoinGroupResponse:
    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: list[JoinGroupResponseMember]

class JoinGroupResponseMember:
    member_id: str
    group_instance_id: str | None
    metadata: bytes

class HeartbeatRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None

class HeartbeatResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int

class HeartbeatRequestDict(TypedDict, total=False):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None

class HeartbeatResponse:
    throttle_time_ms: int
    error_code: int

class LeaveGroupRequest:
    group_id: str
    member_id: str
    members: list[LeaveGroupRequestMember]

class LeaveGroupRequestMember:
    member_id: str
    group_instance_id: str | None
    reason: str | None

class LeaveGroupResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    members: Sequence[LeaveGroupResponseMemberDict]

class LeaveGroupResponseMemberDict(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    error_code: int

class SyncGroupRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: list[SyncGroupRequestAssignment]

class SyncGroupRequestAssignment:
    member_id: str
    assignment: bytes

class SyncGroupResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: Buffer

class SyncGroupRequestDict(TypedDict, total=False):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Sequence[SyncGroupRequestAssignmentDict]

class SyncGroupRequestAssignmentDict(TypedDict, total=False):
    member_id: str
    assignment: Buffer

class SyncGroupResponse:
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes

class DescribeGroupsRequest:
    groups: list[str]
    include_authorized_operations: bool

class DescribeGroupsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    groups: Sequence[DescribeGroupsResponseGroupDict]

class DescribeGroupsResponseGroupDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribeGroupsResponseMemberDict]
    authorized_operations: int

class DescribeGroupsResponseMemberDict(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: Buffer
    member_assignment: Buffer

class DescribeGroupsResponse:
    throttle_time_ms: int
    groups: list[DescribeGroupsResponseGroup]

class DescribeGroupsResponseGroup:
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: list[DescribeGroupsResponseMember]
    authorized_operations: int

class DescribeGroupsResponseMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes

class ListGroupsRequest:
    states_filter: list[str]
    types_filter: list[str]

class ListGroupsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    groups: Sequence[ListGroupsResponseGroupDict]

class ListGroupsResponseGroupDict(TypedDict, total=False):
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str

class ListGroupsRequestDict(TypedDict, total=False):
    states_filter: Sequence[str]
    types_filter: Sequence[str]

class ListGroupsResponse:
    throttle_time_ms: int
    error_code: int
    groups: list[ListGroupsResponseGroup]

class ListGroupsResponseGroup:
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str

class SaslHandshakeRequest:
    mechanism: str

class SaslHandshakeResponseDict(TypedDict, total=False):
    error_code: int
    mechanisms: Sequence[str]

class SaslHandshakeResponse:
    error_code: int
    mechanisms: list[str]

class ApiVersionsRequest:
    client_software_name: str
    client_software_version: str

class ApiVersionsResponseDict(TypedDict, total=False):
    error_code: int
    api_keys: Sequence[ApiVersionsResponseApiKeyDict]
    throttle_time_ms: int
    supported_features: Sequence[ApiVersionsResponseSupportedFeatureDict]
    finalized_features_epoch: int
    finalized_features: Sequence[ApiVersionsResponseFinalizedFeatureDict]
    zk_migration_ready: bool

class ApiVersionsResponseApiKeyDict(TypedDict, total=False):
    api_key: int
    min_version: int
    max_version: int

class ApiVersionsResponseSupportedFeatureDict(TypedDict, total=False):
    name: str
    min_version: int
    max_version: int

class ApiVersionsResponseFinalizedFeatureDict(TypedDict, total=False):
    name: str
    max_version_level: int
    min_version_level: int

class CreateTopicsRequest:
    topics: list[CreateTopicsRequestTopic]
    timeout_ms: int
    validate_only: bool

class CreateTopicsRequestTopic:
    name: str
    num_partitions: int
    replication_factor: int
    assignments: list[CreateTopicsRequestAssignment]
    configs: list[CreateTopicsRequestConfig]

class CreateTopicsRequestAssignment:
    partition_index: int
    broker_ids: list[int]

class CreateTopicsRequestConfig:
    name: str
    value: str | None

class CreateTopicsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[CreateTopicsResponseTopicDict]

class CreateTopicsResponseTopicDict(TypedDict, total=False):
    name: str
    topic_id: UUID
    error_code: int
    error_message: str | None
    topic_config_error_code: int
    num_partitions: int
    replication_factor: int
    configs: Sequence[CreateTopicsResponseConfigDict] | None

class CreateTopicsResponseConfigDict(TypedDict, total=False):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool

class CreateTopicsRequestTopicDict(TypedDict, total=False):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreateTopicsRequestAssignmentDict]
    configs: Sequence[CreateTopicsRequestConfigDict]

class CreateTopicsRequestAssignmentDict(TypedDict, total=False):
    partition_index: int
    broker_ids: Sequence[int]

class CreateTopicsRequestConfigDict(TypedDict, total=False):
    name: str
    value: str | None

class DeleteTopicsRequest:
    topics: list[DeleteTopicsRequestTopic]
    topic_names: list[str]
    timeout_ms: int

class DeleteTopicsRequestTopic:
    name: str | None
    topic_id: UUID

class DeleteTopicsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    responses: Sequence[DeleteTopicsResponseResponseDict]

class DeleteTopicsResponseResponseDict(TypedDict, total=False):
    name: str | None
    topic_id: UUID
    error_code: int
    error_message: str | None

class DeleteTopicsRequestDict(TypedDict, total=False):
    topics: Sequence[DeleteTopicsRequestTopicDict]
    topic_names: Sequence[str]
    timeout_ms: int

class DeleteTopicsRequestTopicDict(TypedDict, total=False):
    name: str | None
    topic_id: UUID

class DeleteRecordsRequest:
    topics: list[DeleteRecordsRequestTopic]
    timeout_ms: int

class DeleteRecordsRequestTopic:
    name: str
    partitions: list[DeleteRecordsRequestPartition]

class DeleteRecordsRequestPartition:
    partition_index: int
    offset: Offset

class DeleteRecordsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[DeleteRecordsResponseTopicDict]

class DeleteRecordsResponseTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[DeleteRecordsResponsePartitionDict]

class DeleteRecordsResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    low_watermark: int
    error_code: int

class DeleteRecordsRequestDict(TypedDict, total=False):
    topics: Sequence[DeleteRecordsRequestTopicDict]
    timeout_ms: int

class DeleteRecordsRequestTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[DeleteRecordsRequestPartitionDict]

class DeleteRecordsRequestPartitionDict(TypedDict, total=False):
    partition_index: int
    offset: int

class DeleteRecordsResponse:
    throttle_time_ms: int
    topics: list[DeleteRecordsResponseTopic]

class DeleteRecordsResponseTopic:
    name: str
    partitions: list[DeleteRecordsResponsePartition]

class DeleteRecordsResponsePartition:
    partition_index: int
    low_watermark: Offset
    error_code: int

class InitProducerIdRequest:
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    enable2_pc: bool
    keep_prepared_txn: bool

class InitProducerIdResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int
    ongoing_txn_producer_epoch: int

class InitProducerIdRequestDict(TypedDict, total=False):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    enable2_pc: bool
    keep_prepared_txn: bool

class InitProducerIdResponse:
    throttle_time_ms: int
    error_code: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    ongoing_txn_producer_id: ProducerId
    ongoing_txn_producer_epoch: ProducerEpoch

class OffsetForLeaderEpochRequest:
    replica_id: int
    topics: list[OffsetForLeaderEpochRequestTopic]

class OffsetForLeaderEpochRequestTopic:
    topic: str
    partitions: list[OffsetForLeaderEpochRequestPartition]

class OffsetForLeaderEpochRequestPartition:
    partition: int
    current_leader_epoch: LeaderEpoch
    leader_epoch: LeaderEpoch

class OffsetForLeaderEpochResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[OffsetForLeaderEpochResponseTopicDict]

class OffsetForLeaderEpochResponseTopicDict(TypedDict, total=False):
    topic: str
    partitions: Sequence[OffsetForLeaderEpochResponsePartitionDict]

class OffsetForLeaderEpochResponsePartitionDict(TypedDict, total=False):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int

class OffsetForLeaderEpochRequestDict(TypedDict, total=False):
    replica_id: int
    topics: Sequence[OffsetForLeaderEpochRequestTopicDict]

class OffsetForLeaderEpochRequestTopicDict(TypedDict, total=False):
    topic: str
    partitions: Sequence[OffsetForLeaderEpochRequestPartitionDict]

class OffsetForLeaderEpochRequestPartitionDict(TypedDict, total=False):
    partition: int
    current_leader_epoch: int
    leader_epoch: int

class OffsetForLeaderEpochResponse:
    throttle_time_ms: int
    topics: list[OffsetForLeaderEpochResponseTopic]

class OffsetForLeaderEpochResponseTopic:
    topic: str
    partitions: list[OffsetForLeaderEpochResponsePartition]

class OffsetForLeaderEpochResponsePartition:
    error_code: int
    partition: int
    leader_epoch: LeaderEpoch
    end_offset: Offset

class DescribeConfigsRequest:
    resources: list[DescribeConfigsRequestResource]
    include_synonyms: bool
    include_documentation: bool

class DescribeConfigsRequestResource:
    resource_type: int
    resource_name: str
    configuration_keys: list[str] | None

class DescribeConfigsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[DescribeConfigsResponseResultDict]

class DescribeConfigsResponseResultDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: Sequence[DescribeConfigsResponseConfigDict]

class DescribeConfigsResponseConfigDict(TypedDict, total=False):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: Sequence[DescribeConfigsResponseSynonymDict]
    config_type: int
    documentation: str | None

class DescribeConfigsResponseSynonymDict(TypedDict, total=False):
    name: str
    value: str | None
    source: int

class DescribeConfigsRequestDict(TypedDict, total=False):
    resources: Sequence[DescribeConfigsRequestResourceDict]
    include_synonyms: bool
    include_documentation: bool

class DescribeConfigsRequestResourceDict(TypedDict, total=False):
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None

class DescribeConfigsResponse:
    throttle_time_ms: int
    results: list[DescribeConfigsResponseResult]

class DescribeConfigsResponseResult:
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: list[DescribeConfigsResponseConfig]

class DescribeConfigsResponseConfig:
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: list[DescribeConfigsResponseSynonym]
    config_type: int
    documentation: str | None

class DescribeConfigsResponseSynonym:
    name: str
    value: str | None
    source: int

class AlterConfigsRequest:
    resources: list[AlterConfigsRequestResource]
    validate_only: bool

class AlterConfigsRequestResource:
    resource_type: int
    resource_name: str
    configs: list[AlterConfigsRequestConfig]

class AlterConfigsRequestConfig:
    name: str
    value: str | None

class AlterConfigsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    responses: Sequence[AlterConfigsResponseResponseDict]

class AlterConfigsResponseResponseDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str

class SaslAuthenticateRequest:
    auth_bytes: bytes

class SaslAuthenticateResponseDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    auth_bytes: Buffer
    session_lifetime_ms: int

class SaslAuthenticateResponse:
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int

class CreatePartitionsRequest:
    topics: list[CreatePartitionsRequestTopic]
    timeout_ms: int
    validate_only: bool

class CreatePartitionsRequestTopic:
    name: str
    count: int
    assignments: list[CreatePartitionsRequestAssignment] | None

class CreatePartitionsRequestAssignment:
    broker_ids: list[int]

class CreatePartitionsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[CreatePartitionsResponseResultDict]

class CreatePartitionsResponseResultDict(TypedDict, total=False):
    name: str
    error_code: int
    error_message: str | None

class CreatePartitionsRequestTopicDict(TypedDict, total=False):
    name: str
    count: int
    assignments: Sequence[CreatePartitionsRequestAssignmentDict] | None

class CreatePartitionsRequestAssignmentDict(TypedDict, total=False):
    broker_ids: Sequence[int]

class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDirsRequestDir]

class AlterReplicaLogDirsRequestDir:
    path: str
    topics: list[AlterReplicaLogDirsRequestTopic]

class AlterReplicaLogDirsRequestTopic:
    name: str
    partitions: list[int]

class AlterReplicaLogDirsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[AlterReplicaLogDirsResponseResultDict]

class AlterReplicaLogDirsResponseResultDict(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[AlterReplicaLogDirsResponsePartitionDict]

class AlterReplicaLogDirsResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    error_code: int

class DescribeLogDirsRequest:
    topics: list[DescribeLogDirsRequestTopic] | None

class DescribeLogDirsRequestTopic:
    topic: str
    partitions: list[int]

class DescribeLogDirsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    results: Sequence[DescribeLogDirsResponseResultDict]

class DescribeLogDirsResponseResultDict(TypedDict, total=False):
    error_code: int
    log_dir: str
    topics: Sequence[DescribeLogDirsResponseTopicDict]
    total_bytes: int
    usable_bytes: int

class DescribeLogDirsResponseTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[DescribeLogDirsResponsePartitionDict]

class DescribeLogDirsResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool

class ElectLeadersRequest:
    election_type: int
    topic_partitions: list[ElectLeadersRequestTopicPartition] | None
    timeout_ms: int

class ElectLeadersRequestTopicPartition:
    topic: str
    partitions: list[int]

class ElectLeadersResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    replica_election_results: Sequence[ElectLeadersResponseReplicaElectionResultDict]

class ElectLeadersResponseReplicaElectionResultDict(TypedDict, total=False):
    topic: str
    partition_result: Sequence[ElectLeadersResponsePartitionResultDict]

class ElectLeadersResponsePartitionResultDict(TypedDict, total=False):
    partition_id: int
    error_code: int
    error_message: str | None

class AlterPartitionReassignmentsRequest:
    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[AlterPartitionReassignmentsRequestTopic]

class AlterPartitionReassignmentsRequestTopic:
    name: str
    partitions: list[AlterPartitionReassignmentsRequestPartition]

class AlterPartitionReassignmentsRequestPartition:
    partition_index: int
    replicas: list[int] | None

class AlterPartitionReassignmentsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: Sequence[AlterPartitionReassignmentsResponseResponseDict]

class AlterPartitionReassignmentsResponseResponseDict(TypedDict, total=False):
    name: str
    partitions: Sequence[AlterPartitionReassignmentsResponsePartitionDict]

class AlterPartitionReassignmentsResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None

class AlterPartitionReassignmentsRequestDict(TypedDict, total=False):
    timeout_ms: int
    allow_replication_factor_change: bool
    topics: Sequence[AlterPartitionReassignmentsRequestTopicDict]

class AlterPartitionReassignmentsRequestTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[AlterPartitionReassignmentsRequestPartitionDict]

class AlterPartitionReassignmentsRequestPartitionDict(TypedDict, total=False):
    partition_index: int
    replicas: Sequence[int] | None

class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: list[AlterPartitionReassignmentsResponseResponse]

class AlterPartitionReassignmentsResponseResponse:
    name: str
    partitions: list[AlterPartitionReassignmentsResponsePartition]

class AlterPartitionReassignmentsResponsePartition:
    partition_index: int
    error_code: int
    error_message: str | None

class ListPartitionReassignmentsRequest:
    timeout_ms: int
    topics: list[ListPartitionReassignmentsRequestTopic] | None

class ListPartitionReassignmentsRequestTopic:
    name: str
    partition_indexes: list[int]

class ListPartitionReassignmentsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: Sequence[ListPartitionReassignmentsResponseTopicDict]

class ListPartitionReassignmentsResponseTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[ListPartitionReassignmentsResponsePartitionDict]

class ListPartitionReassignmentsResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]

class ListPartitionReassignmentsResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: list[ListPartitionReassignmentsResponseTopic]

class ListPartitionReassignmentsResponseTopic:
    name: str
    partitions: list[ListPartitionReassignmentsResponsePartition]

class ListPartitionReassignmentsResponsePartition:
    partition_index: int
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]

class DescribeQuorumRequest:
    topics: list[DescribeQuorumRequestTopic]

class DescribeQuorumRequestTopic:
    topic_name: str
    partitions: list[DescribeQuorumRequestPartition]

class DescribeQuorumRequestPartition:
    partition_index: int

class DescribeQuorumResponseDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    topics: Sequence[DescribeQuorumResponseTopicDict]
    nodes: Sequence[DescribeQuorumResponseNodeDict]

class DescribeQuorumResponseTopicDict(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[DescribeQuorumResponsePartitionDict]

class DescribeQuorumResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: Sequence[DescribeQuorumResponseCurrentVoterDict]
    observers: Sequence[DescribeQuorumResponseCurrentVoterDict]

class DescribeQuorumResponseCurrentVoterDict(TypedDict, total=False):
    replica_id: int
    replica_directory_id: UUID
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int

class DescribeQuorumResponseNodeDict(TypedDict, total=False):
    node_id: int
    listeners: Sequence[DescribeQuorumResponseListenerDict]

class DescribeQuorumResponseListenerDict(TypedDict, total=False):
    name: str
    host: str
    port: int

class UpdateFeaturesRequest:
    timeout_ms: int
    feature_updates: list[UpdateFeaturesRequestFeatureUpdate]
    validate_only: bool

class UpdateFeaturesRequestFeatureUpdate:
    feature: str
    max_version_level: int
    allow_downgrade: bool
    upgrade_type: int

class UpdateFeaturesResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[UpdateFeaturesResponseResultDict]

class UpdateFeaturesResponseResultDict(TypedDict, total=False):
    feature: str
    error_code: int
    error_message: str | None

class UnregisterBrokerRequest:
    broker_id: int

class UnregisterBrokerResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None

class ListConfigResourcesRequest:
    resource_types: list[int]

class ListConfigResourcesResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    config_resources: Sequence[ListConfigResourcesResponseConfigResourceDict]

class ListConfigResourcesResponseConfigResourceDict(TypedDict, total=False):
    resource_name: str
    resource_type: int

class WriteTxnMarkersRequest:
    markers: list[WriteTxnMarkersRequestMarker]

class WriteTxnMarkersRequestMarker:
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transaction_result: bool
    topics: list[WriteTxnMarkersRequestTopic]
    coordinator_epoch: int
    transaction_version: int

class WriteTxnMarkersRequestTopic:
    name: str
    partition_indexes: list[int]

class WriteTxnMarkersResponseDict(TypedDict, total=False):
    markers: Sequence[WriteTxnMarkersResponseMarkerDict]

class WriteTxnMarkersResponseMarkerDict(TypedDict, total=False):
    producer_id: int
    topics: Sequence[WriteTxnMarkersResponseTopicDict]

class WriteTxnMarkersResponseTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[WriteTxnMarkersResponsePartitionDict]

class WriteTxnMarkersResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    error_code: int

class WriteTxnMarkersRequestMarkerDict(TypedDict, total=False):
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: Sequence[WriteTxnMarkersRequestTopicDict]
    coordinator_epoch: int
    transaction_version: int

class WriteTxnMarkersRequestTopicDict(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]

class WriteTxnMarkersResponse:
    markers: list[WriteTxnMarkersResponseMarker]

class WriteTxnMarkersResponseMarker:
    producer_id: ProducerId
    topics: list[WriteTxnMarkersResponseTopic]

class WriteTxnMarkersResponseTopic:
    name: str
    partitions: list[WriteTxnMarkersResponsePartition]

class WriteTxnMarkersResponsePartition:
    partition_index: int
    error_code: int

class DescribeAclsRequest:
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int

class DescribeAclsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: Sequence[DescribeAclsResponseResourceDict]

class DescribeAclsResponseResourceDict(TypedDict, total=False):
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: Sequence[DescribeAclsResponseAclDict]

class DescribeAclsResponseAclDict(TypedDict, total=False):
    principal: str
    host: str
    operation: int
    permission_type: int

class DescribeAclsRequestDict(TypedDict, total=False):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int

class DescribeAclsResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: list[DescribeAclsResponseResource]

class DescribeAclsResponseResource:
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: list[DescribeAclsResponseAcl]

class DescribeAclsResponseAcl:
    principal: str
    host: str
    operation: int
    permission_type: int

class CreateAclsRequest:
    creations: list[CreateAclsRequestCreation]

class CreateAclsRequestCreation:
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

class CreateAclsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[CreateAclsResponseResultDict]

class CreateAclsResponseResultDict(TypedDict, total=False):
    error_code: int
    error_message: str | None

class CreateAclsRequestCreationDict(TypedDict, total=False):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

class DeleteAclsRequest:
    filters: list[DeleteAclsRequestFilter]

class DeleteAclsRequestFilter:
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int

class DeleteAclsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    filter_results: Sequence[DeleteAclsResponseFilterResultDict]

class DeleteAclsResponseFilterResultDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    matching_acls: Sequence[DeleteAclsResponseMatchingAclDict]

class DeleteAclsResponseMatchingAclDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

class DeleteAclsResponse:
    throttle_time_ms: int
    filter_results: list[DeleteAclsResponseFilterResult]

class DeleteAclsResponseFilterResult:
    error_code: int
    error_message: str | None
    matching_acls: list[DeleteAclsResponseMatchingAcl]

class DeleteAclsResponseMatchingAcl:
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

class DeleteGroupsRequest:
    groups_names: list[str]

class DeleteGroupsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[DeleteGroupsResponseResultDict]

class DeleteGroupsResponseResultDict(TypedDict, total=False):
    group_id: str
    error_code: int

class DeleteGroupsRequestDict(TypedDict, total=False):
    groups_names: Sequence[str]

class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsRequestResource]
    validate_only: bool

class IncrementalAlterConfigsRequestResource:
    resource_type: int
    resource_name: str
    configs: list[IncrementalAlterConfigsRequestConfig]

class IncrementalAlterConfigsRequestConfig:
    name: str
    config_operation: int
    value: str | None

class IncrementalAlterConfigsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    responses: Sequence[IncrementalAlterConfigsResponseResponseDict]

class IncrementalAlterConfigsResponseResponseDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str

class IncrementalAlterConfigsRequestDict(TypedDict, total=False):
    resources: Sequence[IncrementalAlterConfigsRequestResourceDict]
    validate_only: bool

class IncrementalAlterConfigsRequestResourceDict(TypedDict, total=False):
    resource_type: int
    resource_name: str
    configs: Sequence[IncrementalAlterConfigsRequestConfigDict]

class IncrementalAlterConfigsRequestConfigDict(TypedDict, total=False):
    name: str
    config_operation: int
    value: str | None

class OffsetDeleteRequest:
    group_id: str
    topics: list[OffsetDeleteRequestTopic]

class OffsetDeleteRequestTopic:
    name: str
    partitions: list[OffsetDeleteRequestPartition]

class OffsetDeleteRequestPartition:
    partition_index: int

class OffsetDeleteResponseDict(TypedDict, total=False):
    error_code: int
    throttle_time_ms: int
    topics: Sequence[OffsetDeleteResponseTopicDict]

class OffsetDeleteResponseTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetDeleteResponsePartitionDict]

class OffsetDeleteResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    error_code: int

class DescribeUserScramCredentialsRequest:
    users: list[DescribeUserScramCredentialsRequestUser] | None

class DescribeUserScramCredentialsRequestUser:
    name: str

class DescribeUserScramCredentialsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResponseResultDict]

class DescribeUserScramCredentialsResponseResultDict(TypedDict, total=False):
    user: str
    error_code: int
    error_message: str | None
    credential_infos: Sequence[DescribeUserScramCredentialsResponseCredentialInfoDict]

class DescribeUserScramCredentialsResponseCredentialInfoDict(TypedDict, total=False):
    mechanism: int
    iterations: int

class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[DescribeUserScramCredentialsResponseResult]

class DescribeUserScramCredentialsResponseResult:
    user: str
    error_code: int
    error_message: str | None
    credential_infos: list[DescribeUserScramCredentialsResponseCredentialInfo]

class DescribeUserScramCredentialsResponseCredentialInfo:
    mechanism: int
    iterations: int

class AlterUserScramCredentialsRequest:
    deletions: list[AlterUserScramCredentialsRequestDeletion]
    upsertions: list[AlterUserScramCredentialsRequestUpsertion]

class AlterUserScramCredentialsRequestDeletion:
    name: str
    mechanism: int

class AlterUserScramCredentialsRequestUpsertion:
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

class AlterUserScramCredentialsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[AlterUserScramCredentialsResponseResultDict]

class AlterUserScramCredentialsResponseResultDict(TypedDict, total=False):
    user: str
    error_code: int
    error_message: str | None

class AlterUserScramCredentialsRequestDict(TypedDict, total=False):
    deletions: Sequence[AlterUserScramCredentialsRequestDeletionDict]
    upsertions: Sequence[AlterUserScramCredentialsRequestUpsertionDict]

class AlterUserScramCredentialsRequestDeletionDict(TypedDict, total=False):
    name: str
    mechanism: int

class AlterUserScramCredentialsRequestUpsertionDict(TypedDict, total=False):
    name: str
    mechanism: int
    iterations: int
    salt: Buffer
    salted_password: Buffer

class DescribeClientQuotasRequest:
    components: list[DescribeClientQuotasRequestComponent]
    strict: bool

class DescribeClientQuotasRequestComponent:
    entity_type: str
    match_type: int
    match: str | None

class DescribeClientQuotasResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: Sequence[DescribeClientQuotasResponseEntryDict] | None

class DescribeClientQuotasResponseEntryDict(TypedDict, total=False):
    entity: Sequence[DescribeClientQuotasResponseEntityDict]
    quotas: Sequence[DescribeClientQuotasResponseQuotaDict]

class DescribeClientQuotasResponseEntityDict(TypedDict, total=False):
    entity_type: str
    entity_name: str | None

class DescribeClientQuotasResponseQuotaDict(TypedDict, total=False):
    key: str
    value: float

class DescribeClientQuotasRequestDict(TypedDict, total=False):
    components: Sequence[DescribeClientQuotasRequestComponentDict]
    strict: bool

class DescribeClientQuotasRequestComponentDict(TypedDict, total=False):
    entity_type: str
    match_type: int
    match: str | None

class DescribeClientQuotasResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: list[DescribeClientQuotasResponseEntry] | None

class DescribeClientQuotasResponseEntry:
    entity: list[DescribeClientQuotasResponseEntity]
    quotas: list[DescribeClientQuotasResponseQuota]

class DescribeClientQuotasResponseEntity:
    entity_type: str
    entity_name: str | None

class DescribeClientQuotasResponseQuota:
    key: str
    value: float

class AlterClientQuotasRequest:
    entries: list[AlterClientQuotasRequestEntry]
    validate_only: bool

class AlterClientQuotasRequestEntry:
    entity: list[AlterClientQuotasRequestEntity]
    ops: list[AlterClientQuotasRequestOp]

class AlterClientQuotasRequestEntity:
    entity_type: str
    entity_name: str | None

class AlterClientQuotasRequestOp:
    key: str
    value: float
    remove: bool

class AlterClientQuotasResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    entries: Sequence[AlterClientQuotasResponseEntryDict]

class AlterClientQuotasResponseEntryDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    entity: Sequence[AlterClientQuotasResponseEntityDict]

class AlterClientQuotasResponseEntityDict(TypedDict, total=False):
    entity_type: str
    entity_name: str | None

class AlterClientQuotasRequestEntryDict(TypedDict, total=False):
    entity: Sequence[AlterClientQuotasRequestEntityDict]
    ops: Sequence[AlterClientQuotasRequestOpDict]

class AlterClientQuotasRequestEntityDict(TypedDict, total=False):
    entity_type: str
    entity_name: str | None

class AlterClientQuotasRequestOpDict(TypedDict, total=False):
    key: str
    value: float
    remove: bool

class ConsumerGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartition] | None

class ConsumerGroupHeartbeatRequestTopicPartition:
    topic_id: UUID
    partitions: list[int]

class ConsumerGroupHeartbeatResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatResponseAssignmentDict | None

class ConsumerGroupHeartbeatResponseAssignmentDict(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupHeartbeatResponseTopicPartitionDict]

class ConsumerGroupHeartbeatResponseTopicPartitionDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[int]

class ConsumerGroupHeartbeatRequestDict(TypedDict, total=False):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: Sequence[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: Sequence[ConsumerGroupHeartbeatRequestTopicPartitionDict] | None

class ConsumerGroupHeartbeatRequestTopicPartitionDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[int]

class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatResponseAssignment | None

class ConsumerGroupHeartbeatResponseAssignment:
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartition]

class ConsumerGroupHeartbeatResponseTopicPartition:
    topic_id: UUID
    partitions: list[int]

class ConsumerGroupDescribeRequest:
    group_ids: list[str]
    include_authorized_operations: bool

class ConsumerGroupDescribeResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    groups: Sequence[ConsumerGroupDescribeResponseGroupDict]

class ConsumerGroupDescribeResponseGroupDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[ConsumerGroupDescribeResponseMemberDict]
    authorized_operations: int

class ConsumerGroupDescribeResponseMemberDict(TypedDict, total=False):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    assignment: ConsumerGroupDescribeResponseAssignmentDict
    target_assignment: ConsumerGroupDescribeResponseAssignmentDict
    member_type: int

class ConsumerGroupDescribeResponseAssignmentDict(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupDescribeResponseTopicPartitionDict]

class ConsumerGroupDescribeResponseTopicPartitionDict(TypedDict, total=False):
    topic_id: UUID
    topic_name: str
    partitions: Sequence[int]

class ConsumerGroupDescribeResponse:
    throttle_time_ms: int
    groups: list[ConsumerGroupDescribeResponseGroup]

class ConsumerGroupDescribeResponseGroup:
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: list[ConsumerGroupDescribeResponseMember]
    authorized_operations: int

class ConsumerGroupDescribeResponseMember:
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    assignment: ConsumerGroupDescribeResponseAssignment
    target_assignment: ConsumerGroupDescribeResponseAssignment
    member_type: int

class ConsumerGroupDescribeResponseAssignment:
    topic_partitions: list[ConsumerGroupDescribeResponseTopicPartition]

class ConsumerGroupDescribeResponseTopicPartition:
    topic_id: UUID
    topic_name: str
    partitions: list[int]

class FetchSnapshotRequest:
    cluster_id: str | None
    replica_id: int
    max_bytes: int
    topics: list[FetchSnapshotRequestTopic]

class FetchSnapshotRequestTopic:
    name: str
    partitions: list[FetchSnapshotRequestPartition]

class FetchSnapshotRequestPartition:
    partition: int
    current_leader_epoch: LeaderEpoch
    snapshot_id: FetchSnapshotRequestSnapshotId
    position: int
    replica_directory_id: UUID

class FetchSnapshotRequestSnapshotId:
    end_offset: Offset
    epoch: int

class FetchSnapshotResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    topics: Sequence[FetchSnapshotResponseTopicDict]
    node_endpoints: Sequence[FetchSnapshotResponseNodeEndpointDict]

class FetchSnapshotResponseTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[FetchSnapshotResponsePartitionDict]

class FetchSnapshotResponsePartitionDict(TypedDict, total=False):
    index: int
    error_code: int
    snapshot_id: FetchSnapshotResponseSnapshotIdDict
    current_leader: FetchSnapshotResponseCurrentLeaderDict
    size: int
    position: int
    unaligned_records: Buffer

class FetchSnapshotResponseSnapshotIdDict(TypedDict, total=False):
    end_offset: int
    epoch: int

class FetchSnapshotResponseCurrentLeaderDict(TypedDict, total=False):
    leader_id: int
    leader_epoch: int

class FetchSnapshotResponseNodeEndpointDict(TypedDict, total=False):
    node_id: int
    host: str
    port: int

class GetTelemetrySubscriptionsRequest:
    client_instance_id: UUID

class GetTelemetrySubscriptionsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    client_instance_id: UUID
    subscription_id: int
    accepted_compression_types: Sequence[int]
    push_interval_ms: int
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: Sequence[str]

class PushTelemetryRequest:
    client_instance_id: UUID
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes

class PushTelemetryResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int

class DescribeClusterRequest:
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool

class DescribeClusterResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: Sequence[DescribeClusterResponseBrokerDict]
    cluster_authorized_operations: int

class DescribeClusterResponseBrokerDict(TypedDict, total=False):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool

class DescribeTopicPartitionsRequest:
    topics: list[DescribeTopicPartitionsRequestTopic]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsRequestCursor | None

class DescribeTopicPartitionsRequestTopic:
    name: str

class DescribeTopicPartitionsRequestCursor:
    topic_name: str
    partition_index: int

class DescribeTopicPartitionsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[DescribeTopicPartitionsResponseTopicDict]
    next_cursor: DescribeTopicPartitionsResponseNextCursorDict | None

class DescribeTopicPartitionsResponseTopicDict(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: Sequence[DescribeTopicPartitionsResponsePartitionDict]
    topic_authorized_operations: int

class DescribeTopicPartitionsResponsePartitionDict(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    eligible_leader_replicas: Sequence[int] | None
    last_known_elr: Sequence[int] | None
    offline_replicas: Sequence[int]

class DescribeTopicPartitionsResponseNextCursorDict(TypedDict, total=False):
    topic_name: str
    partition_index: int

class DescribeProducersRequest:
    topics: list[DescribeProducersRequestTopic]

class DescribeProducersRequestTopic:
    name: str
    partition_indexes: list[int]

class DescribeProducersResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[DescribeProducersResponseTopicDict]

class DescribeProducersResponseTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[DescribeProducersResponsePartitionDict]

class DescribeProducersResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: Sequence[DescribeProducersResponseActiveProducerDict]

class DescribeProducersResponseActiveProducerDict(TypedDict, total=False):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int

class DescribeProducersRequestDict(TypedDict, total=False):
    topics: Sequence[DescribeProducersRequestTopicDict]

class DescribeProducersRequestTopicDict(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]

class DescribeProducersResponse:
    throttle_time_ms: int
    topics: list[DescribeProducersResponseTopic]

class DescribeProducersResponseTopic:
    name: str
    partitions: list[DescribeProducersResponsePartition]

class DescribeProducersResponsePartition:
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: list[DescribeProducersResponseActiveProducer]

class DescribeProducersResponseActiveProducer:
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int
    last_timestamp: TimestampMs
    coordinator_epoch: int
    current_txn_start_offset: Offset

class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnRequestTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: ProducerId
    v3_and_below_producer_epoch: ProducerEpoch
    v3_and_below_topics: list[AddPartitionsToTxnRequestTopic]

class AddPartitionsToTxnRequestTransaction:
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    verify_only: bool
    topics: list[AddPartitionsToTxnRequestTopic]

class AddPartitionsToTxnRequestTopic:
    name: str
    partitions: list[int]

class AddPartitionsToTxnResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    results_by_transaction: Sequence[AddPartitionsToTxnResponseResultsByTransactionDict]
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnResponseTopicResultDict]

class AddPartitionsToTxnResponseResultsByTransactionDict(TypedDict, total=False):
    transactional_id: str
    topic_results: Sequence[AddPartitionsToTxnResponseTopicResultDict]

class AddPartitionsToTxnResponseTopicResultDict(TypedDict, total=False):
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnResponseResultsByPartitionDict]

class AddPartitionsToTxnResponseResultsByPartitionDict(TypedDict, total=False):
    partition_index: int
    partition_error_code: int

class AddPartitionsToTxnRequestTransactionDict(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: Sequence[AddPartitionsToTxnRequestTopicDict]

class AddPartitionsToTxnRequestTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[int]

class AddPartitionsToTxnResponse:
    throttle_time_ms: int
    error_code: int
    results_by_transaction: list[AddPartitionsToTxnResponseResultsByTransaction]
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponseTopicResult]

class AddPartitionsToTxnResponseResultsByTransaction:
    transactional_id: str
    topic_results: list[AddPartitionsToTxnResponseTopicResult]

class AddPartitionsToTxnResponseTopicResult:
    name: str
    results_by_partition: list[AddPartitionsToTxnResponseResultsByPartition]

class AddPartitionsToTxnResponseResultsByPartition:
    partition_index: int
    partition_error_code: int

class AddOffsetsToTxnRequest:
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    group_id: str

class AddOffsetsToTxnResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int

class EndTxnRequest:
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    committed: bool

class EndTxnResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int

class EndTxnRequestDict(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool

class TxnOffsetCommitRequest:
    transactional_id: str
    group_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: list[TxnOffsetCommitRequestTopic]

class TxnOffsetCommitRequestTopic:
    name: str
    partitions: list[TxnOffsetCommitRequestPartition]

class TxnOffsetCommitRequestPartition:
    partition_index: int
    committed_offset: Offset
    committed_leader_epoch: LeaderEpoch
    committed_metadata: str | None

class TxnOffsetCommitResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[TxnOffsetCommitResponseTopicDict]

class TxnOffsetCommitResponseTopicDict(TypedDict, total=False):
    name: str
    partitions: Sequence[TxnOffsetCommitResponsePartitionDict]

class TxnOffsetCommitResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    error_code: int

class TxnOffsetCommitRequestPartitionDict(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None

class TxnOffsetCommitResponse:
    throttle_time_ms: int
    topics: list[TxnOffsetCommitResponseTopic]

class TxnOffsetCommitResponseTopic:
    name: str
    partitions: list[TxnOffsetCommitResponsePartition]

class TxnOffsetCommitResponsePartition:
    partition_index: int
    error_code: int

class DescribeTransactionsRequest:
    transactional_ids: list[str]

class DescribeTransactionsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    transaction_states: Sequence[DescribeTransactionsResponseTransactionStateDict]

class DescribeTransactionsResponseTransactionStateDict(TypedDict, total=False):
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    topics: Sequence[DescribeTransactionsResponseTopicDict]

class DescribeTransactionsResponseTopicDict(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]

class DescribeTransactionsRequestDict(TypedDict, total=False):
    transactional_ids: Sequence[str]

class DescribeTransactionsResponse:
    throttle_time_ms: int
    transaction_states: list[DescribeTransactionsResponseTransactionState]

class DescribeTransactionsResponseTransactionState:
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    topics: list[DescribeTransactionsResponseTopic]

class DescribeTransactionsResponseTopic:
    topic: str
    partitions: list[int]

class ListTransactionsRequest:
    state_filters: list[str]
    producer_id_filters: list[int]
    duration_filter: int
    transactional_id_pattern: str | None

class ListTransactionsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[ListTransactionsResponseTransactionStateDict]

class ListTransactionsResponseTransactionStateDict(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    transaction_state: str

class ListTransactionsRequestDict(TypedDict, total=False):
    state_filters: Sequence[str]
    producer_id_filters: Sequence[int]
    duration_filter: int
    transactional_id_pattern: str | None

class ListTransactionsResponse:
    throttle_time_ms: int
    error_code: int
    unknown_state_filters: list[str]
    transaction_states: list[ListTransactionsResponseTransactionState]

class ListTransactionsResponseTransactionState:
    transactional_id: str
    producer_id: ProducerId
    transaction_state: str

class ShareGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: list[str] | None

class ShareGroupHeartbeatResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ShareGroupHeartbeatResponseAssignmentDict | None

class ShareGroupHeartbeatResponseAssignmentDict(TypedDict, total=False):
    topic_partitions: Sequence[ShareGroupHeartbeatResponseTopicPartitionDict]

class ShareGroupHeartbeatResponseTopicPartitionDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[int]

class ShareGroupHeartbeatRequestDict(TypedDict, total=False):
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: Sequence[str] | None

class ShareGroupDescribeRequest:
    group_ids: list[str]
    include_authorized_operations: bool

class ShareGroupDescribeResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    groups: Sequence[ShareGroupDescribeResponseGroupDict]

class ShareGroupDescribeResponseGroupDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[ShareGroupDescribeResponseMemberDict]
    authorized_operations: int

class ShareGroupDescribeResponseMemberDict(TypedDict, total=False):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    assignment: ShareGroupDescribeResponseAssignmentDict

class ShareGroupDescribeResponseAssignmentDict(TypedDict, total=False):
    topic_partitions: Sequence[ShareGroupDescribeResponseTopicPartitionDict]

class ShareGroupDescribeResponseTopicPartitionDict(TypedDict, total=False):
    topic_id: UUID
    topic_name: str
    partitions: Sequence[int]

class ShareGroupDescribeResponse:
    throttle_time_ms: int
    groups: list[ShareGroupDescribeResponseGroup]

class ShareGroupDescribeResponseGroup:
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: list[ShareGroupDescribeResponseMember]
    authorized_operations: int

class ShareGroupDescribeResponseMember:
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    assignment: ShareGroupDescribeResponseAssignment

class ShareGroupDescribeResponseAssignment:
    topic_partitions: list[ShareGroupDescribeResponseTopicPartition]

class ShareGroupDescribeResponseTopicPartition:
    topic_id: UUID
    topic_name: str
    partitions: list[int]

class ShareFetchRequest:
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: list[ShareFetchRequestTopic]
    forgotten_topics_data: list[ShareFetchRequestForgottenTopicsData]

class ShareFetchRequestTopic:
    topic_id: UUID
    partitions: list[ShareFetchRequestPartition]

class ShareFetchRequestPartition:
    partition_index: int
    acknowledgement_batches: list[ShareFetchRequestAcknowledgementBatch]

class ShareFetchRequestAcknowledgementBatch:
    first_offset: Offset
    last_offset: Offset
    acknowledge_types: list[int]

class ShareFetchRequestForgottenTopicsData:
    topic_id: UUID
    partitions: list[int]

class ShareFetchRequestDict(TypedDict, total=False):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: Sequence[ShareFetchRequestTopicDict]
    forgotten_topics_data: Sequence[ShareFetchRequestForgottenTopicsDataDict]

class ShareFetchRequestTopicDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[ShareFetchRequestPartitionDict]

class ShareFetchRequestPartitionDict(TypedDict, total=False):
    partition_index: int
    acknowledgement_batches: Sequence[ShareFetchRequestAcknowledgementBatchDict]

class ShareFetchRequestAcknowledgementBatchDict(TypedDict, total=False):
    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]

class ShareFetchRequestForgottenTopicsDataDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[int]

class ShareFetchResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareFetchResponseResponse]
    node_endpoints: list[ShareFetchResponseNodeEndpoint]

class ShareFetchResponseResponse:
    topic_id: UUID
    partitions: list[ShareFetchResponsePartition]

class ShareFetchResponsePartition:
    partition_index: int
    error_code: int
    error_message: str | None
    acknowledge_error_code: int
    acknowledge_error_message: str | None
    current_leader: ShareFetchResponseCurrentLeader
    records: bytes
    acquired_records: list[ShareFetchResponseAcquiredRecord]

class ShareFetchResponseCurrentLeader:
    leader_id: int
    leader_epoch: LeaderEpoch

class ShareFetchResponseAcquiredRecord:
    first_offset: Offset
    last_offset: Offset
    delivery_count: int

class ShareFetchResponseNodeEndpoint:
    node_id: int
    host: str
    port: int
    rack: str | None

class ShareAcknowledgeRequest:
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: list[ShareAcknowledgeRequestTopic]

class ShareAcknowledgeRequestTopic:
    topic_id: UUID
    partitions: list[ShareAcknowledgeRequestPartition]

class ShareAcknowledgeRequestPartition:
    partition_index: int
    acknowledgement_batches: list[ShareAcknowledgeRequestAcknowledgementBatch]

class ShareAcknowledgeRequestAcknowledgementBatch:
    first_offset: Offset
    last_offset: Offset
    acknowledge_types: list[int]

class ShareAcknowledgeRequestDict(TypedDict, total=False):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: Sequence[ShareAcknowledgeRequestTopicDict]

class ShareAcknowledgeRequestTopicDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[ShareAcknowledgeRequestPartitionDict]

class ShareAcknowledgeRequestPartitionDict(TypedDict, total=False):
    partition_index: int
    acknowledgement_batches: Sequence[ShareAcknowledgeRequestAcknowledgementBatchDict]

class ShareAcknowledgeRequestAcknowledgementBatchDict(TypedDict, total=False):
    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]

class ShareAcknowledgeResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareAcknowledgeResponseResponse]
    node_endpoints: list[ShareAcknowledgeResponseNodeEndpoint]

class ShareAcknowledgeResponseResponse:
    topic_id: UUID
    partitions: list[ShareAcknowledgeResponsePartition]

class ShareAcknowledgeResponsePartition:
    partition_index: int
    error_code: int
    error_message: str | None
    current_leader: ShareAcknowledgeResponseCurrentLeader

class ShareAcknowledgeResponseCurrentLeader:
    leader_id: int
    leader_epoch: LeaderEpoch

class ShareAcknowledgeResponseNodeEndpoint:
    node_id: int
    host: str
    port: int
    rack: str | None

class InitializeShareGroupStateRequest:
    group_id: str
    topics: list[InitializeShareGroupStateRequestTopic]

class InitializeShareGroupStateRequestTopic:
    topic_id: UUID
    partitions: list[InitializeShareGroupStateRequestPartition]

class InitializeShareGroupStateRequestPartition:
    partition: int
    state_epoch: int
    start_offset: Offset

class ReadShareGroupStateRequest:
    group_id: str
    topics: list[ReadShareGroupStateRequestTopic]

class ReadShareGroupStateRequestTopic:
    topic_id: UUID
    partitions: list[ReadShareGroupStateRequestPartition]

class ReadShareGroupStateRequestPartition:
    partition: int
    leader_epoch: LeaderEpoch

class WriteShareGroupStateRequest:
    group_id: str
    topics: list[WriteShareGroupStateRequestTopic]

class WriteShareGroupStateRequestTopic:
    topic_id: UUID
    partitions: list[WriteShareGroupStateRequestPartition]

class WriteShareGroupStateRequestPartition:
    partition: int
    state_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    delivery_complete_count: int
    state_batches: list[WriteShareGroupStateRequestStateBatch]

class WriteShareGroupStateRequestStateBatch:
    first_offset: Offset
    last_offset: Offset
    delivery_state: int
    delivery_count: int

class DeleteShareGroupStateRequest:
    group_id: str
    topics: list[DeleteShareGroupStateRequestTopic]

class DeleteShareGroupStateRequestTopic:
    topic_id: UUID
    partitions: list[DeleteShareGroupStateRequestPartition]

class DeleteShareGroupStateRequestPartition:
    partition: int

class ReadShareGroupStateSummaryRequest:
    group_id: str
    topics: list[ReadShareGroupStateSummaryRequestTopic]

class ReadShareGroupStateSummaryRequestTopic:
    topic_id: UUID
    partitions: list[ReadShareGroupStateSummaryRequestPartition]

class ReadShareGroupStateSummaryRequestPartition:
    partition: int
    leader_epoch: LeaderEpoch

class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup]

class DescribeShareGroupOffsetsRequestGroup:
    group_id: str
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None

class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str
    partitions: list[int]

class DescribeShareGroupOffsetsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    groups: Sequence[DescribeShareGroupOffsetsResponseGroupDict]

class DescribeShareGroupOffsetsResponseGroupDict(TypedDict, total=False):
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsResponseTopicDict]
    error_code: int
    error_message: str | None

class DescribeShareGroupOffsetsResponseTopicDict(TypedDict, total=False):
    topic_name: str
    topic_id: UUID
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartitionDict]

class DescribeShareGroupOffsetsResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    start_offset: int
    leader_epoch: int
    lag: int
    error_code: int
    error_message: str | None

class DescribeShareGroupOffsetsRequestDict(TypedDict, total=False):
    groups: Sequence[DescribeShareGroupOffsetsRequestGroupDict]

class DescribeShareGroupOffsetsRequestGroupDict(TypedDict, total=False):
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsRequestTopicDict] | None

class DescribeShareGroupOffsetsRequestTopicDict(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[int]

class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int
    groups: list[DescribeShareGroupOffsetsResponseGroup]

class DescribeShareGroupOffsetsResponseGroup:
    group_id: str
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: int
    error_message: str | None

class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition]

class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int
    start_offset: Offset
    leader_epoch: LeaderEpoch
    lag: int
    error_code: int
    error_message: str | None

class AlterShareGroupOffsetsRequest:
    group_id: str
    topics: list[AlterShareGroupOffsetsRequestTopic]

class AlterShareGroupOffsetsRequestTopic:
    topic_name: str
    partitions: list[AlterShareGroupOffsetsRequestPartition]

class AlterShareGroupOffsetsRequestPartition:
    partition_index: int
    start_offset: Offset

class AlterShareGroupOffsetsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: Sequence[AlterShareGroupOffsetsResponseResponseDict]

class AlterShareGroupOffsetsResponseResponseDict(TypedDict, total=False):
    topic_name: str
    topic_id: UUID
    partitions: Sequence[AlterShareGroupOffsetsResponsePartitionDict]

class AlterShareGroupOffsetsResponsePartitionDict(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None

class AlterShareGroupOffsetsRequestDict(TypedDict, total=False):
    group_id: str
    topics: Sequence[AlterShareGroupOffsetsRequestTopicDict]

class AlterShareGroupOffsetsRequestTopicDict(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[AlterShareGroupOffsetsRequestPartitionDict]

class AlterShareGroupOffsetsRequestPartitionDict(TypedDict, total=False):
    partition_index: int
    start_offset: int

class DeleteShareGroupOffsetsRequest:
    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic]

class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str

class DeleteShareGroupOffsetsResponseDict(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: Sequence[DeleteShareGroupOffsetsResponseResponseDict]

class DeleteShareGroupOffsetsResponseResponseDict(TypedDict, total=False):
    topic_name: str
    topic_id: UUID
    error_code: int
    error_message: str | None

class DeleteShareGroupOffsetsRequestDict(TypedDict, total=False):
    group_id: str
    topics: Sequence[DeleteShareGroupOffsetsRequestTopicDict]

class DeleteShareGroupOffsetsRequestTopicDict(TypedDict, total=False):
    topic_name: str

class AskConsoleRequest:
    user: str
    host: str
    method: str
    path: str
    parameters: bytes
    limit: int
    stream_id: int

class AskConsoleResponseDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    stream_id: int
    answer: Buffer

class AskConsoleRequestDict(TypedDict, total=False):
    user: str
    host: str
    method: str
    path: str
    parameters: Buffer
    limit: int
    stream_id: int

class AskConsoleResponse:
    error_code: int
    error_message: str | None
    stream_id: int
    answer: bytes

class ConsumerGroupPartitionMetadataValue:
    topics: list[ConsumerGroupPartitionMetadataValueTopic]

class ConsumerGroupPartitionMetadataValueTopic:
    topic_id: UUID
    topic_name: str
    num_partitions: int
    partition_metadata: list[ConsumerGroupPartitionMetadataValuePartitionMetadata]

class ConsumerGroupPartitionMetadataValuePartitionMetadata:
    partition: int
    racks: list[str]

class ConsumerGroupPartitionMetadataValueDict(TypedDict, total=False):
    topics: Sequence[ConsumerGroupPartitionMetadataValueTopicDict]

class ConsumerGroupPartitionMetadataValueTopicDict(TypedDict, total=False):
    topic_id: UUID
    topic_name: str
    num_partitions: int
    partition_metadata: Sequence[ConsumerGroupPartitionMetadataValuePartitionMetadataDict]

class ConsumerGroupPartitionMetadataValuePartitionMetadataDict(TypedDict, total=False):
    partition: int
    racks: Sequence[str]

class ConsumerGroupMemberMetadataValue:
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ConsumerGroupMemberMetadataValueClassicMemberMetadata | None

class ConsumerGroupMemberMetadataValueClassicMemberMetadata:
    session_timeout_ms: int
    supported_protocols: list[ConsumerGroupMemberMetadataValueSupportedProtocol]

class ConsumerGroupMemberMetadataValueSupportedProtocol:
    name: str
    metadata: bytes

class ConsumerGroupMemberMetadataValueDict(TypedDict, total=False):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ConsumerGroupMemberMetadataValueClassicMemberMetadataDict | None

class ConsumerGroupMemberMetadataValueClassicMemberMetadataDict(TypedDict, total=False):
    session_timeout_ms: int
    supported_protocols: Sequence[ConsumerGroupMemberMetadataValueSupportedProtocolDict]

class ConsumerGroupMemberMetadataValueSupportedProtocolDict(TypedDict, total=False):
    name: str
    metadata: Buffer

class ConsumerGroupTargetAssignmentMemberValueTopicPartition:
    topic_id: UUID
    partitions: list[int]

class ConsumerGroupTargetAssignmentMemberValueTopicPartitionDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[int]

class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValueAssignedPartition]
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValueAssignedPartition]

class ConsumerGroupCurrentMemberAssignmentValueAssignedPartition:
    topic_id: UUID
    partitions: list[int]

class ConsumerGroupCurrentMemberAssignmentValueDict(TypedDict, total=False):
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: Sequence[ConsumerGroupCurrentMemberAssignmentValueAssignedPartitionDict]
    partitions_pending_revocation: Sequence[ConsumerGroupCurrentMemberAssignmentValueAssignedPartitionDict]

class ConsumerGroupCurrentMemberAssignmentValueAssignedPartitionDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[int]

class ConsumerGroupRegularExpressionValue:
    topics: list[str]
    version: int
    timestamp: TimestampMs

class ConsumerGroupRegularExpressionValueDict(TypedDict, total=False):
    topics: Sequence[str]
    version: int
    timestamp: int

class ConsumerProtocolSubscription:
    topics: list[str]
    user_data: bytes | None
    owned_partitions: list[ConsumerProtocolSubscriptionOwnedPartition]
    generation_id: int
    rack_id: str | None

class ConsumerProtocolSubscriptionOwnedPartition:
    topic: str
    partitions: list[int]

class ConsumerProtocolSubscriptionDict(TypedDict, total=False):
    topics: Sequence[str]
    user_data: Buffer | None
    owned_partitions: Sequence[ConsumerProtocolSubscriptionOwnedPartitionDict]
    generation_id: int
    rack_id: str | None

class ConsumerProtocolSubscriptionOwnedPartitionDict(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]

class ConsumerProtocolAssignment:
    assigned_partitions: list[ConsumerProtocolAssignmentAssignedPartition]
    user_data: bytes | None

class ConsumerProtocolAssignmentAssignedPartition:
    topic: str
    partitions: list[int]

class ConsumerProtocolAssignmentDict(TypedDict, total=False):
    assigned_partitions: Sequence[ConsumerProtocolAssignmentAssignedPartitionDict]
    user_data: Buffer | None

class ConsumerProtocolAssignmentAssignedPartitionDict(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]

class StickyAssignorUserData:
    previous_assignment: list[StickyAssignorUserDataPreviousAssignment]
    generation: int

class StickyAssignorUserDataPreviousAssignment:
    topic: str
    partitions: list[int]

class StickyAssignorUserDataDict(TypedDict, total=False):
    previous_assignment: Sequence[StickyAssignorUserDataPreviousAssignmentDict]
    generation: int

class StickyAssignorUserDataPreviousAssignmentDict(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]

class GroupMetadataValue:
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: TimestampMs
    members: list[GroupMetadataValueMember]

class GroupMetadataValueMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes

class GroupMetadataValueDict(TypedDict, total=False):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: Sequence[GroupMetadataValueMemberDict]

class GroupMetadataValueMemberDict(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: Buffer
    assignment: Buffer

class OffsetCommitKey:
    group: str
    topic: str
    partition: int

class OffsetCommitValue:
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_timestamp: TimestampMs
    expire_timestamp: TimestampMs
    topic_id: UUID

class OffsetCommitValueDict(TypedDict, total=False):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: UUID

class TransactionLogValue:
    producer_id: ProducerId
    previous_producer_id: ProducerId
    next_producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: list[TransactionLogValueTransactionPartition] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    client_transaction_version: int
    next_producer_epoch: ProducerEpoch
    last_producer_epoch: ProducerEpoch

class TransactionLogValueTransactionPartition:
    topic: str
    partition_ids: list[int]
