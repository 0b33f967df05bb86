"""OffsetFetch, OffsetCommit and OffsetDelete: the offsets that a group has committed.

Declarations only. Source: the JSON definitions of the same names (KIP-320, KIP-447, KIP-496, KIP-709,
KIP-848). OffsetFetch has two layouts: one group up to version 7, a list of them from version 8.
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int16, Int32, Int64, Struct, field
from tidelog.protocol.messages.structs import PartitionError, TopicErrors
from tidelog.protocol.types import LeaderEpoch, Offset


class OffsetFetchRequestTopic(Struct):
    name: str = field("0-7")
    partition_indexes: list[Int32] = field("0-7")


class OffsetFetchRequestGroupTopic(Struct):
    name: str = field("8-9", ignorable=True)
    topic_id: UUID = field("10+", ignorable=True)
    partition_indexes: list[Int32] = field("8+")


class OffsetFetchRequestGroup(Struct):
    group_id: str = field("8+")
    member_id: str | None = field("9+", default=None, ignorable=True)
    member_epoch: Int32 = field("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestGroupTopic] | None = field("8+")


class OffsetFetchRequest(Struct, flexible="6+"):
    group_id: str = field("0-7")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+")
    require_stable: bool = field("7+", default=False)  # Refuse offsets that an open transaction may change.


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = field("0-7")
    committed_offset: Offset = field("0-7")
    committed_leader_epoch: LeaderEpoch = field("5-7", default=-1, ignorable=True)
    metadata: str | None = field("0-7")
    error_code: Int16 = field("0-7")


class OffsetFetchResponseTopic(Struct):
    name: str = field("0-7")
    partitions: list[OffsetFetchResponsePartition] = field("0-7")


class OffsetFetchResponseTopicPartition(Struct):
    partition_index: Int32 = field("8+")
    committed_offset: Offset = field("8+")
    committed_leader_epoch: LeaderEpoch = field("8+", default=-1, ignorable=True)
    metadata: str | None = field("8+")
    error_code: Int16 = field("8+")


class OffsetFetchResponseGroupTopic(Struct):
    name: str = field("8-9", ignorable=True)
    topic_id: UUID = field("10+", ignorable=True)
    partitions: list[OffsetFetchResponseTopicPartition] = field("8+")


class OffsetFetchResponseGroup(Struct):
    group_id: str = field("8+")
    topics: list[OffsetFetchResponseGroupTopic] = field("8+")
    error_code: Int16 = field("8+", default=0)


class OffsetFetchResponse(Struct, flexible="6+"):
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7")
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+")


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Offset
    committed_leader_epoch: LeaderEpoch = field("6+", default=-1, ignorable=True)
    committed_metadata: str | None  # Any text that the client keeps with the offset.


class OffsetCommitRequestTopic(Struct):
    name: str = field("0-9", ignorable=True)
    topic_id: UUID = field("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Struct, flexible="8+"):
    group_id: str
    generation_id_or_member_epoch: Int32 = field("1+", default=-1, ignorable=True)
    member_id: str = field("1+", ignorable=True)
    group_instance_id: str | None = field("7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)  # -1: as the broker is set.
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponseTopic(Struct):
    name: str = field("0-9", ignorable=True)
    topic_id: UUID = field("10+", ignorable=True)
    partitions: list[PartitionError]


class OffsetCommitResponse(Struct, flexible="8+"):
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic]


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32


class OffsetDeleteRequestTopic(Struct):
    name: str
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Struct, flexible="1+"):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteResponse(Struct, flexible="1+"):
    error_code: Int16
    throttle_time_ms: Int32 = field(ignorable=True)
    topics: list[TopicErrors]
