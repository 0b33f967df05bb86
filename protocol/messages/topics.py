"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords, DescribeProducers: APIs of topics.

Declarations only. Source: the JSON definitions of the same names (KIP-195, KIP-107, KIP-516, KIP-525,
KIP-599, KIP-664).
"""

from tidelog.protocol.messages.declaration import Field, message, structs

CREATE_TOPICS_REQUEST = message(
    "CreateTopicsRequest",
    "5+",
    structs(
        "topics",
        "0+",
        Field("name", "string", "0+"),
        Field("num_partitions", "int32", "0+"),
        Field("replication_factor", "int16", "0+"),
        structs(
            "assignments", "0+", Field("partition_index", "int32", "0+"), Field("broker_ids", "[]int32", "0+")
        ),
        structs(
            "configs", "0+", Field("name", "string", "0+"), Field("value", "string", "0+", nullable="0+")
        ),
    ),
    Field("timeout_ms", "int32", "0+", default=60000),
    Field("validate_only", "bool", "1+", default=False),
)

CREATE_TOPICS_RESPONSE = message(
    "CreateTopicsResponse",
    "5+",
    Field("throttle_time_ms", "int32", "2+", ignorable=True),
    structs(
        "topics",
        "0+",
        Field("name", "string", "0+"),
        Field("topic_id", "uuid", "7+", ignorable=True),
        Field("error_code", "int16", "0+"),
        Field("error_message", "string", "1+", nullable="0+", ignorable=True),
        Field("topic_config_error_code", "int16", "5+", ignorable=True, tag=0),
        Field("num_partitions", "int32", "5+", default=-1, ignorable=True),
        Field("replication_factor", "int16", "5+", default=-1, ignorable=True),
        structs(
            "configs",
            "5+",
            Field("name", "string", "5+"),
            Field("value", "string", "5+", nullable="5+"),
            Field("read_only", "bool", "5+"),
            Field("config_source", "int8", "5+", default=-1, ignorable=True),
            Field("is_sensitive", "bool", "5+"),
            nullable="5+",
            ignorable=True,
        ),
    ),
)

DELETE_TOPICS_REQUEST = message(
    "DeleteTopicsRequest",
    "4+",
    structs(
        "topics",
        "6+",
        Field("name", "string", "6+", nullable="6+", default=None),
        Field("topic_id", "uuid", "6+"),
    ),
    Field("topic_names", "[]string", "0-5", ignorable=True),
    Field("timeout_ms", "int32", "0+"),
)

DELETE_TOPICS_RESPONSE = message(
    "DeleteTopicsResponse",
    "4+",
    Field("throttle_time_ms", "int32", "1+", ignorable=True),
    structs(
        "responses",
        "0+",
        Field("name", "string", "0+", nullable="6+"),
        Field("topic_id", "uuid", "6+", ignorable=True),
        Field("error_code", "int16", "0+"),
        Field("error_message", "string", "5+", nullable="5+", default=None, ignorable=True),
    ),
)

CREATE_PARTITIONS_REQUEST = message(
    "CreatePartitionsRequest",
    "2+",
    structs(
        "topics",
        "0+",
        Field("name", "string", "0+"),
        Field("count", "int32", "0+"),
        structs("assignments", "0+", Field("broker_ids", "[]int32", "0+"), nullable="0+"),
    ),
    Field("timeout_ms", "int32", "0+"),
    Field("validate_only", "bool", "0+"),
)

CREATE_PARTITIONS_RESPONSE = message(
    "CreatePartitionsResponse",
    "2+",
    Field("throttle_time_ms", "int32", "0+"),
    structs(
        "results",
        "0+",
        Field("name", "string", "0+"),
        Field("error_code", "int16", "0+"),
        Field("error_message", "string", "0+", nullable="0+", default=None),
    ),
)

DELETE_RECORDS_REQUEST = message(
    "DeleteRecordsRequest",
    "2+",
    structs(
        "topics",
        "0+",
        Field("name", "string", "0+"),
        structs("partitions", "0+", Field("partition_index", "int32", "0+"), Field("offset", "int64", "0+")),
    ),
    Field("timeout_ms", "int32", "0+"),
)

DELETE_RECORDS_RESPONSE = message(
    "DeleteRecordsResponse",
    "2+",
    Field("throttle_time_ms", "int32", "0+"),
    structs(
        "topics",
        "0+",
        Field("name", "string", "0+"),
        structs(
            "partitions",
            "0+",
            Field("partition_index", "int32", "0+"),
            Field("low_watermark", "int64", "0+"),
            Field("error_code", "int16", "0+"),
        ),
    ),
)

DESCRIBE_PRODUCERS_REQUEST = message(
    "DescribeProducersRequest",
    "0+",
    structs("topics", "0+", Field("name", "string", "0+"), Field("partition_indexes", "[]int32", "0+")),
)

DESCRIBE_PRODUCERS_RESPONSE = message(
    "DescribeProducersResponse",
    "0+",
    Field("throttle_time_ms", "int32", "0+"),
    structs(
        "topics",
        "0+",
        Field("name", "string", "0+"),
        structs(
            "partitions",
            "0+",
            Field("partition_index", "int32", "0+"),
            Field("error_code", "int16", "0+"),
            Field("error_message", "string", "0+", nullable="0+", default=None),
            structs(
                "active_producers",
                "0+",
                Field("producer_id", "int64", "0+"),
                Field("producer_epoch", "int32", "0+"),
                Field("last_sequence", "int32", "0+", default=-1),
                Field("last_timestamp", "int64", "0+", default=-1),
                Field("coordinator_epoch", "int32", "0+"),
                Field("current_txn_start_offset", "int64", "0+", default=-1),
            ),
        ),
    ),
)
