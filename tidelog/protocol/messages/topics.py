"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords, DescribeProducers: APIs of topics.

Declarations only. Source: the JSON definitions of the same names (KIP-195, KIP-107, KIP-516, KIP-525,
KIP-599, KIP-664).
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct, field
from tidelog.protocol.types import Offset, ProducerId, TimestampMs


class CreateTopicsRequestAssignment(Struct):
    partition_index: Int32
    broker_ids: list[Int32]  # The first is preferred as leader.


class CreateTopicsRequestConfig(Struct):
    name: str
    value: str | None  # Null is refused.


class CreateTopicsRequestTopic(Struct):
    name: str
    num_partitions: Int32  # -1: the broker's default, or by the assignments.
    replication_factor: Int16  # -1: the broker's default, or by the assignments.
    assignments: list[CreateTopicsRequestAssignment]  # Empty: the broker chooses.
    configs: list[CreateTopicsRequestConfig]


class CreateTopicsRequest(Struct, flexible="5+"):
    topics: list[CreateTopicsRequestTopic]
    timeout_ms: Int32 = field(default=60_000)  # How long the creation may take; ignored here.
    validate_only: bool = field("1+", default=False)  # Check the request, change nothing.


class CreateTopicsResponseConfig(Struct):
    name: str = field("5+")
    value: str | None = field("5+")  # Never null.
    read_only: bool = field("5+")  # Always false.
    config_source: Int8 = field("5+", default=-1, ignorable=True)  # The numbers of DescribeConfigs.
    is_sensitive: bool = field("5+")  # Always false.


class CreateTopicsResponseTopic(Struct):
    name: str
    topic_id: UUID = field("7+", ignorable=True)  # The zero uuid: nothing was created.
    error_code: Int16
    error_message: str | None = field("1+", nullable="0+", ignorable=True)
    topic_config_error_code: Int16 = field("5+", ignorable=True, tag=0)  # Why the user may not see configs.
    num_partitions: Int32 = field("5+", default=-1, ignorable=True)  # -1: an error, or not to be seen.
    replication_factor: Int16 = field("5+", default=-1, ignorable=True)  # -1: an error, or not to be seen.
    configs: list[CreateTopicsResponseConfig] | None = field("5+", ignorable=True)  # Null: not to be seen.


class CreateTopicsResponse(Struct, flexible="5+"):
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[CreateTopicsResponseTopic]


class DeleteTopicsRequestTopic(Struct):
    name: str | None = field("6+", default=None)  # Null: the id says which topic it is.
    topic_id: UUID = field("6+")  # The zero uuid: the name says which topic it is.


class DeleteTopicsRequest(Struct, flexible="4+"):
    topics: list[DeleteTopicsRequestTopic] = field("6+")
    topic_names: list[str] = field("0-5", ignorable=True)
    timeout_ms: Int32  # How long the deletion may take; ignored here.


class DeleteTopicsResponseResponse(Struct):
    name: str | None = field(nullable="6+")  # Null: an id that is unknown, or not to be seen.
    topic_id: UUID = field("6+", ignorable=True)  # The zero uuid: unknown, or not to be seen.
    error_code: Int16
    error_message: str | None = field("5+", default=None, ignorable=True)


class DeleteTopicsResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    responses: list[DeleteTopicsResponseResponse]


class CreatePartitionsRequestAssignment(Struct):
    broker_ids: list[Int32]  # The first is preferred as leader.


class CreatePartitionsRequestTopic(Struct):
    name: str
    count: Int32  # How many partitions the topic is to have.
    assignments: list[CreatePartitionsRequestAssignment] | None  # Of the new ones; null: the broker chooses.


class CreatePartitionsRequest(Struct, flexible="2+"):
    topics: list[CreatePartitionsRequestTopic]
    timeout_ms: Int32  # How long the creation may take; ignored here.
    validate_only: bool  # Check the request, change nothing.


class CreatePartitionsResponseResult(Struct):
    name: str
    error_code: Int16
    error_message: str | None = field(default=None)


class CreatePartitionsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    results: list[CreatePartitionsResponseResult]


class DeleteRecordsRequestPartition(Struct):
    partition_index: Int32
    offset: Offset  # Where the log is to begin; -1: at the end of what is committed.


class DeleteRecordsRequestTopic(Struct):
    name: str
    partitions: list[DeleteRecordsRequestPartition]


class DeleteRecordsRequest(Struct, flexible="2+"):
    topics: list[DeleteRecordsRequestTopic]
    timeout_ms: Int32  # How long to wait until all live replicas begin there.


class DeleteRecordsResponsePartition(Struct):
    partition_index: Int32
    low_watermark: Offset  # The smallest offset that a live replica still has; -1: an error.
    error_code: Int16


class DeleteRecordsResponseTopic(Struct):
    name: str
    partitions: list[DeleteRecordsResponsePartition]


class DeleteRecordsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    topics: list[DeleteRecordsResponseTopic]


class DescribeProducersRequestTopic(Struct):
    name: str
    partition_indexes: list[Int32]


class DescribeProducersRequest(Struct, flexible="0+"):
    topics: list[DescribeProducersRequestTopic]


class DescribeProducersResponseActiveProducer(Struct):
    producer_id: ProducerId
    producer_epoch: Int32
    last_sequence: Int32 = field(default=-1)  # Of the last record; -1: none.
    last_timestamp: TimestampMs = field(default=-1)  # The largest of the last batch; -1: none.
    coordinator_epoch: Int32  # Fences a coordinator that was replaced.
    current_txn_start_offset: Offset = field(default=-1)  # -1: no open transaction.


class DescribeProducersResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    active_producers: list[DescribeProducersResponseActiveProducer]


class DescribeProducersResponseTopic(Struct):
    name: str
    partitions: list[DescribeProducersResponsePartition]


class DescribeProducersResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    topics: list[DescribeProducersResponseTopic]
