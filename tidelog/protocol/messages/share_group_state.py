"""The APIs by which brokers keep the state of share partitions with its coordinator.

Declarations only. Source: the JSON definitions of the same names (KIP-932, KIP-1226).
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int16, Int32, Struct, field
from tidelog.protocol.messages.structs import DeliveryStateBatch
from tidelog.protocol.types import LeaderEpoch, Offset


class InitializeShareGroupStateRequestPartition(Struct):
    partition: Int32
    state_epoch: Int32  # Of the group when the state began; a smaller one is fenced.
    start_offset: Offset  # The first record to deliver; -1: its first leader decides.


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
    leader_epoch: LeaderEpoch  # Of the leader that asks; a smaller one is fenced.


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
    state_epoch: Int32  # What each write has to name.
    start_offset: Offset  # Before it all records are done; -1: nothing was read yet.
    state_batches: list[DeliveryStateBatch]  # Of records from start_offset on; others are new.


class ReadShareGroupStateResponseResult(Struct):
    topic_id: UUID
    partitions: list[ReadShareGroupStateResponsePartition]


class ReadShareGroupStateResponse(Struct, flexible="0+"):
    results: list[ReadShareGroupStateResponseResult]


class WriteShareGroupStateRequestPartition(Struct):
    partition: Int32
    state_epoch: Int32  # As it was read; a smaller one is fenced.
    leader_epoch: LeaderEpoch  # Of the leader that writes; a smaller one is fenced.
    start_offset: Offset  # -1: as before.
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)  # Of done records; -1: unknown.
    state_batches: list[DeliveryStateBatch]  # Of the records that changed.


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
    state_epoch: Int32  # Of the group when the state began.
    leader_epoch: LeaderEpoch  # Of the leader that read or wrote last; -1: none.
    start_offset: Offset  # Before it all records are done; -1: nothing was read yet.
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)  # Of done records; -1: unknown.


class ReadShareGroupStateSummaryResponseResult(Struct):
    topic_id: UUID
    partitions: list[ReadShareGroupStateSummaryResponsePartition]


class ReadShareGroupStateSummaryResponse(Struct, flexible="0+"):
    results: list[ReadShareGroupStateSummaryResponseResult]
