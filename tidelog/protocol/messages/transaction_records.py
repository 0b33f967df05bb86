"""The records in the log of `__transaction_state`: the id of a transactional producer, and its state.

Declarations only. A record's key and value each begin with an int16 version, see
`protocol.coordinator_records`. Versions: the key 0, the value 0 and 1.

Source: TransactionLogKey.json, TransactionLogValue.json (KIP-98, KIP-890, KIP-939).
"""

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Int64, Struct, field
from tidelog.protocol.types import ProducerEpoch, ProducerId


class TransactionLogKey(Struct):
    transactional_id: str = field("0")


class TransactionLogValueTransactionPartition(Struct):
    topic: str
    partition_ids: list[Int32]


class TransactionLogValue(Struct, flexible="1+"):
    producer_id: ProducerId
    previous_producer_id: ProducerId = field("1+", default=-1, ignorable=True, tag=0)
    next_producer_id: ProducerId = field("1+", default=-1, ignorable=True, tag=1)
    producer_epoch: ProducerEpoch
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[TransactionLogValueTransactionPartition] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field("1+", ignorable=True, tag=2)
    next_producer_epoch: ProducerEpoch = field("1+", default=-1, ignorable=True, tag=3)
    # Not Kafka's, which does not store it and skips tags that it does not know.
    last_producer_epoch: ProducerEpoch = field("1+", default=-1, ignorable=True, tag=10_000)
