"""The APIs by which brokers keep the state of share partitions with its coordinator.

Declarations only. Source: the JSON definitions of the same names (KIP-932, KIP-1226).
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int16, Int32, Struct, field
from tidelog.protocol.messages.structs import DeliveryStateBatch
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


class StateResultPartition(Struct):
    partition: Int32
    error_code: Int16
    error_message: str | None = field(default=None)


class StateResult(Struct):
    topic_id: UUID
    partitions: list[StateResultPartition]


class InitializeShareGroupStateResponse(Struct, flexible="0+"):
    results: list[StateResult]


class ReadStatePartition(Struct):
    partition: Int32
    leader_epoch: LeaderEpoch


class ReadStateTopic(Struct):
    topic_id: UUID
    partitions: list[ReadStatePartition]


class ReadShareGroupStateRequest(Struct, flexible="0+"):
    group_id: str
    topics: list[ReadStateTopic]


class ReadShareGroupStateResponsePartition(Struct):
    partition: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    state_epoch: Int32
    start_offset: Offset
    state_batches: list[DeliveryStateBatch]


class ReadShareGroupStateResponseResult(Struct):
    topic_id: UUID
    partitions: list[ReadShareGroupStateResponsePartition]


class ReadShareGroupStateResponse(Struct, flexible="0+"):
    results: list[ReadShareGroupStateResponseResult]


class WriteShareGroupStateRequestPartition(Struct):
    partition: Int32
    state_epoch: Int32
    leader_epoch: LeaderEpoch
    start_offset: Offset
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
    state_batches: list[DeliveryStateBatch]


class WriteShareGroupStateRequestTopic(Struct):
    topic_id: UUID
    partitions: list[WriteShareGroupStateRequestPartition]


class WriteShareGroupStateRequest(Struct, flexible="0+"):
    group_id: str
    topics: list[WriteShareGroupStateRequestTopic]


class WriteShareGroupStateResponse(Struct, flexible="0+"):
    results: list[StateResult]


class DeleteShareGroupStateRequestPartition(Struct):
    partition: Int32


class DeleteShareGroupStateRequestTopic(Struct):
    topic_id: UUID
    partitions: list[DeleteShareGroupStateRequestPartition]


class DeleteShareGroupStateRequest(Struct, flexible="0+"):
    group_id: str
    topics: list[DeleteShareGroupStateRequestTopic]


class DeleteShareGroupStateResponse(Struct, flexible="0+"):
    results: list[StateResult]


class ReadShareGroupStateSummaryRequest(Struct, flexible="0+"):
    group_id: str
    topics: list[ReadStateTopic]


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
