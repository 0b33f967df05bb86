"""The APIs of transactions: partitions and offsets of a transaction, its end, their list and description.

Declarations only. InitProducerId, with which a transactional producer begins, is in `produce`. Source: the
JSON definitions of the same names (KIP-98, KIP-447, KIP-664, KIP-890, KIP-994,
KIP-1152). AddPartitionsToTxn has two
layouts: one transaction up to version 3, a list of them from version 4, which only brokers send.
"""

from tidelog.protocol.messages.declaration import Int16, Int32, Int64, Struct, field
from tidelog.protocol.messages.structs import PartitionsByName, TopicErrors
from tidelog.protocol.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId


class AddPartitionsToTxnRequestTopic(Struct):
    name: str
    partitions: list[Int32]


class AddPartitionsToTxnRequestTransaction(Struct):
    transactional_id: str = field("4+")
    producer_id: ProducerId = field("4+")
    producer_epoch: ProducerEpoch = field("4+")
    verify_only: bool = field("4+", default=False)  # Whether to ask instead of to add.
    topics: list[AddPartitionsToTxnRequestTopic] = field("4+")


class AddPartitionsToTxnRequest(Struct, flexible="3+"):
    transactions: list[AddPartitionsToTxnRequestTransaction] = field("4+")
    v3_and_below_transactional_id: str = field("0-3")
    v3_and_below_producer_id: ProducerId = field("0-3")
    v3_and_below_producer_epoch: ProducerEpoch = field("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnRequestTopic] = field("0-3")


class AddPartitionsToTxnResponseResultsByPartition(Struct):
    partition_index: Int32
    partition_error_code: Int16


class AddPartitionsToTxnResponseTopicResult(Struct):
    name: str
    results_by_partition: list[AddPartitionsToTxnResponseResultsByPartition]


class AddPartitionsToTxnResponseResultsByTransaction(Struct):
    transactional_id: str = field("4+")
    topic_results: list[AddPartitionsToTxnResponseTopicResult] = field("4+")


class AddPartitionsToTxnResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16 = field("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResponseResultsByTransaction] = field("4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponseTopicResult] = field("0-3")


class AddOffsetsToTxnRequest(Struct, flexible="3+"):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    group_id: str


class AddOffsetsToTxnResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16


class EndTxnRequest(Struct, flexible="3+"):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    committed: bool  # False: abort.


class EndTxnResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: ProducerId = field("5+", default=-1, ignorable=True)
    producer_epoch: ProducerEpoch = field("5+", default=-1, ignorable=True)


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Offset
    committed_leader_epoch: LeaderEpoch = field("2+", default=-1, ignorable=True)
    committed_metadata: str | None  # Any text that the client keeps with the offset.


class TxnOffsetCommitRequestTopic(Struct):
    name: str
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Struct, flexible="3+"):
    transactional_id: str
    group_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    generation_id: Int32 = field("3+", default=-1)
    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32
    topics: list[TopicErrors]


class DescribeTransactionsRequest(Struct, flexible="0+"):
    transactional_ids: list[str]


class DescribeTransactionsResponseTransactionState(Struct):
    error_code: Int16
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    topics: list[PartitionsByName]


class DescribeTransactionsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    transaction_states: list[DescribeTransactionsResponseTransactionState]


class ListTransactionsRequest(Struct, flexible="0+"):
    state_filters: list[str]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field("1+", default=-1)  # Only those open for longer than so many ms.
    transactional_id_pattern: str | None = field("2+", default=None)


class ListTransactionsResponseTransactionState(Struct):
    transactional_id: str
    producer_id: ProducerId
    transaction_state: str


class ListTransactionsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: list[str]
    transaction_states: list[ListTransactionsResponseTransactionState]
