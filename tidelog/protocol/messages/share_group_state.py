"""The APIs by which brokers keep the state of share partitions with its coordinator.

Declarations only. Source: the JSON definitions of the same names (KIP-932, KIP-1226).
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct, field
from tidelog.protocol.types import LeaderEpoch, Offset


class InitializeShareGroupStateRequestPartition(Struct):
    partition: Int32
    state_epoch: Int32
    start_offset: Offset


class InitializeShareGroupStateRequestTopic(Struct):
    topic_id: UUID
    partitions: list[InitializeShareGroupStateRequestPartition]


class InitializeShareGroupStateRequest(Struct, flexible="0+"):
    group_id: str
    topics: list[InitializeShareGroupStateRequestTopic]


class InitializeShareGroupStateResponsePartition(Struct):
    partition: Int32
    error_code: Int16
    error_message: str | None = field(default=None)


class InitializeShareGroupStateResponseResult(Struct):
    topic_id: UUID
    partitions: list[InitializeShareGroupStateResponsePartition]


class InitializeShareGroupStateResponse(Struct, flexible="0+"):
    results: list[InitializeShareGroupStateResponseResult]


class ReadShareGroupStateRequestPartition(Struct):
    partition: Int32
    leader_epoch: LeaderEpoch


class ReadShareGroupStateRequestTopic(Struct):
    topic_id: UUID
    partitions: list[ReadShareGroupStateRequestPartition]


class ReadShareGroupStateRequest(Struct, flexible="0+"):
    group_id: str
    topics: list[ReadShareGroupStateRequestTopic]


class ReadShareGroupStateResponseStateBatch(Struct):
    first_offset: Offset
    last_offset: Offset
    delivery_state: Int8
    delivery_count: Int16  # How often the records were delivered, this time included.


class ReadShareGroupStateResponsePartition(Struct):
    partition: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    state_epoch: Int32
    start_offset: Offset
    state_batches: list[ReadShareGroupStateResponseStateBatch]


class ReadShareGroupStateResponseResult(Struct):
    topic_id: UUID
    partitions: list[ReadShareGroupStateResponsePartition]


class ReadShareGroupStateResponse(Struct, flexible="0+"):
    results: list[ReadShareGroupStateResponseResult]


class WriteShareGroupStateRequestStateBatch(Struct):
    first_offset: Offset
    last_offset: Offset
    delivery_state: Int8
    delivery_count: Int16  # How often the records were delivered, this time included.


class WriteShareGroupStateRequestPartition(Struct):
    partition: Int32
    state_epoch: Int32
    leader_epoch: LeaderEpoch
    start_offset: Offset
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
    state_batches: list[WriteShareGroupStateRequestStateBatch]


class WriteShareGroupStateRequestTopic(Struct):
    topic_id: UUID
    partitions: list[WriteShareGroupStateRequestPartition]


class WriteShareGroupStateRequest(Struct, flexible="0+"):
    group_id: str
    topics: list[WriteShareGroupStateRequestTopic]


class WriteShareGroupStateResponsePartition(Struct):
    partition: Int32
    error_code: Int16
    error_message: str | None = field(default=None)


class WriteShareGroupStateResponseResult(Struct):
    topic_id: UUID
    partitions: list[WriteShareGroupStateResponsePartition]


class WriteShareGroupStateResponse(Struct, flexible="0+"):
    results: list[WriteShareGroupStateResponseResult]


class DeleteShareGroupStateRequestPartition(Struct):
    partition: Int32


class DeleteShareGroupStateRequestTopic(Struct):
    topic_id: UUID
    partitions: list[DeleteShareGroupStateRequestPartition]


class DeleteShareGroupStateRequest(Struct, flexible="0+"):
    group_id: str
    topics: list[DeleteShareGroupStateRequestTopic]


class DeleteShareGroupStateResponsePartition(Struct):
    partition: Int32
    error_code: Int16
    error_message: str | None = field(default=None)


class DeleteShareGroupStateResponseResult(Struct):
    topic_id: UUID
    partitions: list[DeleteShareGroupStateResponsePartition]


class DeleteShareGroupStateResponse(Struct, flexible="0+"):
    results: list[DeleteShareGroupStateResponseResult]


class ReadShareGroupStateSummaryRequestPartition(Struct):
    partition: Int32
    leader_epoch: LeaderEpoch


class ReadShareGroupStateSummaryRequestTopic(Struct):
    topic_id: UUID
    partitions: list[ReadShareGroupStateSummaryRequestPartition]


class ReadShareGroupStateSummaryRequest(Struct, flexible="0+"):
    group_id: str
    topics: list[ReadShareGroupStateSummaryRequestTopic]


class ReadShareGroupStateSummaryResponsePartition(Struct):
    partition: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    state_epoch: Int32
    leader_epoch: LeaderEpoch
    start_offset: Offset
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)


class ReadShareGroupStateSummaryResponseResult(Struct):
    topic_id: UUID
    partitions: list[ReadShareGroupStateSummaryResponsePartition]


class ReadShareGroupStateSummaryResponse(Struct, flexible="0+"):
    results: list[ReadShareGroupStateSummaryResponseResult]
