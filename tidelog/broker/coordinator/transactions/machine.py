"""The transactional ids of one partition of `__transaction_state`: a pure machine of what producers ask.

Owns which requests are accepted in which state, and by which client.

Invariants:
- the state changes only by `apply`, so it is the same after a replay;
- a request that is repeated gets the same answer, as long as no later one of its client was accepted;
- a client that is not the current one changes nothing (PRODUCER_FENCED);
- an outcome that was decided never changes; until all markers are durable, its id accepts nothing
  (CONCURRENT_TRANSACTIONS);
- a partition is permitted to take data of a transaction only after `confirm`, when it is durable that it
  takes part;
- requests never make all ids together hold more than `TransactionLimits.max_bytes`. Before one is refused for
  that, ids without a transaction for the longest transaction timeout are forgotten, the longest idle first.

Pure. Source: Kafka's TransactionCoordinator, KIP-98, KIP-360, KIP-664, KIP-890, KIP-939.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice

from tidelog.broker.coordinator.decision import Decision
from tidelog.broker.coordinator.transactions import messages
from tidelog.broker.coordinator.transactions.records import TransactionRecord
from tidelog.broker.coordinator.transactions.states import TransactionState
from tidelog.broker.coordinator.transactions.transaction import (
    EPOCH_PER_TRANSACTION,
    LAST_EPOCH,
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    Producer,
    Transaction,
)
from tidelog.broker.coordinator.uncommitted import Uncommitted
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

_Initializing = Callable[[int], Decision[TransactionRecord, messages.Initialized | None]]
_Ending = Callable[[int], Decision[TransactionRecord, Producer]]
_Changing = Callable[[int], Decision[TransactionRecord, None]]
_NOTHING = Decision[TransactionRecord, None]((), None)
_ID_BYTES = 1_000
"""Memory of an id without the bytes of its name and without partitions."""
_MOST_FORGOTTEN = 100
"""Idle ids that go together when memory is needed, so that this is seldom."""
_PARTITION_BYTES = 300
"""Memory of a partition that takes part."""


class Transactions:
    """Transactional ids and their transactions. Operations take `now_ms` last and return a Decision."""

    def __init__(self, limits: messages.TransactionLimits) -> None:
        self.limits = limits
        self.held_bytes = 0
        self._held: dict[str, Transaction] = {}
        self._active: dict[str, None] = {}
        # In the order in which they became idle.
        self._idle: dict[str, None] = {}
        self._confirmed: dict[str, frozenset[TopicPartition]] = {}
        self._uncommitted: Uncommitted[str, Transaction | None] = Uncommitted()

    def write(self, record: TransactionRecord) -> None:
        """Apply a record that is not committed yet."""
        self._uncommitted.written(record.transactional_id, self._held.get(record.transactional_id))
        self.apply(record)

    def settle(self, record: TransactionRecord) -> None:
        """The oldest record of its id that was not committed is."""
        self._uncommitted.committed(record.transactional_id)

    def apply(self, record: TransactionRecord) -> None:
        transactional_id, transaction = record
        self.held_bytes += _bytes_of(record) - self._bytes_of_held(transactional_id)
        if transaction is None:
            self._held.pop(transactional_id, None)
        else:
            self._held[transactional_id] = transaction
        self._idle.pop(transactional_id, None)
        if transaction is None or transaction.state.is_idle:
            self._active.pop(transactional_id, None)
        else:
            self._active[transactional_id] = None
        if transaction is not None and transaction.state.is_idle:
            self._idle[transactional_id] = None
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            self._confirmed.pop(transactional_id, None)

    def _bytes_of_held(self, transactional_id: str) -> int:
        return _bytes_of(TransactionRecord(transactional_id, self._held.get(transactional_id)))

    def _within_memory(
        self, record: TransactionRecord, code: ErrorCode, now_ms: int
    ) -> list[TransactionRecord]:
        """The record, after the records that remove idle ids if their memory is needed. Raises
        ApiError with this code if that is not enough."""
        added_bytes = _bytes_of(record) - self._bytes_of_held(record.transactional_id)
        lacking_bytes = added_bytes - max(self.limits.max_bytes - self.held_bytes, 0)
        if lacking_bytes <= 0:
            return [record]
        forgotten = []
        for transactional_id in islice(self._idle, _MOST_FORGOTTEN):
            idle_ms = now_ms - self._held[transactional_id].updated_ms
            if idle_ms >= self.limits.max_timeout_ms and transactional_id != record.transactional_id:
                forgotten.append(TransactionRecord(transactional_id, None))
                lacking_bytes -= self._bytes_of_held(transactional_id)
        if lacking_bytes > 0:
            raise ApiError(
                code,
                "all transactional ids of this partition of __transaction_state together hold as much as "
                f"transactions.max.bytes allows ({self.limits.max_bytes} bytes): raise it, or lower "
                "transactional.id.expiration.ms",
            )
        return [*forgotten, record]

    def ids(self) -> Collection[str]:
        return self._held.keys()

    def uncommitted_ids(self) -> Iterator[str]:
        return (name for name, _ in self._uncommitted)

    def active_ids(self) -> Collection[str]:
        """The ids that have a transaction which is ongoing, or whose outcome is not in all partitions yet."""
        return self._active.keys()

    def get(self, transactional_id: str) -> Transaction | None:
        """The state with everything that was written, durable or not."""
        return self._held.get(transactional_id)

    def initialize(self, asked: messages.Initialization, fresh_producer_id: int | None) -> _Initializing:
        """Give the id to a client. The response is None if an ongoing transaction must be aborted first.

        Raises ApiError (INVALID_TRANSACTION_TIMEOUT, INVALID_REQUEST, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS, POLICY_VIOLATION for a new id without memory), ProducerIdNeeded.
        """

        def operation(now_ms: int) -> Decision[TransactionRecord, messages.Initialized | None]:
            timeout_ms = self._timeout_ms(asked)
            held = self._held.get(asked.transactional_id)
            if held is None:
                unnamed = TransactionRecord(asked.transactional_id, Transaction(NO_PRODUCER, timeout_ms))
                *forgotten, _ = self._within_memory(unnamed, ErrorCode.POLICY_VIOLATION, now_ms)
                first = Producer(_needed(fresh_producer_id), 0)
                created = Transaction(first, timeout_ms, updated_ms=now_ms)
                return self._initialized(asked, created, messages.Initialized(first), forgotten)
            _check_expected_id(held, asked.expected)
            if held.state.is_decided:
                raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
            is_repeated = _check_expected_epoch(held, asked.expected)
            if is_repeated and held.following == NO_PRODUCER and held.state is TransactionState.ONGOING:
                return Decision((), messages.Initialized(held.client))
            if held.state is TransactionState.ONGOING and not asked.keeps_prepared:
                fenced = held.fenced(asked.expected.epoch, now_ms)
                return Decision((TransactionRecord(asked.transactional_id, fenced),), None)
            client, last_epoch = held.client, held.last_epoch
            if not is_repeated:
                last_epoch = asked.expected.epoch
                fresh = _needed(fresh_producer_id) if client.is_exhausted else NO_PRODUCER_ID
                client = client.successor(fresh)
            if held.state is TransactionState.ONGOING:
                kept = held.kept(client, last_epoch, timeout_ms, now_ms)
                return self._initialized(asked, kept, messages.Initialized(client, held.producer))
            begun = held.initialized(client, last_epoch, timeout_ms, now_ms)
            return self._initialized(asked, begun, messages.Initialized(client))

        return operation

    def _timeout_ms(self, asked: messages.Initialization) -> int:
        if asked.has_two_phase_commit:
            return NO_TIMEOUT_MS
        if asked.keeps_prepared:
            message = "a producer that keeps a prepared transaction must enable two-phase commit"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        most = self.limits.max_timeout_ms
        if not 0 < asked.timeout_ms <= most:
            message = (
                f"expected a timeout of 1 to {most} ms (transaction.max.timeout.ms), got {asked.timeout_ms}"
            )
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, message)
        return asked.timeout_ms

    def _initialized(
        self,
        asked: messages.Initialization,
        transaction: Transaction,
        response: messages.Initialized,
        forgotten: Iterable[TransactionRecord] = (),
    ) -> Decision[TransactionRecord, messages.Initialized | None]:
        return Decision((*forgotten, TransactionRecord(asked.transactional_id, transaction)), response)

    def add_partitions(
        self, transactional_id: str, client: Producer, partitions: Iterable[TopicPartition]
    ) -> _Changing:
        """Let partitions take part; the transaction begins with the first.

        Raises ApiError (INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
        INVALID_TXN_STATE, TRANSACTION_ABORTABLE where there is no memory for them).
        """
        wanted = frozenset(partitions)

        def operation(now_ms: int) -> Decision[TransactionRecord, None]:
            held = self._held_by(transactional_id, client)
            if not wanted or (held.state is TransactionState.ONGOING and wanted <= held.partitions):
                return _NOTHING
            record = TransactionRecord(transactional_id, held.with_partitions(wanted, now_ms))
            return Decision(self._within_memory(record, ErrorCode.TRANSACTION_ABORTABLE, now_ms), None)

        return operation

    def _held_by(self, transactional_id: str, client: Producer) -> Transaction:
        """The id's state, if this client may work in a transaction now. Raises ApiError."""
        held = self._held.get(transactional_id)
        if held is None or client.producer_id != held.client.producer_id:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if client != held.client or client.epoch == LAST_EPOCH:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        if held.state.is_decided:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if held.following != NO_PRODUCER:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, "a transaction that was kept can only be committed or aborted"
            )
        return held

    def confirm(self, transactional_id: str, client: Producer, partitions: Iterable[TopicPartition]) -> None:
        """What `add_partitions` wrote is durable."""
        held = self._held.get(transactional_id)
        if held is not None and held.state is TransactionState.ONGOING and held.client == client:
            present = self._confirmed.get(transactional_id, frozenset())
            self._confirmed[transactional_id] = present | held.partitions.intersection(partitions)

    def confirm_replayed(self, now_ms: int) -> None:
        """Everything that was applied so far is durable. What began later than now began with a clock that
        was ahead, so its timeout begins again."""
        for transactional_id in self._active:
            held = self._held[transactional_id]
            if held.start_ms > now_ms:
                self._held[transactional_id] = held._replace(start_ms=now_ms)
            self.confirm(transactional_id, held.client, held.partitions)

    def permits(self, transactional_id: str, client: Producer, partition: TopicPartition) -> ErrorCode:
        """NONE if the partition takes part in the client's ongoing transaction, and this is durable; else
        INVALID_TXN_STATE, or what `add_partitions` raises."""
        try:
            self._held_by(transactional_id, client)
        except ApiError as error:
            return error.code
        takes_part = partition in self._confirmed.get(transactional_id, ())
        return ErrorCode.NONE if takes_part else ErrorCode.INVALID_TXN_STATE

    def end(
        self,
        transactional_id: str,
        client: Producer,
        *,
        is_commit: bool,
        version: int,
        fresh_producer_id: int | None,
    ) -> _Ending:
        """Decide the outcome; the response is the pair that the client has from now on.

        `version` is the transaction version of the request. Raises ApiError (as `add_partitions`, and
        INVALID_TXN_STATE for an outcome other than the decided one), ProducerIdNeeded.
        """

        def operation(now_ms: int) -> Decision[TransactionRecord, Producer]:
            held = self._held.get(transactional_id)
            if held is None:
                raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            is_repeated = _check_end(held, client, version)
            has_epochs = version >= EPOCH_PER_TRANSACTION
            if is_repeated or (held.state is not TransactionState.ONGOING and not has_epochs):
                if held.state is TransactionState.EMPTY or held.is_commit != is_commit:
                    raise _no_such_end(held, is_commit)
                if held.state.is_decided:
                    raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
                return Decision((), held.client)
            if held.state.is_idle and is_commit:
                raise _no_such_end(held, is_commit)
            fresh: int = NO_PRODUCER_ID
            if has_epochs and held.client.is_exhausted:
                fresh = _needed(fresh_producer_id)
            decided = held.ended(is_commit, version, fresh, now_ms)
            records = [TransactionRecord(transactional_id, decided)]
            if not decided.partitions:
                records.append(TransactionRecord(transactional_id, decided.completed(now_ms)))
            return Decision(records, decided.client)

        return operation

    def complete(self, transactional_id: str, markers: Producer) -> _Changing:
        """All partitions have their markers, which have this pair."""

        def operation(now_ms: int) -> Decision[TransactionRecord, None]:
            held = self._held.get(transactional_id)
            if held is None or not held.state.is_decided or held.producer != markers:
                return _NOTHING
            return Decision((TransactionRecord(transactional_id, held.completed(now_ms)),), None)

        return operation

    def abort_timed_out(
        self, transactional_ids: Sequence[str], now_ms: int
    ) -> Decision[TransactionRecord, Sequence[str]]:
        """Abort the transactions of these ids that are past their timeout; returns the ids of those."""
        records = []
        for transactional_id in transactional_ids:
            held = self._held.get(transactional_id)
            if held is not None and held.is_timed_out(now_ms):
                records.append(TransactionRecord(transactional_id, held.fenced(NO_PRODUCER_EPOCH, now_ms)))
        return Decision(records, [record.transactional_id for record in records])

    def forget_idle(self, transactional_ids: Sequence[str], now_ms: int) -> Decision[TransactionRecord, None]:
        """Forget those of these ids that had no transaction for the time of expiry."""
        records = []
        for transactional_id in transactional_ids:
            held = self._held.get(transactional_id)
            if held is None or not held.state.is_idle:
                continue
            if now_ms - held.updated_ms >= self.limits.id_expiration_ms:
                records.append(TransactionRecord(transactional_id, None))
        return Decision(records, None)

    def describe(self, transactional_id: str) -> Transaction:
        """What is committed of an id. Raises ApiError (TRANSACTIONAL_ID_NOT_FOUND)."""
        held = self._uncommitted.shown(transactional_id, self._held.get(transactional_id))
        if held is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return held

    def listed(self, transactional_ids: Sequence[str]) -> Sequence[messages.Held]:
        """What is committed of these ids, without those that do not exist."""
        shown, held = self._uncommitted.shown, self._held
        found = ((name, shown(name, held.get(name))) for name in transactional_ids)
        return [messages.Held(name, transaction) for name, transaction in found if transaction is not None]


def _bytes_of(record: TransactionRecord) -> int:
    """How much memory the id takes, about."""
    if record.transaction is None:
        return 0
    partitions = len(record.transaction.partitions)
    return _ID_BYTES + 2 * len(record.transactional_id) + _PARTITION_BYTES * partitions


def _needed(fresh_producer_id: int | None) -> int:
    if fresh_producer_id is None:
        raise messages.ProducerIdNeeded
    return fresh_producer_id


def _check_expected_id(held: Transaction, expected: Producer) -> None:
    """Raise ApiError unless the client may have this producer id: see KIP-360."""
    if expected == NO_PRODUCER or expected.producer_id == held.client.producer_id:
        return
    # A repeated request, whose first answer gave the client a new producer id.
    if not (expected.producer_id == held.previous_id and expected.is_exhausted):
        raise ApiError(ErrorCode.PRODUCER_FENCED)


def _check_expected_epoch(held: Transaction, expected: Producer) -> bool:
    """Whether the request repeats one that was accepted. Raises ApiError for the epoch of another client."""
    if expected in (NO_PRODUCER, held.client):
        return False
    if held.last_epoch == NO_PRODUCER_EPOCH or expected.epoch != held.last_epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    return held.client.epoch != LAST_EPOCH


def _check_end(held: Transaction, client: Producer, version: int) -> bool:
    """Whether the request repeats one that was accepted in version 2. Raises ApiError for another client."""
    present = held.client
    may_be_repeated = held.state not in (TransactionState.EMPTY, TransactionState.ONGOING)
    if may_be_repeated and min(version, held.client_version) >= EPOCH_PER_TRANSACTION:
        has_new_id = present.epoch == 0 and client.is_exhausted and client.producer_id == held.previous_id
        if has_new_id or client.fenced == present:
            return True
    if client.producer_id != present.producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if client != present or client.epoch == LAST_EPOCH:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if held.state.is_decided and version >= EPOCH_PER_TRANSACTION:
        # It ends the next transaction. Kafka answers PRODUCER_FENCED, which ends the client.
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return False


def _no_such_end(held: Transaction, is_commit: bool) -> ApiError:
    asked = "committed" if is_commit else "aborted"
    return ApiError(
        ErrorCode.INVALID_TXN_STATE, f"a transaction that is {held.state.label} cannot be {asked}"
    )
