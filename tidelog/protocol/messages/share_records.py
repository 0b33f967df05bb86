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
    rack_id: str | None  # Where the reader is, so that a near replica can serve it.
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]


class ShareGroupMetadataKey(Struct):
    group_id: str = field("11")


class ShareGroupMetadataValue(Struct, flexible="0+"):
    epoch: Int32
    metadata_hash: Int64


class ShareGroupTargetAssignmentMetadataKey(Struct):
    group_id: str = field("12")


class ShareGroupTargetAssignmentMetadataValue(Struct, flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: TimestampMs = field(tag=0)


class ShareGroupTargetAssignmentMemberKey(Struct):
    group_id: str = field("13")
    member_id: str = field("13")


class ShareGroupTargetAssignmentMemberValue(Struct, flexible="0+"):
    topic_partitions: list[TopicPartitions]


class ShareGroupCurrentMemberAssignmentKey(Struct):
    group_id: str = field("14")
    member_id: str = field("14")


class ShareGroupCurrentMemberAssignmentValue(Struct, flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


class ShareGroupStatePartitionMetadataKey(Struct):
    group_id: str = field("15")


class ShareGroupStatePartitionMetadataValueDeletingTopic(Struct):
    topic_id: UUID
    topic_name: str


class ShareGroupStatePartitionMetadataValue(Struct, flexible="0+"):
    initializing_topics: list[NamedTopicPartitions]
    initialized_topics: list[NamedTopicPartitions]
    deleting_topics: list[ShareGroupStatePartitionMetadataValueDeletingTopic]


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
