"""The error table of the Kafka protocol, and the two exceptions of this project for the wire.

Owns: `ErrorCode` (number, name, whether a retry can help, whether the client must give up, one line of text),
`ProtocolError` (bytes that do not follow the protocol) and `ApiError` (an error that has a code).

Invariants: no other module decides whether a code is retriable or fatal. *Retriable* follows Kafka's
RetriableException tree: the same request may succeed later, perhaps after a metadata refresh. *Fatal* means
that this client instance can never succeed: no retry, no metadata refresh and no epoch bump helps.

Source: the error code table of the Kafka protocol guide.
"""

from collections.abc import Sequence
from copy import copy
from enum import IntEnum
from typing import Final, Self, TypeVar

_PLAIN: Final = 0
_RETRY: Final = 1
_FATAL: Final = 2

_E = TypeVar("_E", bound=BaseException)


class ErrorCode(IntEnum):
    """Kafka's error codes, -1 to 133. The value is the number; `.message` is one line of text."""

    _value_: int
    retriable: bool
    fatal: bool
    message: str

    def __new__(cls, number: int, kind: int = _PLAIN, message: str = "") -> Self:
        member = int.__new__(cls, number)
        member._value_ = number
        member.retriable = kind == _RETRY
        member.fatal = kind == _FATAL
        member.message = message
        return member

    UNKNOWN_SERVER_ERROR = -1, _PLAIN, "the broker had an unexpected error"
    NONE = 0, _PLAIN, "no error"
    OFFSET_OUT_OF_RANGE = 1, _PLAIN, "the log does not hold this offset"
    CORRUPT_MESSAGE = 2, _RETRY, "the record batch is corrupt: wrong checksum, size or key"
    UNKNOWN_TOPIC_OR_PARTITION = 3, _RETRY, "this broker does not have this topic or partition"
    INVALID_FETCH_SIZE = 4, _PLAIN, "the fetch size is not valid"
    LEADER_NOT_AVAILABLE = 5, _RETRY, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, _RETRY, "this broker does not lead, or does not replicate, this partition"
    REQUEST_TIMED_OUT = 7, _RETRY, "the request took longer than its time limit"
    BROKER_NOT_AVAILABLE = 8, _PLAIN, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, _RETRY, "the replica is not available for this partition"
    MESSAGE_TOO_LARGE = 10, _PLAIN, "the record batch is larger than the topic allows"
    STALE_CONTROLLER_EPOCH = 11, _PLAIN, "the controller has moved to another broker"
    OFFSET_METADATA_TOO_LARGE = 12, _PLAIN, "the metadata string of the committed offset is too large"
    NETWORK_EXCEPTION = 13, _RETRY, "the connection was lost before the answer came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, _RETRY, "the coordinator is still loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, _RETRY, "the coordinator is not available"
    NOT_COORDINATOR = 16, _RETRY, "this broker is not the coordinator"
    INVALID_TOPIC_EXCEPTION = 17, _PLAIN, "the topic name is not valid, or the topic may not be used this way"
    RECORD_LIST_TOO_LARGE = 18, _PLAIN, "the record batch is larger than a log segment"
    NOT_ENOUGH_REPLICAS = 19, _RETRY, "too few in-sync replicas to accept the records"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _RETRY, "the records were written to too few in-sync replicas"
    INVALID_REQUIRED_ACKS = 21, _PLAIN, "acks must be -1, 0 or 1"
    ILLEGAL_GENERATION = 22, _PLAIN, "the generation is not the group's current one"
    INCONSISTENT_GROUP_PROTOCOL = 23, _PLAIN, "the member's protocols do not fit those of the group"
    INVALID_GROUP_ID = 24, _PLAIN, "the group id is not valid"
    UNKNOWN_MEMBER_ID = 25, _PLAIN, "the coordinator does not know this member"
    INVALID_SESSION_TIMEOUT = 26, _PLAIN, "the session timeout is outside the broker's limits"
    REBALANCE_IN_PROGRESS = 27, _PLAIN, "the group is rebalancing: join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, _PLAIN, "the committed offset is too large to store"
    TOPIC_AUTHORIZATION_FAILED = 29, _PLAIN, "not authorized for this topic"
    GROUP_AUTHORIZATION_FAILED = 30, _PLAIN, "not authorized for this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, _FATAL, "not authorized for the cluster"
    INVALID_TIMESTAMP = 32, _PLAIN, "a record's timestamp is outside the accepted range"
    UNSUPPORTED_SASL_MECHANISM = 33, _FATAL, "the broker does not support this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, _FATAL, "the request is not valid in the current SASL state"
    UNSUPPORTED_VERSION = 35, _FATAL, "the broker does not support this version of the API"
    TOPIC_ALREADY_EXISTS = 36, _PLAIN, "a topic with this name exists already"
    INVALID_PARTITIONS = 37, _PLAIN, "the number of partitions is not valid"
    INVALID_REPLICATION_FACTOR = (
        38,
        _PLAIN,
        "the replication factor is below 1 or above the number of brokers",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, _PLAIN, "the replica assignment is not valid"
    INVALID_CONFIG = 40, _PLAIN, "the configuration is not valid"
    NOT_CONTROLLER = 41, _RETRY, "this broker is not the controller"
    INVALID_REQUEST = 42, _PLAIN, "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _FATAL, "the broker's record format does not support the request"
    POLICY_VIOLATION = 44, _PLAIN, "the request violates a policy of the broker"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, _PLAIN, "the batch's sequence does not follow the producer's last one"
    DUPLICATE_SEQUENCE_NUMBER = 46, _PLAIN, "the batch was stored before and is not stored again"
    INVALID_PRODUCER_EPOCH = 47, _PLAIN, "a newer epoch of this producer has written already"
    INVALID_TXN_STATE = 48, _PLAIN, "the transaction is not in a state that allows this"
    INVALID_PRODUCER_ID_MAPPING = 49, _PLAIN, "the producer id does not belong to the transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, _PLAIN, "the transaction timeout is zero, negative or above the maximum"
    CONCURRENT_TRANSACTIONS = 51, _RETRY, "the producer's previous transaction is still being completed"
    TRANSACTION_COORDINATOR_FENCED = 52, _PLAIN, "a newer transaction coordinator has taken over"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, _FATAL, "not authorized for this transactional id"
    SECURITY_DISABLED = 54, _PLAIN, "security features are switched off"
    OPERATION_NOT_ATTEMPTED = 55, _PLAIN, "not attempted, because another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, _RETRY, "the broker's disk failed for this partition"
    LOG_DIR_NOT_FOUND = 57, _PLAIN, "the log directory is not one of the broker's"
    SASL_AUTHENTICATION_FAILED = 58, _FATAL, "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, _PLAIN, "the broker has no state for this producer id on this partition"
    REASSIGNMENT_IN_PROGRESS = 60, _PLAIN, "a partition reassignment is in progress"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, _PLAIN, "delegation tokens are switched off"
    DELEGATION_TOKEN_NOT_FOUND = 62, _PLAIN, "the delegation token does not exist"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, _PLAIN, "the principal is not the owner or renewer of the token"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, _PLAIN, "delegation token requests are not allowed here"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, _PLAIN, "not authorized for delegation tokens"
    DELEGATION_TOKEN_EXPIRED = 66, _PLAIN, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, _PLAIN, "the principal type is not supported"
    NON_EMPTY_GROUP = 68, _PLAIN, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, _PLAIN, "the group does not exist"
    FETCH_SESSION_ID_NOT_FOUND = 70, _RETRY, "the fetch session does not exist: start a new one"
    INVALID_FETCH_SESSION_EPOCH = 71, _RETRY, "the fetch session's epoch is not the expected one"
    LISTENER_NOT_FOUND = 72, _RETRY, "the leader has no listener that matches this one"
    TOPIC_DELETION_DISABLED = 73, _PLAIN, "deleting topics is switched off"
    FENCED_LEADER_EPOCH = 74, _RETRY, "the request's leader epoch is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, _RETRY, "the request's leader epoch is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, _PLAIN, "this version of the API does not allow this compression"
    STALE_BROKER_EPOCH = 77, _PLAIN, "the broker epoch has changed"
    OFFSET_NOT_AVAILABLE = 78, _RETRY, "the leader does not know the high watermark yet"
    MEMBER_ID_REQUIRED = 79, _PLAIN, "join again with the member id of this answer"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _RETRY, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, _PLAIN, "the group is full"
    FENCED_INSTANCE_ID = 82, _FATAL, "another member has taken over this group instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _RETRY, "no eligible leader is available"
    ELECTION_NOT_NEEDED = 84, _RETRY, "the partition needs no election"
    NO_REASSIGNMENT_IN_PROGRESS = 85, _PLAIN, "no partition reassignment is in progress"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, _PLAIN, "the group is still subscribed to the topic"
    INVALID_RECORD = 87, _PLAIN, "a record failed the broker's validation"
    UNSTABLE_OFFSET_COMMIT = 88, _RETRY, "offsets of an open transaction are not committed yet"
    THROTTLING_QUOTA_EXCEEDED = 89, _RETRY, "the quota is used up"
    PRODUCER_FENCED = 90, _FATAL, "a newer producer with the same transactional id has taken over"
    RESOURCE_NOT_FOUND = 91, _PLAIN, "the resource does not exist"
    DUPLICATE_RESOURCE = 92, _PLAIN, "the resource is named more than once"
    UNACCEPTABLE_CREDENTIAL = 93, _PLAIN, "the credential does not meet the requirements"
    INCONSISTENT_VOTER_SET = 94, _PLAIN, "the sender or the recipient is not one of the voters"
    INVALID_UPDATE_VERSION = 95, _PLAIN, "the update version is not valid"
    FEATURE_UPDATE_FAILED = 96, _PLAIN, "the finalized features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, _PLAIN, "the forwarded principal could not be read"
    SNAPSHOT_NOT_FOUND = 98, _PLAIN, "the snapshot does not exist"
    POSITION_OUT_OF_RANGE = 99, _PLAIN, "the position lies outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, _RETRY, "this broker does not have a topic with this id"
    DUPLICATE_BROKER_REGISTRATION = 101, _PLAIN, "the broker id is in use"
    BROKER_ID_NOT_REGISTERED = 102, _PLAIN, "the broker id is not registered"
    INCONSISTENT_TOPIC_ID = 103, _RETRY, "the topic id does not match the log's"
    INCONSISTENT_CLUSTER_ID = 104, _PLAIN, "the cluster id does not match this cluster's"
    TRANSACTIONAL_ID_NOT_FOUND = 105, _PLAIN, "the transactional id does not exist"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _RETRY, "the fetch session mixes topic names and topic ids"
    INELIGIBLE_REPLICA = 107, _PLAIN, "the new in-sync set has a replica that may not join it"
    NEW_LEADER_ELECTED = 108, _PLAIN, "the request was applied, and the leader has changed"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, _PLAIN, "the offset has moved to tiered storage"
    FENCED_MEMBER_EPOCH = 110, _PLAIN, "the member epoch is fenced: join again"
    UNRELEASED_INSTANCE_ID = 111, _PLAIN, "another member still holds the group instance id"
    UNSUPPORTED_ASSIGNOR = 112, _PLAIN, "the group does not support the assignor"
    STALE_MEMBER_EPOCH = 113, _PLAIN, "the member epoch is stale: ask again with the current one"
    MISMATCHED_ENDPOINT_TYPE = 114, _PLAIN, "the request reached an endpoint of the wrong type"
    UNSUPPORTED_ENDPOINT_TYPE = 115, _PLAIN, "this endpoint type is not supported"
    UNKNOWN_CONTROLLER_ID = 116, _PLAIN, "the controller id is not known"
    UNKNOWN_SUBSCRIPTION_ID = 117, _PLAIN, "the telemetry subscription is stale or not known"
    TELEMETRY_TOO_LARGE = 118, _PLAIN, "the telemetry is larger than the broker accepts"
    INVALID_REGISTRATION = 119, _PLAIN, "the broker registration is not valid"
    TRANSACTION_ABORTABLE = 120, _PLAIN, "the transaction failed and must be aborted"
    INVALID_RECORD_STATE = 121, _PLAIN, "the record's state does not allow the acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, _RETRY, "the share session does not exist"
    INVALID_SHARE_SESSION_EPOCH = 123, _RETRY, "the share session's epoch is not the expected one"
    FENCED_STATE_EPOCH = 124, _PLAIN, "the share state epoch is fenced"
    INVALID_VOTER_KEY = 125, _PLAIN, "the voter key does not match the receiver's"
    DUPLICATE_VOTER = 126, _PLAIN, "the voter is already in the set"
    VOTER_NOT_FOUND = 127, _PLAIN, "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, _PLAIN, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, _PLAIN, "the client's metadata is stale: bootstrap again"
    STREAMS_INVALID_TOPOLOGY = 130, _PLAIN, "the streams topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, _PLAIN, "the streams topology epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, _PLAIN, "the streams topology epoch is outdated"
    SHARE_SESSION_LIMIT_REACHED = 133, _RETRY, "the broker holds as many share sessions as it may"


_BY_NUMBER: Final = {int(member): member for member in ErrorCode}


def error_code(number: int) -> ErrorCode:
    """The code with this number; UNKNOWN_SERVER_ERROR for a number that is not in the table."""
    return _BY_NUMBER.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


class ProtocolError(ValueError):
    """Bytes that do not follow the protocol, or values that it cannot encode.

    The message names the field path, the expected and the actual value. The connection must be closed.
    """


class ApiError(Exception):
    """An error that has a code in the protocol. The default `message` is the table's line."""

    record_errors: Sequence[tuple[int, str]] = ()
    """What is wrong with single records of a batch, by their positions in it."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = code.message if message is None else message
        super().__init__(code, self.message)

    def __str__(self) -> str:
        return f"{self.code.name} ({self.code.value}): {self.message}"


def again(error: _E) -> _E:
    """A new error like `error`, to be raised where `error` is kept: in a variable, an object or a result.

    An error that is raised refers to the frames that it passes, with all their variables. If one of these
    refers to the error, only the collector of cycles frees them: requests and buffers stay until then.
    """
    raised = copy(error)
    raised.__cause__ = error.__cause__
    return raised
