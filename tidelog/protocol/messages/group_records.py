"""Records of groups in the log of `__consumer_offsets`, and the subscription of a joining consumer.

Declarations only. A record's key and value each begin with an int16 version, see
`protocol.coordinator_records`. The version of a key also says what kind of record it is: 0 and 1 an offset
commit, 2 a group of the classic protocol, 3 to 8 and 16 the consumer protocol.

Source: the JSON definitions of the same names in Kafka's group coordinator (KIP-848, KIP-1101), and
ConsumerProtocolSubscription.json. The topic id of an offset commit (KIP-848) is a tagged field.
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int8, Int32, Int64, Struct, field
from tidelog.protocol.messages.structs import TopicPartitions
from tidelog.protocol.types import LeaderEpoch, Offset, TimestampMs


class OffsetCommitKey(Struct):
    group: str = field("0-1")
    topic: str = field("0-1")
    partition: Int32 = field("0-1")


class OffsetCommitValue(Struct, flexible="4+"):
    offset: Offset
    leader_epoch: LeaderEpoch = field("3+", default=-1, ignorable=True)
    metadata: str
    commit_timestamp: TimestampMs
    # -1: the broker's retention applies.
    expire_timestamp: TimestampMs = field("1", default=-1, ignorable=True)
    topic_id: UUID = field("4+", ignorable=True, tag=0)


class GroupMetadataKey(Struct):
    group: str = field("2")


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


class ConsumerGroupMetadataKey(Struct):
    group_id: str = field("3")


class ConsumerGroupMetadataValue(Struct, flexible="0+"):
    epoch: Int32
    metadata_hash: Int64 = field(tag=0)


class ConsumerGroupPartitionMetadataKey(Struct):
    group_id: str = field("4")


class ConsumerGroupPartitionMetadataValuePartitionMetadata(Struct):
    partition: Int32
    racks: list[str]


class ConsumerGroupPartitionMetadataValueTopic(Struct):
    topic_id: UUID
    topic_name: str
    num_partitions: Int32
    partition_metadata: list[ConsumerGroupPartitionMetadataValuePartitionMetadata]


class ConsumerGroupPartitionMetadataValue(Struct, flexible="0+"):
    topics: list[ConsumerGroupPartitionMetadataValueTopic]


class ConsumerGroupMemberMetadataKey(Struct):
    group_id: str = field("5")
    member_id: str = field("5")


class ConsumerGroupMemberMetadataValueSupportedProtocol(Struct):
    name: str
    metadata: bytes


class ConsumerGroupMemberMetadataValueClassicMemberMetadata(Struct):
    session_timeout_ms: Int32
    supported_protocols: list[ConsumerGroupMemberMetadataValueSupportedProtocol]


class ConsumerGroupMemberMetadataValue(Struct, flexible="0+"):
    instance_id: str | None  # Of a static member.
    rack_id: str | None  # Where the reader is, so that a near replica can serve it.
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None  # Topics by pattern; the broker evaluates it.
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: str | None  # Who assigns partitions in the broker.
    classic_member_metadata: ConsumerGroupMemberMetadataValueClassicMemberMetadata | None = field(
        default=None, tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Struct):
    group_id: str = field("6")


class ConsumerGroupTargetAssignmentMetadataValue(Struct, flexible="0+"):
    assignment_epoch: Int32


class ConsumerGroupTargetAssignmentMemberKey(Struct):
    group_id: str = field("7")
    member_id: str = field("7")


class ConsumerGroupTargetAssignmentMemberValue(Struct, flexible="0+"):
    topic_partitions: list[TopicPartitions]


class ConsumerGroupCurrentMemberAssignmentKey(Struct):
    group_id: str = field("8")
    member_id: str = field("8")


class ConsumerGroupCurrentMemberAssignmentValue(Struct, flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


class ConsumerGroupRegularExpressionKey(Struct):
    group_id: str = field("16")
    regular_expression: str = field("16")


class ConsumerGroupRegularExpressionValue(Struct, flexible="0+"):
    topics: list[str]
    version: Int64
    timestamp: TimestampMs
