"""Produce and InitProducerId: the APIs of producers.

Declarations only; `protocol.hot` holds the hand-tuned twins of Produce. Source: the JSON definitions of the
same names (KIP-98, KIP-360, KIP-467, KIP-516, KIP-939, KIP-951).
"""

from tidelog.protocol.messages.declaration import Field, message, struct, structs

NODE_ENDPOINT = (
    Field("node_id", "int32"),
    Field("host", "string"),
    Field("port", "int32"),
    Field("rack", "string", nullable="0+", default=None),
)

LEADER_ID_AND_EPOCH = (Field("leader_id", "int32", default=-1), Field("leader_epoch", "int32", default=-1))

PRODUCE_REQUEST = message(
    "ProduceRequest",
    "9+",
    Field("transactional_id", "string", "3+", nullable="3+", default=None),
    Field("acks", "int16"),
    Field("timeout_ms", "int32"),
    structs(
        "topic_data",
        Field("name", "string", "0-12", ignorable=True),
        Field("topic_id", "uuid", "13+", ignorable=True),
        structs("partition_data", Field("index", "int32"), Field("records", "records", nullable="0+")),
    ),
)

PRODUCE_RESPONSE = message(
    "ProduceResponse",
    "9+",
    structs(
        "responses",
        Field("name", "string", "0-12", ignorable=True),
        Field("topic_id", "uuid", "13+", ignorable=True),
        structs(
            "partition_responses",
            Field("index", "int32"),
            Field("error_code", "int16"),
            Field("base_offset", "int64"),
            Field("log_append_time_ms", "int64", "2+", default=-1, ignorable=True),
            Field("log_start_offset", "int64", "5+", default=-1, ignorable=True),
            structs(
                "record_errors",
                Field("batch_index", "int32", "8+"),
                Field("batch_index_error_message", "string", "8+", nullable="8+", default=None),
                ignorable=True,
                versions="8+",
            ),
            Field("error_message", "string", "8+", nullable="8+", default=None, ignorable=True),
            struct("current_leader", *LEADER_ID_AND_EPOCH, tag=0, versions="10+"),
        ),
    ),
    Field("throttle_time_ms", "int32", "1+", ignorable=True),
    structs("node_endpoints", *NODE_ENDPOINT, tag=0, versions="10+"),
)

INIT_PRODUCER_ID_REQUEST = message(
    "InitProducerIdRequest",
    "2+",
    Field("transactional_id", "string", nullable="0+"),
    Field("transaction_timeout_ms", "int32"),
    Field("producer_id", "int64", "3+", default=-1),
    Field("producer_epoch", "int16", "3+", default=-1),
    Field("enable2_pc", "bool", "6+", default=False),
    Field("keep_prepared_txn", "bool", "6+", default=False),
)

INIT_PRODUCER_ID_RESPONSE = message(
    "InitProducerIdResponse",
    "2+",
    Field("throttle_time_ms", "int32", ignorable=True),
    Field("error_code", "int16"),
    Field("producer_id", "int64", default=-1),
    Field("producer_epoch", "int16"),
    Field("ongoing_txn_producer_id", "int64", "6+", default=-1, ignorable=True),
    Field("ongoing_txn_producer_epoch", "int16", "6+", default=-1, ignorable=True),
)
