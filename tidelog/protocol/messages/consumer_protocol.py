"""What consumers of a classic group write into the bytes of JoinGroup and SyncGroup, which brokers pass on.

Declarations only. Subscription and assignment begin with an int16 version; user data has none. Source:
ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json (KIP-429, KIP-792, KIP-881), the user
data of Kafka's StickyAssignor (KIP-54, KIP-341).
"""

from tidelog.protocol.messages.declaration import Field, message, structs

_PARTITIONS = (Field("topic", "string"), Field("partitions", "[]int32"))

CONSUMER_PROTOCOL_SUBSCRIPTION = message(
    "ConsumerProtocolSubscription",
    "",
    Field("topics", "[]string"),
    Field("user_data", "bytes", nullable="0+", default=None),
    structs("owned_partitions", *_PARTITIONS, ignorable=True, versions="1+"),
    Field("generation_id", "int32", "2+", default=-1, ignorable=True),
    Field("rack_id", "string", "3+", nullable="3+", default=None, ignorable=True),
)

CONSUMER_PROTOCOL_ASSIGNMENT = message(
    "ConsumerProtocolAssignment",
    "",
    structs("assigned_partitions", *_PARTITIONS),
    Field("user_data", "bytes", nullable="0+", default=None),
)

# Version 0 ends before the generation.
STICKY_ASSIGNOR_USER_DATA = message(
    "StickyAssignorUserData",
    "",
    structs("previous_assignment", *_PARTITIONS),
    Field("generation", "int32", "1+", default=-1, ignorable=True),
)
