"""The APIs of transactions: partitions and offsets of a transaction, its end, their list and description.

Declarations only. InitProducerId, with which a transactional producer begins, is in `produce`. Source: the
JSON definitions of the same names (KIP-98, KIP-447, KIP-664, KIP-890, KIP-994,
KIP-1152). AddPartitionsToTxn has two
layouts: one transaction up to version 3, a list of them from version 4, which only brokers send.
"""

from tidelog.protocol.messages.declaration import Field, message, structs

_PARTITIONS_OF_A_TOPIC = (Field("name", "string", "0+"), Field("partitions", "[]int32", "0+"))
_RESULTS_OF_A_TOPIC = (
    Field("name", "string", "0+"),
    structs(
        "results_by_partition",
        "0+",
        Field("partition_index", "int32", "0+"),
        Field("partition_error_code", "int16", "0+"),
    ),
)

ADD_PARTITIONS_TO_TXN_REQUEST = message(
    "AddPartitionsToTxnRequest",
    "3+",
    structs(
        "transactions",
        "4+",
        Field("transactional_id", "string", "4+"),
        Field("producer_id", "int64", "4+"),
        Field("producer_epoch", "int16", "4+"),
        Field("verify_only", "bool", "4+", default=False),
        structs("topics", "4+", *_PARTITIONS_OF_A_TOPIC),
    ),
    Field("v3_and_below_transactional_id", "string", "0-3"),
    Field("v3_and_below_producer_id", "int64", "0-3"),
    Field("v3_and_below_producer_epoch", "int16", "0-3"),
    structs("v3_and_below_topics", "0-3", *_PARTITIONS_OF_A_TOPIC),
)

ADD_PARTITIONS_TO_TXN_RESPONSE = message(
    "AddPartitionsToTxnResponse",
    "3+",
    Field("throttle_time_ms", "int32", "0+"),
    Field("error_code", "int16", "4+", ignorable=True),
    structs(
        "results_by_transaction",
        "4+",
        Field("transactional_id", "string", "4+"),
        structs("topic_results", "4+", *_RESULTS_OF_A_TOPIC),
    ),
    structs("results_by_topic_v3_and_below", "0-3", *_RESULTS_OF_A_TOPIC),
)

ADD_OFFSETS_TO_TXN_REQUEST = message(
    "AddOffsetsToTxnRequest",
    "3+",
    Field("transactional_id", "string", "0+"),
    Field("producer_id", "int64", "0+"),
    Field("producer_epoch", "int16", "0+"),
    Field("group_id", "string", "0+"),
)

ADD_OFFSETS_TO_TXN_RESPONSE = message(
    "AddOffsetsToTxnResponse",
    "3+",
    Field("throttle_time_ms", "int32", "0+"),
    Field("error_code", "int16", "0+"),
)

END_TXN_REQUEST = message(
    "EndTxnRequest",
    "3+",
    Field("transactional_id", "string", "0+"),
    Field("producer_id", "int64", "0+"),
    Field("producer_epoch", "int16", "0+"),
    Field("committed", "bool", "0+"),
)

END_TXN_RESPONSE = message(
    "EndTxnResponse",
    "3+",
    Field("throttle_time_ms", "int32", "0+"),
    Field("error_code", "int16", "0+"),
    Field("producer_id", "int64", "5+", default=-1, ignorable=True),
    Field("producer_epoch", "int16", "5+", default=-1, ignorable=True),
)

TXN_OFFSET_COMMIT_REQUEST = message(
    "TxnOffsetCommitRequest",
    "3+",
    Field("transactional_id", "string", "0+"),
    Field("group_id", "string", "0+"),
    Field("producer_id", "int64", "0+"),
    Field("producer_epoch", "int16", "0+"),
    Field("generation_id", "int32", "3+", default=-1),
    Field("member_id", "string", "3+"),
    Field("group_instance_id", "string", "3+", nullable="3+", default=None),
    structs(
        "topics",
        "0+",
        Field("name", "string", "0+"),
        structs(
            "partitions",
            "0+",
            Field("partition_index", "int32", "0+"),
            Field("committed_offset", "int64", "0+"),
            Field("committed_leader_epoch", "int32", "2+", default=-1, ignorable=True),
            Field("committed_metadata", "string", "0+", nullable="0+"),
        ),
    ),
)

TXN_OFFSET_COMMIT_RESPONSE = message(
    "TxnOffsetCommitResponse",
    "3+",
    Field("throttle_time_ms", "int32", "0+"),
    structs(
        "topics",
        "0+",
        Field("name", "string", "0+"),
        structs(
            "partitions", "0+", Field("partition_index", "int32", "0+"), Field("error_code", "int16", "0+")
        ),
    ),
)

DESCRIBE_TRANSACTIONS_REQUEST = message(
    "DescribeTransactionsRequest", "0+", Field("transactional_ids", "[]string", "0+")
)

DESCRIBE_TRANSACTIONS_RESPONSE = message(
    "DescribeTransactionsResponse",
    "0+",
    Field("throttle_time_ms", "int32", "0+"),
    structs(
        "transaction_states",
        "0+",
        Field("error_code", "int16", "0+"),
        Field("transactional_id", "string", "0+"),
        Field("transaction_state", "string", "0+"),
        Field("transaction_timeout_ms", "int32", "0+"),
        Field("transaction_start_time_ms", "int64", "0+"),
        Field("producer_id", "int64", "0+"),
        Field("producer_epoch", "int16", "0+"),
        structs("topics", "0+", Field("topic", "string", "0+"), Field("partitions", "[]int32", "0+")),
    ),
)

LIST_TRANSACTIONS_REQUEST = message(
    "ListTransactionsRequest",
    "0+",
    Field("state_filters", "[]string", "0+"),
    Field("producer_id_filters", "[]int64", "0+"),
    Field("duration_filter", "int64", "1+", default=-1),
    Field("transactional_id_pattern", "string", "2+", nullable="2+", default=None),
)

LIST_TRANSACTIONS_RESPONSE = message(
    "ListTransactionsResponse",
    "0+",
    Field("throttle_time_ms", "int32", "0+"),
    Field("error_code", "int16", "0+"),
    Field("unknown_state_filters", "[]string", "0+"),
    structs(
        "transaction_states",
        "0+",
        Field("transactional_id", "string", "0+"),
        Field("producer_id", "int64", "0+"),
        Field("transaction_state", "string", "0+"),
    ),
)
