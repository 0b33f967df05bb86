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
    offset: Offset  # Of the next record to read.
    leader_epoch: LeaderEpoch = field("3+", default=-1, ignorable=True)  # Of the record before; -1: unknown.
    metadata: str  # Any text that the client keeps with the offset.
    commit_timestamp: TimestampMs  # By the clock of the broker.
    expire_timestamp: TimestampMs = field("1", default=-1, ignorable=True)  # -1: by the broker's retention.
    topic_id: UUID = field("4+", ignorable=True, tag=0)  # The topic of that name at the commit (KIP-848).


class GroupMetadataKey(Struct):
    group: str = field("2")


class GroupMetadataValueMember(Struct):
    member_id: str
    group_instance_id: str | None = field("3+", default=None, ignorable=True)  # Of a static member; or null.
    client_id: str
    client_host: str  # The address, behind a slash.
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)  # Milliseconds; -1: session_timeout.
    session_timeout: Int32  # Milliseconds without a heartbeat after which it is removed.
    subscription: bytes  # Its metadata for the protocol of the group.
    assignment: bytes  # As the leader wrote it.


class GroupMetadataValue(Struct, flexible="4+"):
    protocol_type: str  # What the group is for: consumer, connect.
    generation: Int32  # Counts the rebalances.
    protocol: str | None  # The assignor in use; null: no members.
    leader: str | None  # The member that assigns; null: no members.
    current_state_timestamp: TimestampMs = field("2+", default=-1, ignorable=True)  # When its state changed.
    members: list[GroupMetadataValueMember]


class ConsumerSubscription(Struct):
    """The start of a ConsumerProtocolSubscription; the fields after the topics are not read."""

    topics: list[str]


class ConsumerGroupMetadataKey(Struct):
    group_id: str = field("3")


class ConsumerGroupMetadataValue(Struct, flexible="0+"):
    epoch: Int32  # Rises with each change of members, subscriptions or their topics.
    metadata_hash: Int64 = field(tag=0)  # Of the topics (KIP-1101); not written here.


class ConsumerGroupPartitionMetadataKey(Struct):
    group_id: str = field("4")


class ConsumerGroupPartitionMetadataValuePartitionMetadata(Struct):
    partition: Int32
    racks: list[str]  # Of the brokers that have a replica.


class ConsumerGroupPartitionMetadataValueTopic(Struct):
    topic_id: UUID
    topic_name: str
    num_partitions: Int32
    partition_metadata: list[ConsumerGroupPartitionMetadataValuePartitionMetadata]  # Not written here.


class ConsumerGroupPartitionMetadataValue(Struct, flexible="0+"):
    topics: list[ConsumerGroupPartitionMetadataValueTopic]  # Those that members read and that exist.


class ConsumerGroupMemberMetadataKey(Struct):
    group_id: str = field("5")
    member_id: str = field("5")


class ConsumerGroupMemberMetadataValueSupportedProtocol(Struct):
    name: str  # Of an assignor.
    metadata: bytes  # A ConsumerProtocolSubscription behind its version.


class ConsumerGroupMemberMetadataValueClassicMemberMetadata(Struct):
    session_timeout_ms: Int32  # Without a heartbeat for so long, the member is removed.
    supported_protocols: list[ConsumerGroupMemberMetadataValueSupportedProtocol]  # The best comes first.


class ConsumerGroupMemberMetadataValue(Struct, flexible="0+"):
    instance_id: str | None  # Of a static member; null: none.
    rack_id: str | None  # Where the member is; null: unknown.
    client_id: str
    client_host: str  # The address, behind a slash.
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None  # Topics by pattern; the broker evaluates it.
    rebalance_timeout_ms: Int32 = field(default=-1)  # How long the member may take to revoke.
    server_assignor: str | None  # uniform or range; null: it leaves the choice.
    classic_member_metadata: ConsumerGroupMemberMetadataValueClassicMemberMetadata | None = field(
        default=None, tag=0
    )  # Null: the member uses the consumer protocol.


class ConsumerGroupTargetAssignmentMetadataKey(Struct):
    group_id: str = field("6")


class ConsumerGroupTargetAssignmentMetadataValue(Struct, flexible="0+"):
    assignment_epoch: Int32  # The group's epoch for which the targets were computed.


class ConsumerGroupTargetAssignmentMemberKey(Struct):
    group_id: str = field("7")
    member_id: str = field("7")


class ConsumerGroupTargetAssignmentMemberValue(Struct, flexible="0+"):
    topic_partitions: list[TopicPartitions]  # What the member is to own in the end.


class ConsumerGroupCurrentMemberAssignmentKey(Struct):
    group_id: str = field("8")
    member_id: str = field("8")


class ConsumerGroupCurrentMemberAssignmentValue(Struct, flexible="0+"):
    member_epoch: Int32  # What the member has to name in its next heartbeat.
    previous_member_epoch: Int32  # Accepted too, because an answer may be lost.
    state: Int8  # 0: stable, 1: has partitions to revoke, 2: waits for those of others.
    assigned_partitions: list[TopicPartitions]  # What the member may read.
    partitions_pending_revocation: list[TopicPartitions]  # What the member has to give up.


class ConsumerGroupRegularExpressionKey(Struct):
    group_id: str = field("16")
    regular_expression: str = field("16")  # In RE2's syntax.


class ConsumerGroupRegularExpressionValue(Struct, flexible="0+"):
    topics: list[str]  # The names that matched.
    version: Int64  # The revision of the catalog whose topics were matched.
    timestamp: TimestampMs  # When they were matched.
