"""The rules of idempotence: what to do with a producer's batch, by what its partition knows of that producer.

Owns the verdict: append the batch, answer that the log holds it already, or refuse it.

Invariants, in the order of the checks, which is Kafka's:
- a batch with the epoch, last sequence and length of a remembered batch is a duplicate;
- except where that batch belongs to a transaction that has ended: nobody sends it again then. It is another
  batch with its sequence: when librdkafka aborts, it gives the sequences of a batch that it sent, and for
  which it has no answer yet, to the next transaction. A duplicate's answer would lose those records;
- a producer's epoch never goes back;
- sequences follow each other without a gap within an epoch, and begin at 0 in each;
- a transaction begins only if the coordinator knows of it, and nothing else is written until it ends;
- an unknown producer also begins at 0, under an id that was issued, and not in the epoch in which the limit
  evicted it: it may be sending a stored batch again.

Pure. Source: KIP-98, KIP-360, KIP-890, KIP-1228, Kafka's ProducerAppendInfo. Kafka does not give the answers
59 and 46 here: it appends, answers 45, or takes a batch for one of an ended transaction. Settings switch the
answers to unknown producers and old batches off (`ProducerRules`).
"""

from typing import Final, NamedTuple, TypeAlias

from tidelog.broker.storage.producer_table import CachedBatch, ProducerEntry, ProducerTable
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import BatchHeader, EndTransactionMarker, TransactionMarker
from tidelog.protocol.sequences import increment_sequence, sequence_distance
from tidelog.protocol.types import MAX_SEQUENCE

_HALF_RING: Final = (MAX_SEQUENCE + 1) // 2
_EPOCH_PER_TRANSACTION: Final = 2
"""The transaction version from which a marker has a later epoch than the records that it ends."""


class Append(NamedTuple):
    """The batch is the next one: write it, then remember it."""


class Begin(NamedTuple):
    """The batch is the next one and begins a transaction: as Append, if the coordinator knows of it."""


class Duplicate(NamedTuple):
    """The log holds this batch at these offsets; `timestamp` is its largest record timestamp."""

    base_offset: int
    last_offset: int
    timestamp: int


class Refusal(NamedTuple):
    """Nothing may be appended; the producer gets this code."""

    code: ErrorCode
    message: str


Verdict: TypeAlias = Append | Begin | Duplicate | Refusal
APPEND: Final = Append()
BEGIN: Final = Begin()


class ProducerRules(NamedTuple):
    """The settings for producers, by Kafka's names where Kafka has them."""

    reject_unknown_sequence: bool = True
    duplicate_below_window: bool = True
    expiration_ms: int = 86_400_000
    max_producers: int = 1_000_000


DEFAULT_RULES = ProducerRules()


def check(sent: BatchHeader, table: ProducerTable, slot: int, rules: ProducerRules) -> Verdict:
    """What to do with a batch of the producer in this slot of the table."""
    txn_start_offset, epoch, count, last_sequence = table.state(slot)
    expected, is_old = 0, False
    if sent.producer_epoch == epoch and count:
        expected = increment_sequence(last_sequence, 1)
        if sent.base_sequence != expected:
            for batch in table.batches(slot, count):
                ended = _has_ended(sent, batch, txn_start_offset)
                if ended and sequence_distance(sent.base_sequence, batch.last_sequence) < _HALF_RING:
                    return _of_ended(sent)
                is_last = batch.last_sequence == sent.last_sequence
                if is_last and batch.offset_delta == sent.last_offset_delta:
                    return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
            is_old = rules.duplicate_below_window and _is_behind(sent, last_sequence)
    if sent.producer_epoch < epoch:
        return _old_epoch(sent, epoch)
    if sent.base_sequence != expected:
        return _out_of_order(sent, expected, last_sequence if is_old else None)
    if sent.is_transactional:
        # An epoch that its coordinator raised needs the coordinator's answer for its first batch too.
        return APPEND if txn_start_offset >= 0 and sent.producer_epoch == epoch else BEGIN
    if txn_start_offset >= 0:
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {sent.producer_id} has a transaction open; end it before sending outside of one",
        )
    return APPEND


def check_unknown(
    sent: BatchHeader, next_producer_id: int, evicted_epoch: int, rules: ProducerRules
) -> Verdict:
    """What to do with a batch of a producer that is not known. Ids from `next_producer_id` on were never
    issued; `evicted_epoch` is the epoch in which the limit evicted it, -1 if it did not."""
    if sent.producer_id < 0:
        return Refusal(
            ErrorCode.INVALID_TXN_STATE, "a transactional batch names no producer: call InitProducerId first"
        )
    if not rules.reject_unknown_sequence:
        return _first_of(sent)
    if sent.producer_id >= next_producer_id:
        problem = f"producer id {sent.producer_id} was never issued here"
    elif sent.producer_epoch <= evicted_epoch:
        problem = (
            f"producer {sent.producer_id} was forgotten, for more than"
            f" max.producer.ids.per.partition={rules.max_producers} write here; whether this"
            " batch was stored before is not known any more"
        )
    elif sent.base_sequence != 0:
        problem = (
            f"producer {sent.producer_id} sent sequence {sent.base_sequence}, but it is unknown to "
            "this partition: it never wrote here, or was idle longer than producer.id.expiration.ms"
        )
    else:
        return _first_of(sent)
    return Refusal(ErrorCode.UNKNOWN_PRODUCER_ID, problem)


def _first_of(sent: BatchHeader) -> Append | Begin:
    """A producer that is not known has no transaction open."""
    return BEGIN if sent.is_transactional else APPEND


def check_own(sent: BatchHeader, known: ProducerEntry | None) -> Append | Refusal:
    """What to do with records without a sequence, which a coordinator writes in a producer's transaction."""
    if known is not None and sent.producer_epoch < known.producer_epoch:
        return _old_epoch(sent, known.producer_epoch)
    return APPEND


def check_marker(
    sent: BatchHeader, marker: EndTransactionMarker, known: ProducerEntry | None
) -> Append | Refusal:
    """What to do with the control batch by which a coordinator ends a producer's transaction."""
    if known is not None and sent.producer_epoch < known.producer_epoch:
        return Refusal(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"a coordinator ends a transaction of producer {sent.producer_id} in epoch"
            f" {sent.producer_epoch}, the current is {known.producer_epoch}",
        )
    if known is not None and marker.coordinator_epoch < known.coordinator_epoch:
        return Refusal(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"a coordinator of epoch {marker.coordinator_epoch} ends a transaction of producer"
            f" {sent.producer_id}, one of epoch {known.coordinator_epoch} did so before",
        )
    return APPEND


def is_late(marker: TransactionMarker, known: ProducerEntry | None) -> bool:
    """Whether a marker that was sent long ago would end the transaction after its own.

    Its broker had given up the request, and asked again. Before version 2 nothing distinguishes the two.
    """
    return (
        known is not None
        and marker.transaction_version >= _EPOCH_PER_TRANSACTION
        and marker.producer_epoch == known.producer_epoch
        and known.current_txn_start_offset >= 0
    )


def _has_ended(sent: BatchHeader, stored: CachedBatch, txn_start_offset: int) -> bool:
    """Whether the transaction of a stored batch has ended. Its producer writes in transactions if `sent` is
    of one; the present one begins at `txn_start_offset`, -1 while there is none."""
    return sent.is_transactional and not 0 <= txn_start_offset <= stored.base_offset


def _of_ended(sent: BatchHeader) -> Refusal:
    """Clients abort the transaction and raise the epoch after this code."""
    return Refusal(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"producer {sent.producer_id} epoch {sent.producer_epoch} sent sequences {sent.base_sequence}.."
        f"{sent.last_sequence}, which a transaction has that ended: abort, and raise the epoch",
    )


def _is_behind(sent: BatchHeader, last_sequence: int) -> bool:
    """Whether all sequences of a batch lie at or before the last one, in the half of the ring after it."""
    behind_first = sequence_distance(sent.base_sequence, last_sequence)
    return sequence_distance(sent.last_sequence, last_sequence) <= behind_first < _HALF_RING


def _out_of_order(sent: BatchHeader, expected: int, stored_to: int | None) -> Refusal:
    """The refusal of a sequence that is neither the next one nor that of a cached batch."""
    what = (
        f"producer {sent.producer_id} epoch {sent.producer_epoch} sent sequences"
        f" {sent.base_sequence}..{sent.last_sequence}"
    )
    if stored_to is not None:
        return Refusal(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            f"{what} again; they were stored before, {stored_to} is the last",
        )
    return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{what}, the next is {expected}")


def _old_epoch(sent: BatchHeader, epoch: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {sent.producer_id} sent epoch {sent.producer_epoch}, the current is {epoch}",
    )
