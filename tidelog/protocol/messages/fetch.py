"""Fetch, ListOffsets, OffsetForLeaderEpoch, FetchSnapshot: APIs that read records, offsets and snapshots.

Declarations only; `protocol.hot` has the values of Fetch as tuples. Source: the JSON definitions of the
same names (KIP-227, KIP-320, KIP-392, KIP-516, KIP-595, KIP-630, KIP-853, KIP-903, KIP-951, KIP-1166).
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Int64, Records, Struct, Uint16, field
from tidelog.protocol.messages.structs import CurrentLeader, NodeEndpoint
from tidelog.protocol.types import LeaderEpoch, Offset, ProducerId, TimestampMs


class FetchRequestReplicaState(Struct):
    replica_id: Int32 = field("15+", default=-1)  # The broker that follows; -1: a consumer.
    replica_epoch: Int64 = field("15+", default=-1)  # Of the start of the broker that follows.


class FetchRequestPartition(Struct):
    partition: Int32
    current_leader_epoch: LeaderEpoch = field("9+", default=-1, ignorable=True)  # The reader's; -1: no check.
    fetch_offset: Offset  # The first offset to read; of a follower the end of its log.
    last_fetched_epoch: Int32 = field("12+", default=-1)  # Of its last record, to find where logs part.
    log_start_offset: Offset = field("5+", default=-1, ignorable=True)  # Of a follower's log; -1: a consumer.
    partition_max_bytes: Int32  # The first batch of an answer comes whole, however large.
    replica_directory_id: UUID = field("17+", ignorable=True, tag=0)  # The follower's folder; ignored here.
    high_watermark: Offset = field("18+", default=0x7FFFFFFFFFFFFFFF, ignorable=True, tag=1)  # Ignored here.


class FetchRequestTopic(Struct):
    topic: str = field("0-12", ignorable=True)
    topic_id: UUID = field("13+", ignorable=True)  # In place of the name (KIP-516).
    partitions: list[FetchRequestPartition]  # In a session only those that are new or changed.


class FetchRequestForgottenTopicsData(Struct):
    topic: str = field("7-12", ignorable=True)
    topic_id: UUID = field("13+", ignorable=True)
    partitions: list[Int32] = field("7+")


class FetchRequest(Struct, flexible="12+"):
    cluster_id: str | None = field("12+", default=None, ignorable=True, tag=0)  # Null: unknown; ignored here.
    replica_id: Int32 = field("0-14", default=-1)  # The broker that follows; -1: a consumer.
    replica_state: FetchRequestReplicaState = field("15+", tag=1)  # In place of replica_id (KIP-903).
    max_wait_ms: Int32  # How long the broker may wait for min_bytes.
    min_bytes: Int32  # Of records to wait for; 0: answer at once.
    max_bytes: Int32 = field("3+", default=0x7FFFFFFF, ignorable=True)  # Of the records of all partitions.
    isolation_level: Int8 = field("4+", ignorable=True)  # 0: read_uncommitted, 1: read_committed.
    session_id: Int32 = field("7+", ignorable=True)  # Of a fetch session; 0: none yet.
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)  # Counts requests; 0: begin, -1: none.
    topics: list[FetchRequestTopic]
    forgotten_topics_data: list[FetchRequestForgottenTopicsData] = field("7+")  # What leaves the session.
    rack_id: str = field("11+", ignorable=True)  # Where the reader is, so that a near replica can serve it.


class FetchResponseDivergingEpoch(Struct):
    epoch: Int32 = field("12+", default=-1)  # The leader's largest epoch up to the reader's; -1: no cut.
    end_offset: Offset = field("12+", default=-1)  # Where the follower must cut its log.


class FetchResponseSnapshotId(Struct):
    end_offset: Offset = field(default=-1)  # Where to begin over; -1: none, as always here.
    epoch: Int32 = field(default=-1)  # -1: none, as always here.


class FetchResponseAbortedTransaction(Struct):
    producer_id: ProducerId = field("4+")
    first_offset: Offset = field("4+")  # Where the producer's aborted records begin.


class FetchResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
    high_watermark: Offset  # The end of what all in-sync replicas have.
    last_stable_offset: Offset = field("4+", default=-1, ignorable=True)  # Before it no transaction is open.
    log_start_offset: Offset = field("5+", default=-1, ignorable=True)  # The oldest offset that can be read.
    diverging_epoch: FetchResponseDivergingEpoch = field("12+", tag=0)  # Where the reader's log parts.
    current_leader: CurrentLeader = field("12+", tag=1)  # If another broker leads, or in another epoch.
    snapshot_id: FetchResponseSnapshotId = field("12+", tag=2)  # Of logs of metadata; never set here.
    # Those with records in this answer; null unless the request is read_committed.
    aborted_transactions: list[FetchResponseAbortedTransaction] | None = field("4+", ignorable=True)
    preferred_read_replica: Int32 = field("11+", default=-1)  # Where the consumer should read; -1: here.
    records: Records | None  # Whole batches; the first may begin before fetch_offset.


class FetchResponseResponse(Struct):
    topic: str = field("0-12", ignorable=True)
    topic_id: UUID = field("13+", ignorable=True)
    partitions: list[FetchResponsePartition]


class FetchResponse(Struct, flexible="12+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("7+", ignorable=True)
    session_id: Int32 = field("7+")  # 0: the broker keeps no session.
    responses: list[FetchResponseResponse]  # In a session only partitions with something new.
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0)  # Of each leader that current_leader names.


class ListOffsetsRequestPartition(Struct):
    partition_index: Int32
    current_leader_epoch: LeaderEpoch = field("4+", default=-1, ignorable=True)  # The client's; -1: no check.
    timestamp: TimestampMs  # -1: end, -2: start, -3: largest timestamp, -4 to -6: of remote storage.


class ListOffsetsRequestTopic(Struct):
    name: str
    partitions: list[ListOffsetsRequestPartition]


class ListOffsetsRequest(Struct, flexible="6+"):
    replica_id: Int32  # The broker that asks; -1: a client. Ignored here.
    isolation_level: Int8 = field("2+")  # 0: read_uncommitted, 1: read_committed.
    topics: list[ListOffsetsRequestTopic]
    timeout_ms: Int32 = field("10+", ignorable=True)  # For a look-up in remote storage; ignored here.


class ListOffsetsResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
    timestamp: TimestampMs = field("1+", default=-1)  # Of the record that was found by time; -1: none.
    offset: Offset = field("1+", default=-1)  # -1: no record is as late, or there is no such place.
    leader_epoch: LeaderEpoch = field("4+", default=-1, ignorable=True)  # Of the offset; -1: unknown.


class ListOffsetsResponseTopic(Struct):
    name: str
    partitions: list[ListOffsetsResponsePartition]


class ListOffsetsResponse(Struct, flexible="6+"):
    """Kafka declares leader_epoch as not ignorable, and its broker's code omits it below version 4. Here a
    handler answers the same values for every version, so an older version may drop it."""

    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[ListOffsetsResponseTopic]


class OffsetForLeaderEpochRequestPartition(Struct):
    partition: Int32
    current_leader_epoch: LeaderEpoch = field("2+", default=-1, ignorable=True)  # The reader's; -1: no check.
    leader_epoch: LeaderEpoch  # The epoch whose end is wanted.


class OffsetForLeaderEpochRequestTopic(Struct):
    topic: str
    partitions: list[OffsetForLeaderEpochRequestPartition]


class OffsetForLeaderEpochRequest(Struct, flexible="4+"):
    replica_id: Int32 = field("3+", default=-2, ignorable=True)  # The broker that follows; below 0: a client.
    topics: list[OffsetForLeaderEpochRequestTopic]


class OffsetForLeaderEpochResponsePartition(Struct):
    error_code: Int16
    partition: Int32
    leader_epoch: LeaderEpoch = field("1+", default=-1, ignorable=True)  # The largest up to that; -1: none.
    end_offset: Offset = field(default=-1)  # Where that epoch ends; -1: unknown.


class OffsetForLeaderEpochResponseTopic(Struct):
    topic: str
    partitions: list[OffsetForLeaderEpochResponsePartition]


class OffsetForLeaderEpochResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[OffsetForLeaderEpochResponseTopic]


class SnapshotId(Struct):
    end_offset: Offset  # Where the log begins that the snapshot is for.
    epoch: Int32  # Always -1 in answers: the offset says which snapshot it is.


class FetchSnapshotRequestPartition(Struct):
    partition: Int32
    current_leader_epoch: LeaderEpoch  # Fences a reader with older metadata; -1: no check.
    snapshot_id: SnapshotId
    position: Int64  # The byte of the snapshot from which to go on.
    replica_directory_id: UUID = field("1+", ignorable=True, tag=0)  # The follower's folder; ignored here.


class FetchSnapshotRequestTopic(Struct):
    name: str
    partitions: list[FetchSnapshotRequestPartition]


class FetchSnapshotRequest(Struct, flexible="0+"):
    cluster_id: str | None = field(default=None, ignorable=True, tag=0)  # Null: it is not checked.
    replica_id: Int32 = field(default=-1)  # The broker that follows; it must have a replica.
    max_bytes: Int32 = field(default=0x7FFFFFFF)  # Of the pieces of all snapshots.
    topics: list[FetchSnapshotRequestTopic]


class FetchSnapshotResponsePartition(Struct):
    index: Int32
    error_code: Int16
    snapshot_id: SnapshotId  # What is sent, whatever the request named.
    current_leader: CurrentLeader = field(tag=0)  # Never set here.
    size: Int64  # Bytes of the whole snapshot.
    position: Int64  # The byte of the snapshot at which the piece begins.
    unaligned_records: Records  # The piece: bytes of a snapshot file, see `storage.snapshot`.


class FetchSnapshotResponseTopic(Struct):
    name: str
    partitions: list[FetchSnapshotResponsePartition]


class FetchSnapshotResponseNodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: Uint16


class FetchSnapshotResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field(ignorable=True)
    error_code: Int16
    topics: list[FetchSnapshotResponseTopic]
    node_endpoints: list[FetchSnapshotResponseNodeEndpoint] = field("1+", tag=0)  # Never set here.
