"""The exceptions of producers, consumers and administrators. `wire.errors` has those below them.

Invariants: `DeliveryUncertainError` is raised if and only if the client cannot know whether the records are
stored; every other `DeliveryError` means that they are not. Wrong arguments raise ValueError or TypeError.
"""

from collections.abc import Awaitable, Callable, Mapping

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import TopicPartition
from tidelog.wire.errors import (
    AuthorizationError,
    BrokerError,
    ClientError,
    TopicAuthorizationFailedError,
    broker_error,
)


class TopicAlreadyExistsError(BrokerError, codes=(ErrorCode.TOPIC_ALREADY_EXISTS,)):
    """The topic exists already."""

    hint = "Use the existing topic, or choose another name"


class GroupAuthorizationFailedError(AuthorizationError, codes=(ErrorCode.GROUP_AUTHORIZATION_FAILED,)):
    """The user may not use the consumer group."""


class ClusterAuthorizationFailedError(AuthorizationError, codes=(ErrorCode.CLUSTER_AUTHORIZATION_FAILED,)):
    """The user may not do this in the cluster, for example write with idempotence."""


class TransactionalIdAuthorizationFailedError(
    AuthorizationError, codes=(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,)
):
    """The user may not use the transactional id."""


class OffsetOutOfRangeError(BrokerError, codes=(ErrorCode.OFFSET_OUT_OF_RANGE,)):
    """The log does not hold the requested offset, and auto_offset_reset is "none". `args[0]` is the offset by
    partition, as in aiokafka."""

    hint = "Seek to an offset between beginning_offsets() and end_offsets(), or set auto_offset_reset"

    def __init__(
        self, code: ErrorCode, message: str, offsets: Mapping[TopicPartition, int] | None = None
    ) -> None:
        super().__init__(code, message)
        self.args = (dict(offsets or {}),)


class LogTruncationError(OffsetOutOfRangeError):
    """The leader lacks records that were read, and auto_offset_reset is "none" (KIP-320). `args[0]` has the
    positions by partition, `diverging` (leader epoch, offset) up to where the leader has what was read; a
    partition is not in it if that is not known."""

    hint = "Seek to the diverging offset to read what replaced the lost records, or set auto_offset_reset"

    def __init__(
        self,
        message: str,
        offsets: Mapping[TopicPartition, int],
        diverging: Mapping[TopicPartition, tuple[int, int]],
    ) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message, offsets)
        self.diverging = dict(diverging)


class RecordsLostError(BrokerError):
    """The broker's disk lost or damaged the requested records. A retry gets the same answer."""

    hint = (
        "The broker's log and `tidelog log verify` name the lost offsets. Seek past them to continue, or"
        " accept the loss with `tidelog topic delete-records`"
    )

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.retriable = False


class FencedInstanceError(BrokerError):
    """Another consumer with the same group_instance_id joined the group. This one reads no more records."""

    hint = "Give each running consumer of a group its own group_instance_id"


class CommitFailedError(ClientError):
    """The offsets are not committed: the group gave the partitions to another member, or will do so."""

    hint = (
        "The records may be read again. If processing takes long, increase max_poll_interval_ms or take"
        " fewer records at once"
    )


class NoOffsetError(ClientError):
    """A partition has no position, and auto_offset_reset is "none"."""

    hint = "Call seek(), seek_to_beginning() or seek_to_end() first"


class CorruptRecordError(ClientError):
    """The fetched bytes are not a valid record batch."""

    hint = "To continue without this batch, seek past the offset above"


class RecordDeserializationError(ClientError, ValueError):
    """A deserializer raised for the record of this `topic`, `partition` and `offset`. `__cause__` is what it
    raised. The position is before the record."""

    hint = "To continue without the record, seek to the offset after it"

    def __init__(self, cause: Exception, topic: str, partition: int, offset: int) -> None:
        what = f"a deserializer raised {type(cause).__name__}: {cause}"
        super().__init__(f"{topic}-{partition} at offset {offset}: {what}")
        self.topic = topic
        self.partition = partition
        self.offset = offset


class DeserializerNotReadyError(ClientError):
    """A deserializer raises it to be called again for the same record once `prepare` is done. So it can ask
    another service without blocking the event loop. What `prepare` raises is raised as a
    RecordDeserializationError."""

    hint = "To deserialize outside a consumer, await its prepare() and call the deserializer again"
    retriable = True

    def __init__(self, missing: str, prepare: Callable[[], Awaitable[None]]) -> None:
        super().__init__(missing)
        self.prepare = prepare


class AcknowledgementError(ClientError):
    """The broker refused acknowledgements of a share group: the locks of the records had ended, or it does
    not lead the partition any more. `offsets` has the records by partition."""

    hint = (
        "Other members may get these records again. Process them within `record.processing()`, or set a "
        "longer share.record.lock.duration.ms for the group"
    )

    def __init__(self, offsets: Mapping[TopicPartition, list[int]]) -> None:
        count = sum(map(len, offsets.values()))
        where = ", ".join(f"{topic}-{partition}" for topic, partition in offsets)
        super().__init__(f"{count} records of {where} were not acknowledged")
        self.offsets = offsets


class RecordTooLargeError(ClientError, ValueError):
    """The record exceeds max_request_size or buffer_memory, so it can never be sent."""

    hint = "Increase max_request_size (and the topic's max.message.bytes), or send a smaller record"


class ProducerFencedError(ClientError):
    """Another producer uses this producer's identity now. This one cannot send any more records."""

    hint = "Close this producer. Another one has replaced it"


class SessionError(ClientError):
    """A saved session does not match the log, or it cannot be used in this way."""

    hint = "Start again from the saved session and position, unless the message says that records are lost"


class TransactionAbortableError(ClientError):
    """The transaction failed and cannot be committed. The producer itself can continue."""

    hint = "Call abort_transaction(). Then begin a new transaction with the same records"


class TransactionAbortedError(ClientError):
    """The transaction of these records failed or was aborted before they were acknowledged."""

    hint = "No reader of committed records sees them. Send them again in a new transaction"


class TransactionStateError(ClientError):
    """The call does not fit what the transactional producer does at the moment."""

    hint = "The order is begin_transaction(), send(), then commit_transaction() or abort_transaction()"


class DeliveryError(ClientError):
    """A batch of `topic` and `partition` was given up. `code` is the broker's last error code or None."""

    def __init__(self, message: str, topic: str, partition: int, code: ErrorCode | None = None) -> None:
        super().__init__(f"{topic}-{partition}: {message}")
        self.topic = topic
        self.partition = partition
        self.code = code


class DeliveryFailedError(DeliveryError):
    """The broker refused the records. They are not stored."""

    hint = "The records are not stored. A retry of the same records fails again"


class DeliveryNotAuthorizedError(DeliveryFailedError, TopicAuthorizationFailedError):
    """The user may not write to the topic. The records are not stored."""

    hint = "The records are not stored. Ask an administrator for the permission to write to the topic"
    code: ErrorCode

    def __init__(self, message: str, topic: str, partition: int, code: ErrorCode) -> None:
        BrokerError.__init__(self, code, f"{topic}-{partition}: {message}")
        self.topic = topic
        self.partition = partition


class DeliveryTimeoutError(DeliveryError):
    """delivery_timeout_ms passed, or the producer was closed, before the records were stored. They are not
    stored and never will be."""

    retriable = True
    hint = "The records are not stored, so they can be sent again"


class DeliveryUncertainError(DeliveryError):
    """The records may or may not be stored: an acknowledgement was lost, and the client cannot find out.

    If the batch is stored, its header in the log has this `producer_id`, `producer_epoch`, `base_sequence`
    and `record_count` (-1 without idempotence).
    """

    hint = "Before you send them again, read the end of the partition. Otherwise they may be stored twice"

    def __init__(
        self,
        message: str,
        topic: str,
        partition: int,
        code: ErrorCode | None = None,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        record_count: int = 0,
    ) -> None:
        what = f"{record_count} records"
        if base_sequence >= 0:
            what += f" (producer id {producer_id}, epoch {producer_epoch}, first sequence {base_sequence})"
        super().__init__(f"{what} may or may not be stored: {message}", topic, partition, code)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count


FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""The codes with which a broker refuses the old one of two producers with one identity."""


def is_fenced(error: ClientError) -> bool:
    """Whether a broker refused the request because another producer uses the identity now."""
    is_answer = isinstance(error, BrokerError | DeliveryError) and error.code in FENCED
    return is_answer or isinstance(error, ProducerFencedError)


def read_error(code: ErrorCode, what: str) -> BrokerError:
    """`broker_error` for a read: there CORRUPT_MESSAGE means that the broker's disk is damaged."""
    if code is ErrorCode.CORRUPT_MESSAGE:
        return RecordsLostError(code, f"{what}: the broker's disk lost or damaged records")
    return broker_error(code, what)
