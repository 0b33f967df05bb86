"""What consumers of a classic group write into the bytes of JoinGroup and SyncGroup, which brokers pass on.

Declarations only. Subscription and assignment begin with an int16 version; user data has none. Source:
ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json (KIP-429, KIP-792, KIP-881), the user
data of Kafka's StickyAssignor (KIP-54, KIP-341).
"""

from tidelog.protocol.messages.declaration import Int32, Struct, field
from tidelog.protocol.messages.structs import PartitionsByName


class ConsumerProtocolSubscription(Struct):
    topics: list[str]
    user_data: bytes | None = field(default=None)
    owned_partitions: list[PartitionsByName] = field("1+", ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: str | None = field("3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Struct):
    assigned_partitions: list[PartitionsByName]
    user_data: bytes | None = field(default=None)


class StickyAssignorUserData(Struct):
    """Version 0 ends before the generation."""

    previous_assignment: list[PartitionsByName]
    generation: Int32 = field("1+", default=-1, ignorable=True)
