"""Records of share groups and of share partitions in the logs of internal topics.

Declarations only. A record's key and value each begin with an int16 version, see
`protocol.coordinator_records`. The version of a key also says what kind of record it is: in
`__consumer_offsets` 10 to 15, in `__share_group_state` 0 is a snapshot, 1 an update of the newest snapshot.

Source: the JSON definitions of the same names in Kafka's coordinators (KIP-932, KIP-1226).
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int8, Int32, Int64, Struct, field
from tidelog.protocol.messages.structs import DeliveryStateBatch, NamedTopicPartitions, TopicPartitions
from tidelog.protocol.types import LeaderEpoch, Offset, TimestampMs


class ShareGroupMemberMetadataKey(Struct):
    group_id: str = field("10")
    member_id: str = field("10")


class ShareGroupMemberMetadataValue(Struct, flexible="0+"):
    rack_id: str | None  # Where the member is; null: unknown.
    client_id: str
    client_host: str  # The address, behind a slash.
    subscribed_topic_names: list[str]


class ShareGroupMetadataKey(Struct):
    group_id: str = field("11")


class ShareGroupMetadataValue(Struct, flexible="0+"):
    epoch: Int32  # Rises with each change of members, subscriptions or their topics.
    metadata_hash: Int64  # Changes with the topics that the group reads (KIP-1101).


class ShareGroupTargetAssignmentMetadataKey(Struct):
    group_id: str = field("12")


class ShareGroupTargetAssignmentMetadataValue(Struct, flexible="0+"):
    assignment_epoch: Int32  # The group's epoch for which the targets were computed.
    assignment_timestamp: TimestampMs = field(tag=0)  # Not written here.


class ShareGroupTargetAssignmentMemberKey(Struct):
    group_id: str = field("13")
    member_id: str = field("13")


class ShareGroupTargetAssignmentMemberValue(Struct, flexible="0+"):
    topic_partitions: list[TopicPartitions]  # What the member is to read in the end.


class ShareGroupCurrentMemberAssignmentKey(Struct):
    group_id: str = field("14")
    member_id: str = field("14")


class ShareGroupCurrentMemberAssignmentValue(Struct, flexible="0+"):
    member_epoch: Int32  # What the member has to name in its next heartbeat.
    previous_member_epoch: Int32  # Accepted too, because an answer may be lost.
    state: Int8  # Always 0: stable.
    assigned_partitions: list[TopicPartitions]  # What the member reads.


class ShareGroupStatePartitionMetadataKey(Struct):
    group_id: str = field("15")


class ShareGroupStatePartitionMetadataValueDeletingTopic(Struct):
    topic_id: UUID
    topic_name: str


class ShareGroupStatePartitionMetadataValue(Struct, flexible="0+"):
    initializing_topics: list[NamedTopicPartitions]  # Always empty here.
    initialized_topics: list[NamedTopicPartitions]  # Partitions that have a state.
    deleting_topics: list[ShareGroupStatePartitionMetadataValueDeletingTopic]  # Their states are removed.


class ShareSnapshotKey(Struct):
    group_id: str = field("0")
    topic_id: UUID = field("0")
    partition: Int32 = field("0")


class ShareSnapshotValue(Struct, flexible="0+"):
    snapshot_epoch: Int32  # Counts the snapshots; updates name it.
    state_epoch: Int32  # Of the group when the state began.
    leader_epoch: LeaderEpoch  # Of the leader that read or wrote last; -1: none.
    start_offset: Offset  # Before it all records are done; -1: nothing was read yet.
    delivery_complete_count: Int32 = field(default=-1, tag=0)  # Of done records from there on; -1: unknown.
    create_timestamp: TimestampMs  # When the state began.
    write_timestamp: TimestampMs  # When this snapshot was written.
    state_batches: list[DeliveryStateBatch]  # Of records from start_offset on; others are new.


class ShareUpdateKey(Struct):
    group_id: str = field("1")
    topic_id: UUID = field("1")
    partition: Int32 = field("1")


class ShareUpdateValue(Struct, flexible="0+"):
    snapshot_epoch: Int32  # Of the snapshot that this changes; it holds for no other one.
    leader_epoch: LeaderEpoch  # Of the leader that read or wrote; -1: none.
    start_offset: Offset  # -1: as before.
    delivery_complete_count: Int32 = field(default=-1, tag=0)  # Of done records from there on; -1: unknown.
    state_batches: list[DeliveryStateBatch]  # Of the records that changed.
