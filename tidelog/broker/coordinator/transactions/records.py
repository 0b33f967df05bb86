"""The record of a transactional id in `__transaction_state`, as a value and in Kafka's own encoding.

Owns `TransactionRecord` and its two encodings. Keys are of version 0; values are written in version 1, as
Kafka 4 does, and read in 0 and 1. A record without a transaction (a tombstone) means that the id expired.
`last_epoch` is in a tagged field of our own, which Kafka skips: with it, a request that is repeated after a
restart gets the same answer.

Pure. Source: TransactionLogKey.json and TransactionLogValue.json (KIP-890, KIP-939).
"""

from typing import NamedTuple

from tidelog.broker.coordinator.record_formats import RecordFormats, RecordKind
from tidelog.broker.coordinator.transactions.states import TransactionState
from tidelog.broker.coordinator.transactions.transaction import NO_PRODUCER, Producer, Transaction
from tidelog.protocol import message_types as types
from tidelog.protocol.coordinator_records import RecordSchema
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.messages.transactions import TransactionLogKey, TransactionLogValue
from tidelog.protocol.types import NO_PRODUCER_ID, TopicPartition

_KEY_VERSION = 0
_VALUE_VERSION = 1
_KEY = RecordSchema(TransactionLogKey, _KEY_VERSION, _KEY_VERSION)
_VALUE = RecordSchema(TransactionLogValue, 0, _VALUE_VERSION)


class TransactionRecord(NamedTuple):
    """The stored state of a transactional id: `transaction` is None when it expired."""

    transactional_id: str
    transaction: Transaction | None


def _encoded(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    key = _KEY.encode(_KEY_VERSION, {"transactional_id": record.transactional_id})
    held = record.transaction
    if held is None:
        return key, None
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(held.partitions):
        topics.setdefault(topic, []).append(partition)
    is_empty = held.state is TransactionState.EMPTY
    values: DictOf[types.TransactionLogValue] = {
        "producer_id": held.producer.producer_id,
        "previous_producer_id": held.previous_id,
        "next_producer_id": held.following.producer_id,
        "producer_epoch": held.producer.epoch,
        "transaction_timeout_ms": held.timeout_ms,
        "transaction_status": held.state,
        "transaction_partitions": None
        if is_empty
        else [{"topic": topic, "partition_ids": indexes} for topic, indexes in topics.items()],
        "transaction_last_update_timestamp_ms": held.updated_ms,
        "transaction_start_timestamp_ms": held.start_ms,
        "client_transaction_version": held.client_version,
        "next_producer_epoch": held.following.epoch,
        "last_producer_epoch": held.last_epoch,
    }
    return key, _VALUE.encode(_VALUE_VERSION, values)


def _decoded(key: bytes, value: bytes | None) -> TransactionRecord:
    """Raises ProtocolError."""
    transactional_id: str = _KEY.decode(key).transactional_id
    return TransactionRecord(transactional_id, None if value is None else _transaction_of(value))


def _transaction_of(value: bytes) -> Transaction:
    values: types.TransactionLogValue = _VALUE.decode(value)
    try:
        state = TransactionState(values.transaction_status)
    except ValueError as error:
        raise ProtocolError(f"a transaction's status: expected 0 to 5, got {error}") from error
    following = NO_PRODUCER
    if values.next_producer_id != NO_PRODUCER_ID:
        following = Producer(values.next_producer_id, max(values.next_producer_epoch, 0))
    return Transaction(
        Producer(values.producer_id, values.producer_epoch),
        values.transaction_timeout_ms,
        state,
        frozenset(
            TopicPartition(topic.topic, index)
            for topic in values.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        values.transaction_start_timestamp_ms,
        values.transaction_last_update_timestamp_ms,
        values.last_producer_epoch,
        values.previous_producer_id,
        following,
        values.client_transaction_version,
    )


TRANSACTION_RECORD_FORMATS = RecordFormats(
    (RecordKind(TransactionRecord, (_KEY_VERSION,), _encoded, _decoded),)
)
