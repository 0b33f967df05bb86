"""The APIs of transactions: partitions and offsets of a transaction, its end, their list and description.

Declarations only. InitProducerId, with which a transactional producer begins, is in `produce`. Source: the
JSON definitions of the same names (KIP-98, KIP-447, KIP-664, KIP-890, KIP-994,
KIP-1152). AddPartitionsToTxn has two
layouts: one transaction up to version 3, a list of them from version 4, which only brokers send.
"""

from tidelog.protocol.messages.declaration import Field, by_partition, message, structs

_PARTITIONS_OF_A_TOPIC = (Field("name", "string"), Field("partitions", "[]int32"))
_RESULTS_OF_A_TOPIC = (
    Field("name", "string"),
    structs(
        "results_by_partition", Field("partition_index", "int32"), Field("partition_error_code", "int16")
    ),
)

ADD_PARTITIONS_TO_TXN_REQUEST = message(
    "AddPartitionsToTxnRequest",
    "3+",
    structs(
        "transactions",
        Field("transactional_id", "string", "4+"),
        Field("producer_id", "int64", "4+"),
        Field("producer_epoch", "int16", "4+"),
        Field("verify_only", "bool", "4+", default=False),
        structs("topics", *_PARTITIONS_OF_A_TOPIC, versions="4+"),
        versions="4+",
    ),
    Field("v3_and_below_transactional_id", "string", "0-3"),
    Field("v3_and_below_producer_id", "int64", "0-3"),
    Field("v3_and_below_producer_epoch", "int16", "0-3"),
    structs("v3_and_below_topics", *_PARTITIONS_OF_A_TOPIC, versions="0-3"),
)

ADD_PARTITIONS_TO_TXN_RESPONSE = message(
    "AddPartitionsToTxnResponse",
    "3+",
    Field("throttle_time_ms", "int32"),
    Field("error_code", "int16", "4+", ignorable=True),
    structs(
        "results_by_transaction",
        Field("transactional_id", "string", "4+"),
        structs("topic_results", *_RESULTS_OF_A_TOPIC, versions="4+"),
        versions="4+",
    ),
    structs("results_by_topic_v3_and_below", *_RESULTS_OF_A_TOPIC, versions="0-3"),
)

ADD_OFFSETS_TO_TXN_REQUEST = message(
    "AddOffsetsToTxnRequest",
    "3+",
    Field("transactional_id", "string"),
    Field("producer_id", "int64"),
    Field("producer_epoch", "int16"),
    Field("group_id", "string"),
)

ADD_OFFSETS_TO_TXN_RESPONSE = message(
    "AddOffsetsToTxnResponse", "3+", Field("throttle_time_ms", "int32"), Field("error_code", "int16")
)

END_TXN_REQUEST = message(
    "EndTxnRequest",
    "3+",
    Field("transactional_id", "string"),
    Field("producer_id", "int64"),
    Field("producer_epoch", "int16"),
    Field("committed", "bool"),
)

END_TXN_RESPONSE = message(
    "EndTxnResponse",
    "3+",
    Field("throttle_time_ms", "int32"),
    Field("error_code", "int16"),
    Field("producer_id", "int64", "5+", default=-1, ignorable=True),
    Field("producer_epoch", "int16", "5+", default=-1, ignorable=True),
)

TXN_OFFSET_COMMIT_REQUEST = message(
    "TxnOffsetCommitRequest",
    "3+",
    Field("transactional_id", "string"),
    Field("group_id", "string"),
    Field("producer_id", "int64"),
    Field("producer_epoch", "int16"),
    Field("generation_id", "int32", "3+", default=-1),
    Field("member_id", "string", "3+"),
    Field("group_instance_id", "string", "3+", nullable="3+", default=None),
    by_partition(
        Field("committed_offset", "int64"),
        Field("committed_leader_epoch", "int32", "2+", default=-1, ignorable=True),
        Field("committed_metadata", "string", nullable="0+"),
    ),
)

TXN_OFFSET_COMMIT_RESPONSE = message(
    "TxnOffsetCommitResponse",
    "3+",
    Field("throttle_time_ms", "int32"),
    by_partition(Field("error_code", "int16")),
)

DESCRIBE_TRANSACTIONS_REQUEST = message(
    "DescribeTransactionsRequest", "0+", Field("transactional_ids", "[]string")
)

DESCRIBE_TRANSACTIONS_RESPONSE = message(
    "DescribeTransactionsResponse",
    "0+",
    Field("throttle_time_ms", "int32"),
    structs(
        "transaction_states",
        Field("error_code", "int16"),
        Field("transactional_id", "string"),
        Field("transaction_state", "string"),
        Field("transaction_timeout_ms", "int32"),
        Field("transaction_start_time_ms", "int64"),
        Field("producer_id", "int64"),
        Field("producer_epoch", "int16"),
        structs("topics", Field("topic", "string"), Field("partitions", "[]int32")),
    ),
)

LIST_TRANSACTIONS_REQUEST = message(
    "ListTransactionsRequest",
    "0+",
    Field("state_filters", "[]string"),
    Field("producer_id_filters", "[]int64"),
    Field("duration_filter", "int64", "1+", default=-1),
    Field("transactional_id_pattern", "string", "2+", nullable="2+", default=None),
)

LIST_TRANSACTIONS_RESPONSE = message(
    "ListTransactionsResponse",
    "0+",
    Field("throttle_time_ms", "int32"),
    Field("error_code", "int16"),
    Field("unknown_state_filters", "[]string"),
    structs(
        "transaction_states",
        Field("transactional_id", "string"),
        Field("producer_id", "int64"),
        Field("transaction_state", "string"),
    ),
)
