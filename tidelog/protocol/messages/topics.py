"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords, DescribeProducers: APIs of topics.

Declarations only. Source: the JSON definitions of the same names (KIP-195, KIP-107, KIP-516, KIP-525,
KIP-599, KIP-664).
"""

from tidelog.protocol.messages.declaration import Field, by_partition, message, structs

CREATE_TOPICS_REQUEST = message(
    "CreateTopicsRequest",
    "5+",
    structs(
        "topics",
        Field("name", "string"),
        Field("num_partitions", "int32"),
        Field("replication_factor", "int16"),
        structs("assignments", Field("partition_index", "int32"), Field("broker_ids", "[]int32")),
        structs("configs", Field("name", "string"), Field("value", "string", nullable="0+")),
    ),
    Field("timeout_ms", "int32", default=60000),
    Field("validate_only", "bool", "1+", default=False),
)

CREATE_TOPICS_RESPONSE = message(
    "CreateTopicsResponse",
    "5+",
    Field("throttle_time_ms", "int32", "2+", ignorable=True),
    structs(
        "topics",
        Field("name", "string"),
        Field("topic_id", "uuid", "7+", ignorable=True),
        Field("error_code", "int16"),
        Field("error_message", "string", "1+", nullable="0+", ignorable=True),
        Field("topic_config_error_code", "int16", "5+", ignorable=True, tag=0),
        Field("num_partitions", "int32", "5+", default=-1, ignorable=True),
        Field("replication_factor", "int16", "5+", default=-1, ignorable=True),
        structs(
            "configs",
            Field("name", "string", "5+"),
            Field("value", "string", "5+", nullable="5+"),
            Field("read_only", "bool", "5+"),
            Field("config_source", "int8", "5+", default=-1, ignorable=True),
            Field("is_sensitive", "bool", "5+"),
            nullable="5+",
            ignorable=True,
            versions="5+",
        ),
    ),
)

DELETE_TOPICS_REQUEST = message(
    "DeleteTopicsRequest",
    "4+",
    structs(
        "topics",
        Field("name", "string", "6+", nullable="6+", default=None),
        Field("topic_id", "uuid", "6+"),
        versions="6+",
    ),
    Field("topic_names", "[]string", "0-5", ignorable=True),
    Field("timeout_ms", "int32"),
)

DELETE_TOPICS_RESPONSE = message(
    "DeleteTopicsResponse",
    "4+",
    Field("throttle_time_ms", "int32", "1+", ignorable=True),
    structs(
        "responses",
        Field("name", "string", nullable="6+"),
        Field("topic_id", "uuid", "6+", ignorable=True),
        Field("error_code", "int16"),
        Field("error_message", "string", "5+", nullable="5+", default=None, ignorable=True),
    ),
)

CREATE_PARTITIONS_REQUEST = message(
    "CreatePartitionsRequest",
    "2+",
    structs(
        "topics",
        Field("name", "string"),
        Field("count", "int32"),
        structs("assignments", Field("broker_ids", "[]int32"), nullable="0+"),
    ),
    Field("timeout_ms", "int32"),
    Field("validate_only", "bool"),
)

CREATE_PARTITIONS_RESPONSE = message(
    "CreatePartitionsResponse",
    "2+",
    Field("throttle_time_ms", "int32"),
    structs(
        "results",
        Field("name", "string"),
        Field("error_code", "int16"),
        Field("error_message", "string", nullable="0+", default=None),
    ),
)

DELETE_RECORDS_REQUEST = message(
    "DeleteRecordsRequest", "2+", by_partition(Field("offset", "int64")), Field("timeout_ms", "int32")
)

DELETE_RECORDS_RESPONSE = message(
    "DeleteRecordsResponse",
    "2+",
    Field("throttle_time_ms", "int32"),
    by_partition(Field("low_watermark", "int64"), Field("error_code", "int16")),
)

DESCRIBE_PRODUCERS_REQUEST = message(
    "DescribeProducersRequest",
    "0+",
    structs("topics", Field("name", "string"), Field("partition_indexes", "[]int32")),
)

DESCRIBE_PRODUCERS_RESPONSE = message(
    "DescribeProducersResponse",
    "0+",
    Field("throttle_time_ms", "int32"),
    by_partition(
        Field("error_code", "int16"),
        Field("error_message", "string", nullable="0+", default=None),
        structs(
            "active_producers",
            Field("producer_id", "int64"),
            Field("producer_epoch", "int32"),
            Field("last_sequence", "int32", default=-1),
            Field("last_timestamp", "int64", default=-1),
            Field("coordinator_epoch", "int32"),
            Field("current_txn_start_offset", "int64", default=-1),
        ),
    ),
)
