"""ShareFetch and ShareAcknowledge: how a consumer of a share group acquires and acknowledges records.

Declarations only. Source: the JSON definitions of the same names (KIP-932, KIP-1206, KIP-1222). Version 0 was
an early access that brokers do not serve.
"""

from tidelog.protocol.messages.declaration import ERROR_OR_NULL, Field, message, struct, structs

_ACKNOWLEDGEMENT_BATCHES = structs(
    "acknowledgement_batches",
    Field("first_offset", "int64"),
    Field("last_offset", "int64"),
    Field("acknowledge_types", "[]int8"),
)
_CURRENT_LEADER = struct("current_leader", Field("leader_id", "int32"), Field("leader_epoch", "int32"))
_NODE_ENDPOINTS = structs(
    "node_endpoints",
    Field("node_id", "int32"),
    Field("host", "string"),
    Field("port", "int32"),
    Field("rack", "string", nullable="0+", default=None),
)
_IS_RENEW_ACK = Field("is_renew_ack", "bool", "2+")

SHARE_FETCH_REQUEST = message(
    "ShareFetchRequest",
    "0+",
    Field("group_id", "string", nullable="0+", default=None),
    Field("member_id", "string", nullable="0+"),
    Field("share_session_epoch", "int32"),
    Field("max_wait_ms", "int32"),
    Field("min_bytes", "int32"),
    Field("max_bytes", "int32", default=2**31 - 1),
    Field("max_records", "int32"),
    Field("batch_size", "int32"),
    Field("share_acquire_mode", "int8", "2+", ignorable=True),
    _IS_RENEW_ACK,
    structs(
        "topics",
        Field("topic_id", "uuid"),
        structs("partitions", Field("partition_index", "int32"), _ACKNOWLEDGEMENT_BATCHES),
    ),
    structs("forgotten_topics_data", Field("topic_id", "uuid"), Field("partitions", "[]int32")),
)

SHARE_FETCH_RESPONSE = message(
    "ShareFetchResponse",
    "0+",
    Field("throttle_time_ms", "int32"),
    *ERROR_OR_NULL,
    Field("acquisition_lock_timeout_ms", "int32"),
    structs(
        "responses",
        Field("topic_id", "uuid"),
        structs(
            "partitions",
            Field("partition_index", "int32"),
            *ERROR_OR_NULL,
            Field("acknowledge_error_code", "int16"),
            Field("acknowledge_error_message", "string", nullable="0+", default=None),
            _CURRENT_LEADER,
            Field("records", "records"),
            structs(
                "acquired_records",
                Field("first_offset", "int64"),
                Field("last_offset", "int64"),
                Field("delivery_count", "int16"),
            ),
        ),
    ),
    _NODE_ENDPOINTS,
)

SHARE_ACKNOWLEDGE_REQUEST = message(
    "ShareAcknowledgeRequest",
    "0+",
    Field("group_id", "string", nullable="0+", default=None),
    Field("member_id", "string", nullable="0+"),
    Field("share_session_epoch", "int32"),
    _IS_RENEW_ACK,
    structs(
        "topics",
        Field("topic_id", "uuid"),
        structs("partitions", Field("partition_index", "int32"), _ACKNOWLEDGEMENT_BATCHES),
    ),
)

SHARE_ACKNOWLEDGE_RESPONSE = message(
    "ShareAcknowledgeResponse",
    "0+",
    Field("throttle_time_ms", "int32"),
    *ERROR_OR_NULL,
    Field("acquisition_lock_timeout_ms", "int32", "2+", ignorable=True),
    structs(
        "responses",
        Field("topic_id", "uuid"),
        structs("partitions", Field("partition_index", "int32"), *ERROR_OR_NULL, _CURRENT_LEADER),
    ),
    _NODE_ENDPOINTS,
)
