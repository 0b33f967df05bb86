"""The records in the log of `__transaction_state`: the id of a transactional producer, and its state.

Declarations only. A record's key and value each begin with an int16 version, see
`protocol.coordinator_records`. Versions: the key 0, the value 0 and 1.

Source: TransactionLogKey.json, TransactionLogValue.json (KIP-98, KIP-890, KIP-939).
"""

from tidelog.protocol.messages.declaration import Field, message, structs

TRANSACTION_LOG_KEY = message("TransactionLogKey", "", Field("transactional_id", "string", "0"))

TRANSACTION_LOG_VALUE = message(
    "TransactionLogValue",
    "1+",
    Field("producer_id", "int64"),
    Field("previous_producer_id", "int64", "1+", default=-1, tag=0, ignorable=True),
    Field("next_producer_id", "int64", "1+", default=-1, tag=1, ignorable=True),
    Field("producer_epoch", "int16"),
    Field("transaction_timeout_ms", "int32"),
    Field("transaction_status", "int8"),
    structs(
        "transaction_partitions", Field("topic", "string"), Field("partition_ids", "[]int32"), nullable="0+"
    ),
    Field("transaction_last_update_timestamp_ms", "int64"),
    Field("transaction_start_timestamp_ms", "int64"),
    Field("client_transaction_version", "int16", "1+", tag=2, ignorable=True),
    Field("next_producer_epoch", "int16", "1+", default=-1, tag=3, ignorable=True),
    # Not Kafka's, which does not store it and skips tags that it does not know.
    Field("last_producer_epoch", "int16", "1+", default=-1, tag=10_000, ignorable=True),
)
