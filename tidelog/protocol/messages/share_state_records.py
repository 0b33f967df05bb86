"""Records of share partitions in the log of `__share_group_state`: keys and values.

Declarations only. A record's key and value each begin with an int16 version, see
`protocol.coordinator_records`. The version of a key also says what kind of record it is: 0 is a snapshot, 1
an update of the newest snapshot.

Source: the JSON definitions of the same names in Kafka's share coordinator (KIP-932, KIP-1226).
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int32, Struct, field
from tidelog.protocol.messages.structs import DeliveryStateBatch
from tidelog.protocol.types import LeaderEpoch, Offset, TimestampMs


class ShareSnapshotKey(Struct):
    group_id: str = field("0")
    topic_id: UUID = field("0")
    partition: Int32 = field("0")


class ShareSnapshotValue(Struct, flexible="0+"):
    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: LeaderEpoch
    start_offset: Offset
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    create_timestamp: TimestampMs
    write_timestamp: TimestampMs
    state_batches: list[DeliveryStateBatch]


class ShareUpdateKey(Struct):
    group_id: str = field("1")
    topic_id: UUID = field("1")
    partition: Int32 = field("1")


class ShareUpdateValue(Struct, flexible="0+"):
    snapshot_epoch: Int32
    leader_epoch: LeaderEpoch
    start_offset: Offset
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    state_batches: list[DeliveryStateBatch]
