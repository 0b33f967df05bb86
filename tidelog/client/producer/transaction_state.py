"""The state of a transactional producer: what it may do next, and what each error of a coordinator means.

Owns: the phases and the table of their transitions, the partitions of the transaction, and the meaning of
each error code per request. Pure: it takes facts and returns answers.
Invariants:
- records are accepted only in a transaction, and belong to that transaction;
- after an abortable error only an abort is allowed. After a fatal error nothing is;
- a prepared transaction takes no more records, and only the application ends it;
- once the commit was sent to the coordinator, it may be decided. Then only the same commit can be repeated;
- where the brokers add no partitions by themselves (`transaction.version` below 2), a partition's first batch
  waits until the coordinator has the partition;
- after a failed transaction no sequence number of it is used again: the next one has a new epoch.
Source: KIP-98, KIP-360, KIP-890; Kafka's TransactionManager.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from tidelog.client.errors import (
    FENCED,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionStateError,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import TopicPartition
from tidelog.wire.errors import ClientError, broker_error


class Phase(Enum):
    """The phase of the producer. The value completes the sentence "The producer ..."."""

    UNINITIALIZED = "is not started"
    READY = "has no transaction"
    IN_TRANSACTION = "is in a transaction"
    PREPARING = "sends the last records of a transaction that it prepares"
    PREPARED = "has prepared a transaction"
    COMMITTING = "sends the last records of a transaction before its commit"
    COMMIT_SENT = "has sent a commit and does not know yet that it succeeded"
    ABORTING = "aborts a transaction"
    ABORTABLE_ERROR = "has a transaction that failed"
    FATAL_ERROR = "has failed"


class Event(Enum):
    """What changes the phase. The value completes the sentence "It cannot ..."."""

    INITIALIZED = "start"
    BEGIN = "begin a transaction"
    PREPARE = "prepare a transaction"
    PREPARED = "have prepared a transaction"
    COMMIT = "commit"
    COMMIT_SENT = "send a commit"
    ABORT = "abort"
    ENDED = "end a transaction"
    FAILED = "fail"
    FAILED_FOR_GOOD = "fail for good"


_FROM: Final[dict[Phase, dict[Event, Phase]]] = {
    Phase.UNINITIALIZED: {Event.INITIALIZED: Phase.READY},
    Phase.READY: {Event.BEGIN: Phase.IN_TRANSACTION},
    Phase.IN_TRANSACTION: {
        Event.PREPARE: Phase.PREPARING,
        Event.COMMIT: Phase.COMMITTING,
        Event.ABORT: Phase.ABORTING,
        Event.FAILED: Phase.ABORTABLE_ERROR,
    },
    Phase.PREPARING: {
        Event.PREPARE: Phase.PREPARING,
        Event.PREPARED: Phase.PREPARED,
        Event.ABORT: Phase.ABORTING,
        Event.FAILED: Phase.ABORTABLE_ERROR,
    },
    Phase.PREPARED: {
        Event.PREPARE: Phase.PREPARING,
        Event.COMMIT: Phase.COMMITTING,
        Event.ABORT: Phase.ABORTING,
    },
    Phase.COMMITTING: {
        Event.COMMIT: Phase.COMMITTING,
        Event.COMMIT_SENT: Phase.COMMIT_SENT,
        Event.ABORT: Phase.ABORTING,
        Event.ENDED: Phase.READY,
        Event.FAILED: Phase.ABORTABLE_ERROR,
    },
    Phase.COMMIT_SENT: {
        Event.COMMIT: Phase.COMMIT_SENT,
        Event.COMMIT_SENT: Phase.COMMIT_SENT,
        Event.ENDED: Phase.READY,
        # The coordinator answered that it does not commit.
        Event.FAILED: Phase.ABORTABLE_ERROR,
    },
    Phase.ABORTING: {Event.ABORT: Phase.ABORTING, Event.ENDED: Phase.READY, Event.FAILED: Phase.ABORTING},
    Phase.ABORTABLE_ERROR: {Event.ABORT: Phase.ABORTING, Event.FAILED: Phase.ABORTABLE_ERROR},
    Phase.FATAL_ERROR: {},
}
TRANSITIONS: Final[dict[tuple[Phase, Event], Phase]] = {
    **{(phase, event): after for phase, events in _FROM.items() for event, after in events.items()},
    **{(phase, Event.FAILED_FOR_GOOD): Phase.FATAL_ERROR for phase in Phase},
}
"""(phase, event) -> the next phase. All other pairs are calls at the wrong time."""


_SENDING: Final = frozenset({Phase.IN_TRANSACTION, Phase.PREPARING, Phase.COMMITTING})


class Request(Enum):
    """The requests of a transaction, other than Produce."""

    FIND_COORDINATOR = "FindCoordinator"
    INITIALIZE = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"


class Meaning(Enum):
    """What an error code means for the transaction."""

    DONE = "done"
    RETRY = "retry"
    ABORTABLE = "abortable"
    FATAL = "fatal"


_ADDING: Final = frozenset({Request.ADD_PARTITIONS, Request.ADD_OFFSETS, Request.END})
_ABORTABLE_ANYWHERE: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
_GROUP_REFUSALS: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
)
_LOST_IDENTITY: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID})


def meaning_of(request: Request, code: ErrorCode) -> Meaning:
    """The meaning of `code` in an answer to `request`. An unknown code is fatal."""
    if code is ErrorCode.NONE:
        return Meaning.DONE
    if code.retriable:
        return Meaning.RETRY
    is_abortable = (
        code in _ABORTABLE_ANYWHERE
        or (code in _LOST_IDENTITY and request in _ADDING)
        or (code in _GROUP_REFUSALS and request is Request.COMMIT_OFFSETS)
    )
    # A start has nothing to abort: it raises, and the producer can be created again.
    return Meaning.ABORTABLE if is_abortable and request is not Request.INITIALIZE else Meaning.FATAL


def error_of(request: Request, code: ErrorCode, transactional_id: str) -> ClientError:
    """The exception for `code` in an answer to `request`."""
    what = f"{request.value} of transactional id {transactional_id!r}"
    if code in FENCED:
        return ProducerFencedError(
            f"{what}: another producer with this id was started, or the transaction took longer than"
            f" transaction_timeout_ms [{code.name} {code.value}]"
        )
    return broker_error(code, what)


class TransactionState:
    """The state machine; one per transactional producer."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.UNINITIALIZED
        self.error: ClientError | None = None
        """Why the transaction, or the producer, failed."""
        self.has_epoch_per_transaction = False
        """Whether `transaction.version` is 2: brokers add partitions, and EndTxn gives a new epoch."""
        self.is_commit_lost = False
        """Whether a commit was sent whose answer did not come."""
        self.number = 0
        """Transactions that were begun."""
        self.is_known_to_coordinator = False
        """Whether the coordinator may have a transaction that must be ended."""
        self.must_initialize = False
        """Whether InitProducerId must give a new epoch before the next transaction."""
        self._lost_identity = False
        self._added: set[TopicPartition] = set()
        self._wanted: dict[TopicPartition, None] = {}

    def meaning(self, request: Request, code: ErrorCode) -> Meaning:
        """The meaning of `code` in an answer to `request` now."""
        if request is Request.END and self.phase is Phase.ABORTING and code is ErrorCode.INVALID_TXN_STATE:
            # The coordinator has no transaction to abort: what should have been added did not arrive.
            return Meaning.ABORTABLE
        return meaning_of(request, code)

    def change(self, event: Event) -> None:
        """Raises TransactionStateError, or the error after which nothing else is possible."""
        after = TRANSITIONS.get((self.phase, event))
        if after is Phase.ABORTING:
            self._wanted.clear()
        if after is None:
            self._refuse(event)
        else:
            self.phase = after

    def _refuse(self, event: Event) -> None:
        if self.phase is Phase.FATAL_ERROR and self.error is not None:
            raise self.error.with_traceback(None)
        if self.phase is Phase.ABORTABLE_ERROR:
            cause = "unknown" if self.error is None else self.error.message
            raise TransactionAbortableError(f"the transaction failed ({cause})") from self.error
        raise TransactionStateError(f"The producer {self.phase.value}. It cannot {event.value} now")

    def initialized(self, *, has_epoch_per_transaction: bool) -> None:
        """InitProducerId gave the producer its epoch."""
        self.has_epoch_per_transaction = has_epoch_per_transaction
        self.must_initialize = False
        if self.phase is Phase.UNINITIALIZED:
            self.change(Event.INITIALIZED)

    def begin(self) -> None:
        self.change(Event.BEGIN)
        self.number += 1
        self.is_known_to_coordinator = self._lost_identity = self.is_commit_lost = False
        self._added.clear()
        self._wanted.clear()

    def require_transaction(self, number: int | None = None) -> None:
        """Raises unless records can be taken now, and (if given) for transaction `number`."""
        if self.phase is not Phase.IN_TRANSACTION:
            if self.phase in (Phase.ABORTABLE_ERROR, Phase.FATAL_ERROR):
                self._refuse(Event.COMMIT)
            raise TransactionStateError(
                f"The producer {self.phase.value}. Records and offsets need a transaction that is open"
            )
        if number is not None and number != self.number:
            raise TransactionStateError("The transaction of this record has ended, and another one was begun")

    def admits(self, key: TopicPartition) -> bool:
        """Whether a new batch of the partition may be sent now. If not, the partition may be waiting to be
        added: see `to_add`."""
        if self.phase not in _SENDING:
            return False
        if self.has_epoch_per_transaction or key in self._added:
            self.is_known_to_coordinator = True
            return True
        self._wanted[key] = None
        return False

    @property
    def to_add(self) -> list[TopicPartition]:
        """The partitions that wait until the coordinator has them."""
        return list(self._wanted)

    def adding(self) -> None:
        """Partitions or offsets are being added: from now on the coordinator may have a transaction."""
        self.is_known_to_coordinator = True

    def added(self, keys: Iterable[TopicPartition]) -> None:
        """The coordinator has these partitions, and with them a transaction."""
        self.is_known_to_coordinator = True
        for key in keys:
            self._added.add(key)
            self._wanted.pop(key, None)

    def fail(self, error: ClientError, code: ErrorCode = ErrorCode.NONE) -> None:
        """The transaction can only be aborted. `code` is the coordinator's, if it answered one."""
        if (self.phase, Event.FAILED) not in TRANSITIONS:
            return
        if self.phase is not Phase.ABORTABLE_ERROR:
            self.error = error
        self._wanted.clear()
        self.must_initialize = True
        self._lost_identity |= code in _LOST_IDENTITY
        self.change(Event.FAILED)

    def fail_for_good(self, error: ClientError) -> None:
        """The producer can do nothing more."""
        if self.phase is not Phase.FATAL_ERROR:
            self.error = error
        self._wanted.clear()
        self.change(Event.FAILED_FOR_GOOD)

    @property
    def needs_end(self) -> bool:
        """Whether the transaction has to be ended at the coordinator."""
        return self.is_known_to_coordinator and not self._lost_identity

    def decided(self, *, has_new_epoch: bool) -> None:
        """The coordinator has decided. `has_new_epoch`: its answer gave the producer one."""
        self.is_known_to_coordinator = False
        if has_new_epoch:
            self.must_initialize = False

    def ended(self) -> None:
        """The transaction has ended, and the next one may begin."""
        self.change(Event.ENDED)
        self.error = None
