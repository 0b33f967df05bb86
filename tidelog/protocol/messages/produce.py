"""Produce and InitProducerId: the APIs of producers.

Declarations only; `protocol.hot` has the values of Produce as tuples. Source: the JSON definitions of the
same names (KIP-98, KIP-360, KIP-467, KIP-516, KIP-939, KIP-951).
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int16, Int32, Int64, Records, Struct, field
from tidelog.protocol.messages.structs import CurrentLeader, NodeEndpoint
from tidelog.protocol.types import Offset, ProducerEpoch, ProducerId


class ProduceRequestPartitionData(Struct):
    index: Int32
    records: Records | None  # One batch of format 2.


class ProduceRequestTopicData(Struct):
    name: str = field("0-12", ignorable=True)
    topic_id: UUID = field("13+", ignorable=True)  # In place of the name (KIP-516).
    partition_data: list[ProduceRequestPartitionData]


class ProduceRequest(Struct, flexible="9+"):
    transactional_id: str | None = field("3+", default=None)  # Null: not transactional.
    acks: Int16  # 0: no answer, 1: the leader has it, -1: all in-sync replicas have it.
    timeout_ms: Int32  # How long the leader may wait for replicas.
    topic_data: list[ProduceRequestTopicData]


class ProduceResponseRecordError(Struct):
    batch_index: Int32 = field("8+")  # The record in the batch that was refused.
    batch_index_error_message: str | None = field("8+", default=None)  # Why the record was refused.


class ProduceResponsePartitionResponse(Struct):
    index: Int32
    error_code: Int16
    base_offset: Offset  # Of the first record of the batch; -1: refused, or unknown.
    log_append_time_ms: Int64 = field("2+", default=-1, ignorable=True)  # -1: records have their own times.
    log_start_offset: Offset = field("5+", default=-1, ignorable=True)  # The oldest offset that can be read.
    record_errors: list[ProduceResponseRecordError] = field("8+", ignorable=True)  # The records at fault.
    error_message: str | None = field("8+", default=None, ignorable=True)
    current_leader: CurrentLeader = field("10+", tag=0)  # If another broker leads, or in another epoch.


class ProduceResponseResponse(Struct):
    name: str = field("0-12", ignorable=True)
    topic_id: UUID = field("13+", ignorable=True)
    partition_responses: list[ProduceResponsePartitionResponse]


class ProduceResponse(Struct, flexible="9+"):
    responses: list[ProduceResponseResponse]
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0)  # Of each leader that current_leader names.


class InitProducerIdRequest(Struct, flexible="2+"):
    transactional_id: str | None  # Null: the producer is idempotent only.
    transaction_timeout_ms: Int32  # After it the coordinator aborts an open transaction.
    producer_id: ProducerId = field("3+", default=-1)  # Of a producer that asks for its next epoch.
    producer_epoch: ProducerEpoch = field("3+", default=-1)  # What the producer has now; -1: none.
    enable2_pc: bool = field("6+", default=False)  # Two-phase commit: the transaction has no timeout.
    keep_prepared_txn: bool = field("6+", default=False)  # Whether a prepared transaction survives.


class InitProducerIdResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32 = field(ignorable=True)
    error_code: Int16
    producer_id: ProducerId = field(default=-1)  # -1: an error.
    producer_epoch: ProducerEpoch
    ongoing_txn_producer_id: ProducerId = field("6+", default=-1, ignorable=True)  # -1: none was kept.
    ongoing_txn_producer_epoch: ProducerEpoch = field("6+", default=-1, ignorable=True)  # -1: none was kept.
