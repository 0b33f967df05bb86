"""The APIs of transactions: partitions and offsets of a transaction, its end, their list and description.

Declarations only. InitProducerId, with which a transactional producer begins, is in `produce`. Source: the
JSON definitions of the same names (KIP-98, KIP-447, KIP-664, KIP-890, KIP-994,
KIP-1152). AddPartitionsToTxn has two
layouts: one transaction up to version 3, a list of them from version 4, which only brokers send.
"""

from tidelog.protocol.messages.declaration import Field, Message

_PARTITIONS_OF_A_TOPIC = (
    Field("name", "string", "0+"),
    Field("partitions", "[]int32", "0+"),
)
_RESULTS_OF_A_TOPIC = (
    Field("name", "string", "0+"),
    Field(
        "results_by_partition",
        "[]struct",
        "0+",
        fields=(
            Field("partition_index", "int32", "0+"),
            Field("partition_error_code", "int16", "0+"),
        ),
    ),
)

ADD_PARTITIONS_TO_TXN_REQUEST = Message(
    "AddPartitionsToTxnRequest",
    flexible="3+",
    fields=(
        Field(
            "transactions",
            "[]struct",
            "4+",
            fields=(
                Field("transactional_id", "string", "4+"),
                Field("producer_id", "int64", "4+"),
                Field("producer_epoch", "int16", "4+"),
                Field("verify_only", "bool", "4+", default=False),
                Field("topics", "[]struct", "4+", fields=_PARTITIONS_OF_A_TOPIC),
            ),
        ),
        Field("v3_and_below_transactional_id", "string", "0-3"),
        Field("v3_and_below_producer_id", "int64", "0-3"),
        Field("v3_and_below_producer_epoch", "int16", "0-3"),
        Field("v3_and_below_topics", "[]struct", "0-3", fields=_PARTITIONS_OF_A_TOPIC),
    ),
)

ADD_PARTITIONS_TO_TXN_RESPONSE = Message(
    "AddPartitionsToTxnResponse",
    flexible="3+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        Field("error_code", "int16", "4+", ignorable=True),
        Field(
            "results_by_transaction",
            "[]struct",
            "4+",
            fields=(
                Field("transactional_id", "string", "4+"),
                Field("topic_results", "[]struct", "4+", fields=_RESULTS_OF_A_TOPIC),
            ),
        ),
        Field("results_by_topic_v3_and_below", "[]struct", "0-3", fields=_RESULTS_OF_A_TOPIC),
    ),
)

ADD_OFFSETS_TO_TXN_REQUEST = Message(
    "AddOffsetsToTxnRequest",
    flexible="3+",
    fields=(
        Field("transactional_id", "string", "0+"),
        Field("producer_id", "int64", "0+"),
        Field("producer_epoch", "int16", "0+"),
        Field("group_id", "string", "0+"),
    ),
)

ADD_OFFSETS_TO_TXN_RESPONSE = Message(
    "AddOffsetsToTxnResponse",
    flexible="3+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        Field("error_code", "int16", "0+"),
    ),
)

END_TXN_REQUEST = Message(
    "EndTxnRequest",
    flexible="3+",
    fields=(
        Field("transactional_id", "string", "0+"),
        Field("producer_id", "int64", "0+"),
        Field("producer_epoch", "int16", "0+"),
        Field("committed", "bool", "0+"),
    ),
)

END_TXN_RESPONSE = Message(
    "EndTxnResponse",
    flexible="3+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        Field("error_code", "int16", "0+"),
        Field("producer_id", "int64", "5+", default=-1, ignorable=True),
        Field("producer_epoch", "int16", "5+", default=-1, ignorable=True),
    ),
)

TXN_OFFSET_COMMIT_REQUEST = Message(
    "TxnOffsetCommitRequest",
    flexible="3+",
    fields=(
        Field("transactional_id", "string", "0+"),
        Field("group_id", "string", "0+"),
        Field("producer_id", "int64", "0+"),
        Field("producer_epoch", "int16", "0+"),
        Field("generation_id", "int32", "3+", default=-1),
        Field("member_id", "string", "3+"),
        Field("group_instance_id", "string", "3+", nullable="3+", default=None),
        Field(
            "topics",
            "[]struct",
            "0+",
            fields=(
                Field("name", "string", "0+"),
                Field(
                    "partitions",
                    "[]struct",
                    "0+",
                    fields=(
                        Field("partition_index", "int32", "0+"),
                        Field("committed_offset", "int64", "0+"),
                        Field("committed_leader_epoch", "int32", "2+", default=-1, ignorable=True),
                        Field("committed_metadata", "string", "0+", nullable="0+"),
                    ),
                ),
            ),
        ),
    ),
)

TXN_OFFSET_COMMIT_RESPONSE = Message(
    "TxnOffsetCommitResponse",
    flexible="3+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        Field(
            "topics",
            "[]struct",
            "0+",
            fields=(
                Field("name", "string", "0+"),
                Field(
                    "partitions",
                    "[]struct",
                    "0+",
                    fields=(
                        Field("partition_index", "int32", "0+"),
                        Field("error_code", "int16", "0+"),
                    ),
                ),
            ),
        ),
    ),
)

DESCRIBE_TRANSACTIONS_REQUEST = Message(
    "DescribeTransactionsRequest",
    flexible="0+",
    fields=(Field("transactional_ids", "[]string", "0+"),),
)

DESCRIBE_TRANSACTIONS_RESPONSE = Message(
    "DescribeTransactionsResponse",
    flexible="0+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        Field(
            "transaction_states",
            "[]struct",
            "0+",
            fields=(
                Field("error_code", "int16", "0+"),
                Field("transactional_id", "string", "0+"),
                Field("transaction_state", "string", "0+"),
                Field("transaction_timeout_ms", "int32", "0+"),
                Field("transaction_start_time_ms", "int64", "0+"),
                Field("producer_id", "int64", "0+"),
                Field("producer_epoch", "int16", "0+"),
                Field(
                    "topics",
                    "[]struct",
                    "0+",
                    fields=(
                        Field("topic", "string", "0+"),
                        Field("partitions", "[]int32", "0+"),
                    ),
                ),
            ),
        ),
    ),
)

LIST_TRANSACTIONS_REQUEST = Message(
    "ListTransactionsRequest",
    flexible="0+",
    fields=(
        Field("state_filters", "[]string", "0+"),
        Field("producer_id_filters", "[]int64", "0+"),
        Field("duration_filter", "int64", "1+", default=-1),
        Field("transactional_id_pattern", "string", "2+", nullable="2+", default=None),
    ),
)

LIST_TRANSACTIONS_RESPONSE = Message(
    "ListTransactionsResponse",
    flexible="0+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        Field("error_code", "int16", "0+"),
        Field("unknown_state_filters", "[]string", "0+"),
        Field(
            "transaction_states",
            "[]struct",
            "0+",
            fields=(
                Field("transactional_id", "string", "0+"),
                Field("producer_id", "int64", "0+"),
                Field("transaction_state", "string", "0+"),
            ),
        ),
    ),
)
