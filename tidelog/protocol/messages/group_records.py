"""GroupMetadataValue, a group's record in `__consumer_offsets`, and the subscription of a joining consumer.

Declarations only. Each begins with an int16 version, see `protocol.coordinator_records`.
Source: GroupMetadataValue.json and ConsumerProtocolSubscription.json.
"""

from tidelog.protocol.messages.declaration import Field, message, structs

GROUP_METADATA_VALUE = message(
    "GroupMetadataValue",
    "4+",
    Field("protocol_type", "string"),
    Field("generation", "int32"),
    Field("protocol", "string", nullable="0+"),
    Field("leader", "string", nullable="0+"),
    Field("current_state_timestamp", "int64", "2+", default=-1, ignorable=True),
    structs(
        "members",
        Field("member_id", "string"),
        Field("group_instance_id", "string", "3+", nullable="3+", default=None, ignorable=True),
        Field("client_id", "string"),
        Field("client_host", "string"),
        Field("rebalance_timeout", "int32", "1+", default=-1, ignorable=True),
        Field("session_timeout", "int32"),
        Field("subscription", "bytes"),
        Field("assignment", "bytes"),
    ),
)

# The fields after the topics are not read.
CONSUMER_SUBSCRIPTION = message("ConsumerProtocolSubscription", "", Field("topics", "[]string"))
