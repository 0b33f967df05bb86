"""ShareFetch and ShareAcknowledge: how a consumer of a share group acquires and acknowledges records.

Declarations only. Source: the JSON definitions of the same names (KIP-932, KIP-1206, KIP-1222). Version 0 was
an early access that brokers do not serve.
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Records, Struct, field
from tidelog.protocol.messages.structs import NodeEndpoint, TopicPartitions
from tidelog.protocol.types import LeaderEpoch, Offset


class AcknowledgementBatch(Struct):
    first_offset: Offset
    last_offset: Offset
    acknowledge_types: list[Int8]  # 0: gap, 1: accept, 2: release, 3: reject, 4: renew.


class AcknowledgedPartition(Struct):
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgedTopic(Struct):
    topic_id: UUID
    partitions: list[AcknowledgedPartition]


class ShareFetchRequest(Struct, flexible="0+"):
    group_id: str | None = field(default=None)
    member_id: str | None
    share_session_epoch: Int32  # 0 opens a session, -1 closes it.
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=0x7FFFFFFF)
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = field("2+", ignorable=True)
    is_renew_ack: bool = field("2+")  # Whether some acknowledgements renew the lock of their records.
    topics: list[AcknowledgedTopic]
    forgotten_topics_data: list[TopicPartitions]


class ShareLeader(Struct):
    leader_id: Int32
    leader_epoch: LeaderEpoch


class ShareFetchResponseAcquiredRecord(Struct):
    first_offset: Offset
    last_offset: Offset
    delivery_count: Int16  # How often the records were delivered, this time included.


class ShareFetchResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    acknowledge_error_code: Int16
    acknowledge_error_message: str | None = field(default=None)
    current_leader: ShareLeader
    records: Records
    acquired_records: list[ShareFetchResponseAcquiredRecord]


class ShareFetchResponseResponse(Struct):
    topic_id: UUID
    partitions: list[ShareFetchResponsePartition]


class ShareFetchResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    acquisition_lock_timeout_ms: Int32  # For how long acquired records are locked.
    responses: list[ShareFetchResponseResponse]
    node_endpoints: list[NodeEndpoint]


class ShareAcknowledgeRequest(Struct, flexible="0+"):
    group_id: str | None = field(default=None)
    member_id: str | None
    share_session_epoch: Int32  # 0 opens a session, -1 closes it.
    is_renew_ack: bool = field("2+")  # Whether some acknowledgements renew the lock of their records.
    topics: list[AcknowledgedTopic]


class ShareAcknowledgeResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    current_leader: ShareLeader


class ShareAcknowledgeResponseResponse(Struct):
    topic_id: UUID
    partitions: list[ShareAcknowledgeResponsePartition]


class ShareAcknowledgeResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", ignorable=True)
    responses: list[ShareAcknowledgeResponseResponse]
    node_endpoints: list[NodeEndpoint]
