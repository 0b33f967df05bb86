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
    last_offset: Offset  # Inclusive.
    acknowledge_types: list[Int8]  # One for all or each; 0: gap, 1: accept, 2: release, 3: reject, 4: renew.


class AcknowledgedPartition(Struct):
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]  # Empty: it joins the session, no more.


class AcknowledgedTopic(Struct):
    topic_id: UUID
    partitions: list[AcknowledgedPartition]


class ShareFetchRequest(Struct, flexible="0+"):
    group_id: str | None = field(default=None)  # Null is refused.
    member_id: str | None  # A UUID that the member made; null is refused.
    share_session_epoch: Int32  # Counts requests; 0 opens a session, -1 closes it.
    max_wait_ms: Int32  # How long the broker may wait for min_bytes.
    min_bytes: Int32  # Of records to wait for.
    max_bytes: Int32 = field(default=0x7FFFFFFF)  # Of the records of all partitions.
    max_records: Int32  # Exact with share_acquire_mode 1, else the last batch is whole.
    batch_size: Int32  # About how many records each of acquired_records spans.
    share_acquire_mode: Int8 = field("2+", ignorable=True)  # 0: whole batches, 1: within a batch too.
    is_renew_ack: bool = field("2+")  # Whether some acknowledgements renew the lock of their records.
    topics: list[AcknowledgedTopic]  # What joins the session, and acknowledgements.
    forgotten_topics_data: list[TopicPartitions]  # What leaves the session.


class ShareLeader(Struct):
    leader_id: Int32  # -1: unknown.
    leader_epoch: LeaderEpoch  # -1: unknown.


class ShareFetchResponseAcquiredRecord(Struct):
    first_offset: Offset
    last_offset: Offset  # Inclusive.
    delivery_count: Int16  # How often the records were delivered, this time included.


class ShareFetchResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    acknowledge_error_code: Int16  # Of the acknowledgements, which stand for themselves.
    acknowledge_error_message: str | None = field(default=None)
    current_leader: ShareLeader  # Only with NOT_LEADER_OR_FOLLOWER.
    records: Records  # Whole batches; the member may use what acquired_records names.
    acquired_records: list[ShareFetchResponseAcquiredRecord]  # What the member has to acknowledge.


class ShareFetchResponseResponse(Struct):
    topic_id: UUID
    partitions: list[ShareFetchResponsePartition]


class ShareFetchResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    acquisition_lock_timeout_ms: Int32  # For how long acquired records are locked.
    responses: list[ShareFetchResponseResponse]
    node_endpoints: list[NodeEndpoint]  # Of each leader that current_leader names.


class ShareAcknowledgeRequest(Struct, flexible="0+"):
    group_id: str | None = field(default=None)  # Null is refused.
    member_id: str | None  # A UUID that the member made; null is refused.
    share_session_epoch: Int32  # Counts requests; 0 is refused, -1 closes the session.
    is_renew_ack: bool = field("2+")  # Whether some acknowledgements renew the lock of their records.
    topics: list[AcknowledgedTopic]


class ShareAcknowledgeResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    current_leader: ShareLeader  # Only with NOT_LEADER_OR_FOLLOWER.


class ShareAcknowledgeResponseResponse(Struct):
    topic_id: UUID
    partitions: list[ShareAcknowledgeResponsePartition]


class ShareAcknowledgeResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", ignorable=True)  # How long records stay locked.
    responses: list[ShareAcknowledgeResponseResponse]
    node_endpoints: list[NodeEndpoint]  # Of each leader that current_leader names.
