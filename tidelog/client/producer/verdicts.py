"""The verdicts of the producer's state machine about a batch, and what each error code proves.

Owns: `Verdict`, the table of error codes that prove an attempt was not stored, and the texts of the errors
with which a batch can end. Invariants: a code is in `REFUSED_BEFORE_APPEND` only if brokers answer it before
they append. All other codes prove nothing: Kafka also answers them after the append (leader changes,
timeouts).
"""

from enum import Enum
from typing import Final, NamedTuple

from tidelog.client import errors
from tidelog.client.producer.batch import ProducerBatch
from tidelog.protocol.errors import ErrorCode
from tidelog.wire.errors import ClientError, broker_error

# Brokers answer these only before an append, so the attempt stored nothing.
REFUSED_BEFORE_APPEND: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.PRODUCER_FENCED,
    }
)
SEQUENCE_REFUSALS: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID}
)
# These end the producer, whatever the records are.
_NOT_AUTHORIZED: Final = frozenset(
    {ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
)
# After these the broker may accept the same records in smaller batches.
SPLITTABLE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class Action(Enum):
    """What the sender must do with a batch."""

    STORED = "stored"  # resolve it: `base_offset`, `log_append_time_ms`
    RETRY = "retry"  # nothing: it waits in the state machine until `take_retry` returns it
    SPLIT = "split"  # replace it by its parts with `ProducerState.split`
    FAILED = "failed"  # resolve it with `error`
    FATAL = "fatal"  # as FAILED, and end the producer
    IGNORED = "ignored"  # nothing: its outcome was reported before


class Verdict(NamedTuple):
    """The verdict on one batch. `error` is set for FAILED and FATAL only."""

    action: Action
    batch: ProducerBatch
    base_offset: int = -1
    log_append_time_ms: int = -1
    error: ClientError | None = None


def refusal(batch: ProducerBatch, code: ErrorCode, message: str | None) -> ClientError:
    """The error of a batch that was refused and is not retried; `message` is the broker's own text."""
    text = f"{message or code.message} [{code.name} {code.value}]"
    if batch.may_be_stored:
        return uncertain(batch, f"an acknowledgement was lost, and then the broker answered: {text}")
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return errors.DeliveryNotAuthorizedError(message or code.message, *batch.key, code)
    if code in _NOT_AUTHORIZED:
        return broker_error(code, f"records of {batch.key.topic}-{batch.key.partition}", message)
    if code is ErrorCode.PRODUCER_FENCED:
        return errors.ProducerFencedError(text)
    return errors.DeliveryFailedError(text, *batch.key, code)


def session_refusal(batch: ProducerBatch, code: ErrorCode) -> ClientError:
    """The error of a session's batch whose sequence (45, 59) or epoch (47) the broker refuses."""
    if batch.may_be_stored:
        return uncertain(batch, f"an acknowledgement was lost, and then the broker answered {code.name}")
    what = f"sequence {batch.base_sequence} of {batch.key.topic}-{batch.key.partition} was refused"
    text = f"{what}: {code.message} [{code.name} {code.value}]"
    if code is ErrorCode.INVALID_PRODUCER_EPOCH:
        return errors.ProducerFencedError(text)
    return errors.SessionError(text)


def transaction_refusal(batch: ProducerBatch, code: ErrorCode) -> ClientError:
    """The error of a transaction's batch whose sequence (45, 59) or epoch (47) the broker refuses."""
    text = f"{code.message} [{code.name} {code.value}]"
    if code is ErrorCode.INVALID_PRODUCER_EPOCH:
        why = "another producer with this transactional id was started, or the transaction timed out"
        return errors.ProducerFencedError(f"{why}: {text}")
    return errors.DeliveryFailedError(text, *batch.key, code)


def uncertain(batch: ProducerBatch, reason: str) -> errors.DeliveryUncertainError:
    """The error of a batch for which the client cannot find out whether it is stored."""
    producer_id, epoch = batch.identity or (-1, -1)
    return errors.DeliveryUncertainError(
        with_last_code(reason, batch),
        *batch.key,
        batch.last_code,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=batch.base_sequence,
        record_count=batch.record_count,
    )


def with_last_code(reason: str, batch: ProducerBatch) -> str:
    """`reason` with the broker's last answer, if there was one."""
    return reason if batch.last_code is None else f"{reason} (last answer: {batch.last_code.name})"
