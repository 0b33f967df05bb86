"""Inputs and outputs of the machine of transactions, except the transactions themselves.

Owns the shapes. Pure. Source: InitProducerId, ListTransactions, DescribeTransactions.
"""

from typing import NamedTuple

from tidelog.broker.coordinator.transactions.transaction import NO_PRODUCER, Producer, Transaction


class TransactionLimits(NamedTuple):
    """The limits that settings put on transactions, by Kafka's names."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    max_bytes: int = 64 << 20


class Initialization(NamedTuple):
    """A client that begins. `expected`: the pair that it has already, or `NO_PRODUCER` (KIP-360).

    `has_two_phase_commit`: no timeout aborts its transactions. `keeps_prepared`: an ongoing transaction of
    the id is not aborted (KIP-939).
    """

    transactional_id: str
    timeout_ms: int
    expected: Producer = NO_PRODUCER
    has_two_phase_commit: bool = False
    keeps_prepared: bool = False


class Initialized(NamedTuple):
    """The pair of the client; `kept` is the pair of the ongoing transaction that was kept, if one was."""

    client: Producer
    kept: Producer = NO_PRODUCER


class ProducerIdNeeded(Exception):
    """The operation needs a producer id that was never used: run it again with one."""


class Held(NamedTuple):
    """A transactional id with its transaction."""

    transactional_id: str
    transaction: Transaction
