"""WriteTxnMarkers: a transaction coordinator ends transactions on the partitions that took part in them.

Declarations only. Source: the JSON definitions of the same names (KIP-98, KIP-1228 for TransactionVersion).
"""

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct, field
from tidelog.protocol.types import ProducerEpoch, ProducerId


class WriteTxnMarkersRequestTopic(Struct):
    name: str = field("1+")
    partition_indexes: list[Int32] = field("1+")


class WriteTxnMarkersRequestMarker(Struct):
    producer_id: ProducerId = field("1+")
    producer_epoch: ProducerEpoch = field("1+")
    transaction_result: bool = field("1+")  # True: commit, false: abort.
    topics: list[WriteTxnMarkersRequestTopic] = field("1+")
    coordinator_epoch: Int32 = field("1+")  # Fences a coordinator that was replaced.
    transaction_version: Int8 = field("2+", default=0, ignorable=True)


class WriteTxnMarkersRequest(Struct, flexible="1+"):
    markers: list[WriteTxnMarkersRequestMarker] = field("1+")


class WriteTxnMarkersResponsePartition(Struct):
    partition_index: Int32 = field("1+")
    error_code: Int16 = field("1+")


class WriteTxnMarkersResponseTopic(Struct):
    name: str = field("1+")
    partitions: list[WriteTxnMarkersResponsePartition] = field("1+")


class WriteTxnMarkersResponseMarker(Struct):
    producer_id: ProducerId = field("1+")
    topics: list[WriteTxnMarkersResponseTopic] = field("1+")


class WriteTxnMarkersResponse(Struct, flexible="1+"):
    markers: list[WriteTxnMarkersResponseMarker] = field("1+")
