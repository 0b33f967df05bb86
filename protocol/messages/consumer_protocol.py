"""What consumers of a classic group write into the bytes of JoinGroup and SyncGroup, which brokers pass on.

Declarations only. Subscription and assignment begin with an int16 version; user data has none. Source:
ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json (KIP-429, KIP-792, KIP-881), the user
data of Kafka's StickyAssignor (KIP-54, KIP-341).
"""

from tidelog.protocol.messages.declaration import Field, Message

_PARTITIONS = (Field("topic", "string", "0+"), Field("partitions", "[]int32", "0+"))

CONSUMER_PROTOCOL_SUBSCRIPTION = Message(
    "ConsumerProtocolSubscription",
    flexible="",
    fields=(
        Field("topics", "[]string", "0+"),
        Field("user_data", "bytes", "0+", nullable="0+", default=None),
        Field("owned_partitions", "[]struct", "1+", ignorable=True, fields=_PARTITIONS),
        Field("generation_id", "int32", "2+", default=-1, ignorable=True),
        Field("rack_id", "string", "3+", nullable="3+", default=None, ignorable=True),
    ),
)

CONSUMER_PROTOCOL_ASSIGNMENT = Message(
    "ConsumerProtocolAssignment",
    flexible="",
    fields=(
        Field("assigned_partitions", "[]struct", "0+", fields=_PARTITIONS),
        Field("user_data", "bytes", "0+", nullable="0+", default=None),
    ),
)

# Version 0 ends before the generation.
STICKY_ASSIGNOR_USER_DATA = Message(
    "StickyAssignorUserData",
    flexible="",
    fields=(
        Field("previous_assignment", "[]struct", "0+", fields=_PARTITIONS),
        Field("generation", "int32", "1+", default=-1, ignorable=True),
    ),
)
