"""The state of one transactional id: immutable, with the rules of its epochs.

Owns which producer id and epoch the client has, which ones the transaction's data has, and how they change
when a transaction ends.

Invariants:
- a pair of producer id and epoch is given to one client only, and a later client's pair is never smaller;
- a client never gets the last epoch (`LAST_EPOCH`), so each client can be fenced;
- data and markers of a transaction have the same producer id, and the marker's epoch is not below the data's.

Pure. Source: Kafka's TransactionMetadata, KIP-360, KIP-890, KIP-939.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidelog.broker.coordinator.transactions.states import TRANSITIONS, IllegalTransition, TransactionState
from tidelog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

LAST_EPOCH = 32_767
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a producer with two-phase commit: no time aborts its transactions."""
EPOCH_PER_TRANSACTION = 2
"""The transaction version from which each transaction has an epoch of its own."""


class Producer(NamedTuple):
    """One instance of a producer, as its requests name it."""

    producer_id: int
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        """Whether a client may get no later epoch under this id."""
        return self.epoch >= LAST_EPOCH - 1

    @property
    def fenced(self) -> Producer:
        """The next epoch, which no client has."""
        return self._replace(epoch=self.epoch + 1)

    def successor(self, fresh_producer_id: int) -> Producer:
        """The pair that the next client gets."""
        return Producer(fresh_producer_id, 0) if self.is_exhausted else self.fenced


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Transaction(NamedTuple):
    """`producer` has the data of the transaction; while it is decided, its epoch is that of the markers.

    `following`: the client has this pair, or will have it after the markers. Without it (`NO_PRODUCER`) the
    client has `producer`. `last_epoch` is the epoch that the client had before, where only a repeated request
    may name it. `previous_id` is the producer id before the last transition that could change it.
    """

    producer: Producer
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    updated_ms: int = NO_TIMESTAMP
    last_epoch: int = NO_PRODUCER_EPOCH
    previous_id: int = NO_PRODUCER_ID
    following: Producer = NO_PRODUCER
    client_version: int = 0
    """The transaction version of the request that ended the last transaction."""

    @property
    def client(self) -> Producer:
        """The pair that the client has, or gets with the end of its transaction."""
        return self.producer if self.following == NO_PRODUCER else self.following

    @property
    def is_commit(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def has_timeout(self) -> bool:
        return self.timeout_ms != NO_TIMEOUT_MS

    @property
    def is_prepared(self) -> bool:
        """Whether only a client or an operator ends it: its producer may have prepared it."""
        return self.state is TransactionState.ONGOING and not self.has_timeout

    def is_timed_out(self, now_ms: int) -> bool:
        is_ongoing = self.state is TransactionState.ONGOING
        return is_ongoing and self.has_timeout and now_ms - self.start_ms > self.timeout_ms

    def initialized(self, client: Producer, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """A client has the id, and no transaction."""
        return self._moved(
            TransactionState.EMPTY,
            now_ms,
            producer=client,
            previous_id=self.producer.producer_id,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
        )

    def kept(self, client: Producer, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """Another client has the id and may end the transaction that the one before it prepared."""
        return self._moved(
            TransactionState.ONGOING, now_ms, following=client, last_epoch=last_epoch, timeout_ms=timeout_ms
        )

    def with_partitions(self, partitions: frozenset[TopicPartition], now_ms: int) -> Transaction:
        """They take part, in a transaction that begins now if there is none."""
        begins = self.state is not TransactionState.ONGOING
        return self._moved(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions | partitions,
            start_ms=now_ms if begins else self.start_ms,
        )

    def ended(self, is_commit: bool, version: int, fresh_producer_id: int, now_ms: int) -> Transaction:
        """Its client has decided. Each client of version 2 gets a new epoch with that."""
        client, markers, last_epoch = self.client, self.producer, self.last_epoch
        if version >= EPOCH_PER_TRANSACTION:
            client, markers, last_epoch = client.successor(fresh_producer_id), markers.fenced, client.epoch
        return self._decided(is_commit, markers, client, last_epoch, version, now_ms)

    def fenced(self, last_epoch: int, now_ms: int) -> Transaction:
        """Aborted, and its client can send nothing more under its epoch, except to ask for the next with
        `last_epoch`."""
        return self._decided(False, self.producer.fenced, self.client.fenced, last_epoch, 0, now_ms)

    def _decided(
        self, is_commit: bool, markers: Producer, client: Producer, last_epoch: int, version: int, now_ms: int
    ) -> Transaction:
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        return self._moved(
            state,
            now_ms,
            producer=markers,
            previous_id=self.client.producer_id,
            following=NO_PRODUCER if client == markers else client,
            last_epoch=last_epoch,
            client_version=version,
            start_ms=now_ms if self.state.is_idle else self.start_ms,
        )

    def completed(self, now_ms: int) -> Transaction:
        """All partitions have their markers."""
        state = TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT
        return self._moved(state, now_ms, producer=self.client, following=NO_PRODUCER, partitions=frozenset())

    def _moved(self, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
        """Raises IllegalTransition."""
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransition(f"a transaction is {self.state.label} and cannot become {state.label}")
        return self._replace(state=state, updated_ms=now_ms, **changes)
