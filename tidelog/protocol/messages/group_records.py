"""GroupMetadataValue, a group's record in `__consumer_offsets`, and the subscription of a joining consumer.

Declarations only. Each begins with an int16 version, see `protocol.coordinator_records`.
Source: GroupMetadataValue.json and ConsumerProtocolSubscription.json.
"""

from tidelog.protocol.messages.declaration import Int32, Struct, field
from tidelog.protocol.types import TimestampMs


class GroupMetadataValueMember(Struct):
    member_id: str
    group_instance_id: str | None = field("3+", default=None, ignorable=True)
    client_id: str
    client_host: str
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    session_timeout: Int32
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(Struct, flexible="4+"):
    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: TimestampMs = field("2+", default=-1, ignorable=True)
    members: list[GroupMetadataValueMember]


class ConsumerSubscription(Struct):
    """The start of a ConsumerProtocolSubscription; the fields after the topics are not read."""

    topics: list[str]
