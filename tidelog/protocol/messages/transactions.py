"""The APIs of transactions: their partitions, offsets, end, markers and list; and the records of their state.

Declarations only. InitProducerId, with which a transactional producer begins, is in `produce`. Source: the
JSON definitions of the same names (KIP-98, KIP-447, KIP-664, KIP-890, KIP-939, KIP-994, KIP-1152, KIP-1228).
AddPartitionsToTxn has two layouts: one transaction up to version 3, a list of them from version 4, which only
brokers send. The key and the value of a record of `__transaction_state` each begin with an int16 version, see
`protocol.coordinator_records`.
"""

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Int64, Struct, field
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
    transactions: list[AddPartitionsToTxnRequestTransaction] = field("4+")  # From brokers (KIP-890).
    v3_and_below_transactional_id: str = field("0-3")  # From clients, which have one transaction.
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
    group_id: str  # Its partition of __consumer_offsets joins the transaction.


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
    producer_id: ProducerId = field("5+", default=-1, ignorable=True)  # For the next one (KIP-890).
    producer_epoch: ProducerEpoch = field("5+", default=-1, ignorable=True)  # For the next transaction.


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Offset  # Of the next record to read.
    committed_leader_epoch: LeaderEpoch = field("2+", default=-1, ignorable=True)  # -1: unknown.
    committed_metadata: str | None  # Any text that the client keeps with the offset.


class TxnOffsetCommitRequestTopic(Struct):
    name: str
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Struct, flexible="3+"):
    transactional_id: str
    group_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    generation_id: Int32 = field("3+", default=-1)  # Of the consumer (KIP-447); -1: not a member.
    member_id: str = field("3+")  # Empty: the consumer is no member.
    group_instance_id: str | None = field("3+", default=None)  # Of a static member; null: none.
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32
    topics: list[TopicErrors]


class DescribeTransactionsRequest(Struct, flexible="0+"):
    transactional_ids: list[str]  # Empty: none.


class DescribeTransactionsResponseTransactionState(Struct):
    error_code: Int16
    transactional_id: str
    transaction_state: str  # Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort.
    transaction_timeout_ms: Int32  # 2147483647: none, with two-phase commit.
    transaction_start_time_ms: Int64  # -1: none has begun.
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    topics: list[PartitionsByName]  # What takes part, as far as the user may see it.


class DescribeTransactionsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    transaction_states: list[DescribeTransactionsResponseTransactionState]


class ListTransactionsRequest(Struct, flexible="0+"):
    state_filters: list[str]  # As DescribeTransactions names them; empty: all.
    producer_id_filters: list[Int64]  # Empty: all.
    duration_filter: Int64 = field("1+", default=-1)  # Only those open for longer than so many ms.
    transactional_id_pattern: str | None = field("2+", default=None)  # In RE2's syntax; null or empty: all.


class ListTransactionsResponseTransactionState(Struct):
    transactional_id: str
    producer_id: ProducerId
    transaction_state: str


class ListTransactionsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: list[str]  # Those of state_filters that name no state.
    transaction_states: list[ListTransactionsResponseTransactionState]


class WriteTxnMarkersRequestTopic(Struct):
    name: str = field("1+")
    partition_indexes: list[Int32] = field("1+")


class WriteTxnMarkersRequestMarker(Struct):
    producer_id: ProducerId = field("1+")
    producer_epoch: ProducerEpoch = field("1+")  # Not below that of the transaction's data.
    transaction_result: bool = field("1+")  # True: commit, false: abort.
    topics: list[WriteTxnMarkersRequestTopic] = field("1+")
    coordinator_epoch: Int32 = field("1+")  # Fences a coordinator that was replaced.
    transaction_version: Int8 = field("2+", default=0, ignorable=True)  # 2: it has an epoch of its own.


class WriteTxnMarkersRequest(Struct, flexible="1+"):
    markers: list[WriteTxnMarkersRequestMarker] = field("1+")


class WriteTxnMarkersResponsePartition(Struct):
    partition_index: Int32 = field("1+")
    error_code: Int16 = field("1+")


class WriteTxnMarkersResponseTopic(Struct):
    name: str = field("1+")
    partitions: list[WriteTxnMarkersResponsePartition] = field("1+")


class WriteTxnMarkersResponseMarker(Struct):
    producer_id: ProducerId = field("1+")
    topics: list[WriteTxnMarkersResponseTopic] = field("1+")


class WriteTxnMarkersResponse(Struct, flexible="1+"):
    markers: list[WriteTxnMarkersResponseMarker] = field("1+")


class TransactionLogKey(Struct):
    transactional_id: str = field("0")


class TransactionLogValueTransactionPartition(Struct):
    topic: str
    partition_ids: list[Int32]


class TransactionLogValue(Struct, flexible="1+"):
    producer_id: ProducerId  # Of the data of the transaction.
    previous_producer_id: ProducerId = field("1+", default=-1, ignorable=True, tag=0)  # -1: none.
    next_producer_id: ProducerId = field("1+", default=-1, ignorable=True, tag=1)  # The client's, unless -1.
    producer_epoch: ProducerEpoch  # Once the outcome is decided, that of the markers.
    transaction_timeout_ms: Int32  # 2147483647: none, with two-phase commit.
    transaction_status: Int8  # 0: empty, 1: ongoing, 2: commits, 3: aborts, 4: committed, 5: aborted.
    transaction_partitions: list[TransactionLogValueTransactionPartition] | None  # Null: status 0.
    transaction_last_update_timestamp_ms: Int64  # When the state was changed.
    transaction_start_timestamp_ms: Int64  # -1: none has begun.
    client_transaction_version: Int16 = field("1+", ignorable=True, tag=2)  # Of the last EndTxn; or 0.
    next_producer_epoch: ProducerEpoch = field("1+", default=-1, ignorable=True, tag=3)  # Of that; -1: none.
    # Not Kafka's, which does not store it and skips tags that it does not know.
    last_producer_epoch: ProducerEpoch = field("1+", default=-1, ignorable=True, tag=10_000)
