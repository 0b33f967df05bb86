"""Transactions in Kafka's own format: each state survives, and Kafka's bytes are read."""

import pytest

from tests.unit.broker.coordinator.transactions.site import NOW_MS, P0, P1
from tidelog.broker.coordinator.transactions.records import TRANSACTION_RECORD_FORMATS, TransactionRecord
from tidelog.broker.coordinator.transactions.states import TransactionState
from tidelog.broker.coordinator.transactions.transaction import Producer, Transaction
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.types import TopicPartition

HELD = Transaction(
    Producer(7, 3),
    60_000,
    TransactionState.PREPARE_COMMIT,
    frozenset((P0, P1, TopicPartition("u", 5))),
    NOW_MS,
    NOW_MS + 1,
    last_epoch=2,
    previous_id=6,
    following=Producer(99, 0),
    client_version=2,
)
# From the definitions: the value's version, producer id 7, epoch 3, timeout 60,000, state 1 (ongoing), one
# topic "t" with partition 0, updated at 2, begun at 1.
FIELDS = "0000000000000007 0003 0000ea60 01"
VERSION_0 = bytes.fromhex(
    f"0000 {FIELDS} 00000001 0001 74 00000001 00000000 0000000000000002 0000000000000001"
)
# The same in version 1: compact lengths, and the tags 0 to 3: previous id 6, next id 8, version 2, epoch 1.
VERSION_1 = bytes.fromhex(
    f"0001 {FIELDS} 02 02 74 02 00000000 00 0000000000000002 0000000000000001"
    "04 00 08 0000000000000006 01 08 0000000000000008 02 02 0002 03 02 0001"
)
KEY = bytes.fromhex("0000 0001 78")


@pytest.mark.parametrize("state", TransactionState)
def test_a_record_is_read_as_it_was_written(state: TransactionState) -> None:
    held = HELD._replace(state=state)
    if state is TransactionState.EMPTY:
        held = held._replace(partitions=frozenset())
    for record in (TransactionRecord("x", held), TransactionRecord("x", None)):
        assert TRANSACTION_RECORD_FORMATS.decode(*TRANSACTION_RECORD_FORMATS.encode(record)) == record


def test_kafkas_records_of_both_versions_are_read() -> None:
    ongoing = Transaction(Producer(7, 3), 60_000, TransactionState.ONGOING, frozenset((P0,)), 1, 2)
    assert TRANSACTION_RECORD_FORMATS.decode(KEY, VERSION_0) == TransactionRecord("x", ongoing)
    newer = ongoing._replace(previous_id=6, following=Producer(8, 1), client_version=2)
    assert TRANSACTION_RECORD_FORMATS.decode(KEY, VERSION_1) == TransactionRecord("x", newer)
    assert TRANSACTION_RECORD_FORMATS.encode(TransactionRecord("x", newer)) == (KEY, VERSION_1)


def test_an_unknown_state_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="expected 0 to 5"):
        TRANSACTION_RECORD_FORMATS.decode(KEY, VERSION_0[:16] + b"\x09" + VERSION_0[17:])
