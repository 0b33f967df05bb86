"""The APIs by which brokers keep the state of share partitions with its coordinator.

Declarations only. Source: the JSON definitions of the same names (KIP-932, KIP-1226).
"""

from tidelog.protocol.messages.declaration import ERROR_OR_NULL, Field, Message, message, structs

STATE_BATCHES = structs(
    "state_batches",
    Field("first_offset", "int64"),
    Field("last_offset", "int64"),
    Field("delivery_state", "int8"),
    Field("delivery_count", "int16"),
)


def _request(name: str, *fields: Field) -> Message:
    partitions = structs("partitions", Field("partition", "int32"), *fields)
    return message(
        name, "0+", Field("group_id", "string"), structs("topics", Field("topic_id", "uuid"), partitions)
    )


def _response(name: str, *fields: Field) -> Message:
    partitions = structs("partitions", Field("partition", "int32"), *ERROR_OR_NULL, *fields)
    return message(name, "0+", structs("results", Field("topic_id", "uuid"), partitions))


INITIALIZE_SHARE_GROUP_STATE_REQUEST = _request(
    "InitializeShareGroupStateRequest", Field("state_epoch", "int32"), Field("start_offset", "int64")
)
INITIALIZE_SHARE_GROUP_STATE_RESPONSE = _response("InitializeShareGroupStateResponse")

READ_SHARE_GROUP_STATE_REQUEST = _request("ReadShareGroupStateRequest", Field("leader_epoch", "int32"))
READ_SHARE_GROUP_STATE_RESPONSE = _response(
    "ReadShareGroupStateResponse",
    Field("state_epoch", "int32"),
    Field("start_offset", "int64"),
    STATE_BATCHES,
)

WRITE_SHARE_GROUP_STATE_REQUEST = _request(
    "WriteShareGroupStateRequest",
    Field("state_epoch", "int32"),
    Field("leader_epoch", "int32"),
    Field("start_offset", "int64"),
    Field("delivery_complete_count", "int32", "1+", default=-1, ignorable=True),
    STATE_BATCHES,
)
WRITE_SHARE_GROUP_STATE_RESPONSE = _response("WriteShareGroupStateResponse")

DELETE_SHARE_GROUP_STATE_REQUEST = _request("DeleteShareGroupStateRequest")
DELETE_SHARE_GROUP_STATE_RESPONSE = _response("DeleteShareGroupStateResponse")

READ_SHARE_GROUP_STATE_SUMMARY_REQUEST = _request(
    "ReadShareGroupStateSummaryRequest", Field("leader_epoch", "int32")
)
READ_SHARE_GROUP_STATE_SUMMARY_RESPONSE = _response(
    "ReadShareGroupStateSummaryResponse",
    Field("state_epoch", "int32"),
    Field("leader_epoch", "int32"),
    Field("start_offset", "int64"),
    Field("delivery_complete_count", "int32", "1+", default=-1, ignorable=True),
)
