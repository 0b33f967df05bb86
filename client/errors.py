"""Everything that the client raises on purpose: one tree under `ClientError`.

Owns: the exception classes, whether each is worth a retry (`retriable`), and what to do about it (`hint`).
Invariants: `retriable` is True only where the same call may succeed later and cannot store anything twice. A
refusal by a broker keeps its code. `DeliveryUncertainError` is raised if and only if the client cannot know
whether the records are stored; every other `DeliveryError` means that they are not. Wrong arguments raise
ValueError or TypeError.
"""

from typing import ClassVar

from tidelog.protocol.errors import ErrorCode

__all__ = [
    "AuthorizationError",
    "BrokerError",
    "BrokerUnavailableError",
    "ClientClosedError",
    "ClientError",
    "ConnectionLostError",
    "CorruptRecordError",
    "DeliveryError",
    "DeliveryFailedError",
    "DeliveryTimeoutError",
    "DeliveryUncertainError",
    "NoOffsetError",
    "OffsetOutOfRangeError",
    "ProducerFencedError",
    "RecordTooLargeError",
    "RecordsLostError",
    "RequestTimeoutError",
    "SessionError",
    "TopicAlreadyExistsError",
    "UnknownTopicError",
    "UnsupportedVersionError",
    "broker_error",
    "read_error",
]


class ClientError(Exception):
    """Base of all. `str()` says what happened and what to do about it."""

    retriable: bool = False
    hint: ClassVar[str] = ""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class ClientClosedError(ClientError):
    """The client was closed, or was never started."""

    hint = "Use it inside `async with`, or call start() first"


class BrokerUnavailableError(ClientError):
    """No broker could be reached."""

    retriable = True
    hint = "Check the address, and that the broker runs and advertises an address that this host can reach"


class ConnectionLostError(ClientError):
    """The connection broke before the answer came; whether the broker acted on the request is not known."""

    retriable = True
    hint = "Requests that change nothing can be repeated at once"


class RequestTimeoutError(ConnectionLostError):
    """The broker did not answer in time; the connection was closed, so that no late answer can confuse."""

    hint = "Raise request_timeout_ms if the broker is slow rather than gone"


class UnsupportedVersionError(ClientError):
    """Client and broker share no version of an API."""

    hint = "The broker is too old or too new for this call"


class BrokerError(ClientError):
    """A broker refused a request; the protocol's `code` says whether a retry may help."""

    hint = "A retry helps only where `retriable` says so; else change what was asked for"

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{message} [{code.name} {code.value}]")
        self.code = code
        self.retriable = code.retriable


class TopicAlreadyExistsError(BrokerError):
    """The topic to be created is there already."""

    hint = "Use the topic that is there, or choose another name"


class UnknownTopicError(BrokerError):
    """The cluster has no such topic or partition."""

    hint = "Create it, or check its name"


class AuthorizationError(BrokerError):
    """The broker does not allow it."""

    hint = "Ask for the permission; a retry does not help"


class OffsetOutOfRangeError(BrokerError):
    """The log does not hold the offset to be read, and auto_offset_reset is "none"."""

    hint = "Seek to an offset between beginning_offsets() and end_offsets(), or set auto_offset_reset"


class RecordsLostError(BrokerError):
    """The broker's disk lost or damaged what was to be read; asked again, the broker answers the same."""

    hint = (
        "The broker's log names the lost offsets, as `tidelog log verify` does. Seek past them to go on, or"
        " have them deleted (DeleteRecords)"
    )

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.retriable = False


class NoOffsetError(ClientError):
    """A partition has no position, and auto_offset_reset is "none"."""

    hint = "Call seek(), seek_to_beginning() or seek_to_end() first"


class CorruptRecordError(ClientError):
    """Bytes that were fetched are not a valid record batch."""

    hint = "Seek past the offset named to go on without the batch"


class RecordTooLargeError(ClientError, ValueError):
    """A record can never be sent: it exceeds max_request_size or buffer_memory."""

    hint = "Raise max_request_size (and the topic's max.message.bytes), or send less in one record"


class ProducerFencedError(ClientError):
    """Another producer has taken over this producer's identity; this one can send nothing more."""

    hint = "Close this producer; its successor is at work"


class SessionError(ClientError):
    """A saved session does not fit what the log holds, or what it is used for."""

    hint = "Start again from the saved session and position, unless the message says that records are gone"


class DeliveryError(ClientError):
    """A batch of records was given up. `topic`, `partition` and `code` (None without an answer) say more."""

    def __init__(self, message: str, topic: str, partition: int, code: ErrorCode | None = None) -> None:
        super().__init__(f"{topic}-{partition}: {message}")
        self.topic = topic
        self.partition = partition
        self.code = code


class DeliveryFailedError(DeliveryError):
    """The broker refused the records for good. They are not stored."""

    hint = "They are not stored; a retry of the same records meets the same refusal"


class DeliveryTimeoutError(DeliveryError):
    """Time ran out (delivery_timeout_ms, or the producer was closed) before the records were stored. They are
    not stored and never will be."""

    retriable = True
    hint = "They are not stored, so they can be sent again"


class DeliveryUncertainError(DeliveryError):
    """The records may or may not be stored: an acknowledgement was lost and nothing can tell any more.

    `producer_id`, `producer_epoch`, `base_sequence` and `record_count` name the batch as it stands in the log
    if it is there (-1 without idempotence).
    """

    hint = "Read the end of the partition before sending them again, or accept that they may be stored twice"

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


_AUTHORIZATION = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def broker_error(code: ErrorCode, what: str, message: str | None = None) -> BrokerError:
    """The exception for `code`; `what` was attempted ("topic 'a'"), `message` is the broker's own text."""
    text = f"{what}: {message or code.message}"
    if code in _AUTHORIZATION:
        return AuthorizationError(code, text)
    if code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return TopicAlreadyExistsError(code, text)
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return UnknownTopicError(code, text)
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return OffsetOutOfRangeError(code, text)
    return BrokerError(code, text)


def read_error(code: ErrorCode, what: str) -> BrokerError:
    """`broker_error` for an answer to who reads: there CORRUPT_MESSAGE tells of the broker's disk."""
    if code is ErrorCode.CORRUPT_MESSAGE:
        return RecordsLostError(code, f"{what}: the broker's disk lost or damaged them")
    return broker_error(code, what)
