"""An asyncio client for Kafka and Tidelog: idempotent, pipelined, and explicit about unknown outcomes.

The public names. `Producer`, `Consumer` and `Admin` have the names of aiokafka's methods and arguments if it
has them. Modules with many imports are imported when they are first used: a process that needs one of them
(each of Spark's workers) does not load the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidelog.client.admin_types import (
    ClaimedTransaction,
    ClusterDescription,
    CommittedOffset,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    GroupDescription,
    GroupListing,
    GroupMember,
    NewTopic,
    ProducerDescription,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from tidelog.client.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BrokerUnavailableError,
    ClientClosedError,
    ClientError,
    ClusterAuthorizationFailedError,
    CommitFailedError,
    ConnectionLostError,
    CorruptRecordError,
    DeliveryError,
    DeliveryFailedError,
    DeliveryNotAuthorizedError,
    DeliveryTimeoutError,
    DeliveryUncertainError,
    FencedInstanceError,
    GroupAuthorizationFailedError,
    NoOffsetError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    RecordDeserializationError,
    RecordsLostError,
    RecordTooLargeError,
    RequestTimeoutError,
    SessionError,
    TlsError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationFailedError,
    TransactionStateError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from tidelog.client.types import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PreparedTransaction,
    RecordColumns,
    RecordMetadata,
    TimestampType,
    TopicPartition,
)

if TYPE_CHECKING:
    from tidelog.client.admin import Admin
    from tidelog.client.cluster_config import ClusterConfig
    from tidelog.client.consumer import Consumer
    from tidelog.client.delivery import Delivery
    from tidelog.client.groups.listener import ConsumerRebalanceListener
    from tidelog.client.producer import Producer
    from tidelog.client.producer_session import ProducerSession, SessionPartition
    from tidelog.client.record_batch import BatchBuilder
    from tidelog.client.security.token_provider import TokenProvider

_HOMES = {
    "Admin": "tidelog.client.admin",
    "BatchBuilder": "tidelog.client.record_batch",
    "ClusterConfig": "tidelog.client.cluster_config",
    "Consumer": "tidelog.client.consumer",
    "ConsumerRebalanceListener": "tidelog.client.groups.listener",
    "Delivery": "tidelog.client.delivery",
    "Producer": "tidelog.client.producer",
    "ProducerSession": "tidelog.client.producer_session",
    "SessionPartition": "tidelog.client.producer_session",
    "TokenProvider": "tidelog.client.security.token_provider",
}

__all__ = [
    "Admin",
    "AuthenticationError",
    "AuthorizationError",
    "BatchBuilder",
    "BrokerError",
    "BrokerUnavailableError",
    "ClaimedTransaction",
    "ClientClosedError",
    "ClientError",
    "ClusterAuthorizationFailedError",
    "ClusterConfig",
    "ClusterDescription",
    "CommitFailedError",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConnectionLostError",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "CorruptRecordError",
    "Delivery",
    "DeliveryError",
    "DeliveryFailedError",
    "DeliveryNotAuthorizedError",
    "DeliveryTimeoutError",
    "DeliveryUncertainError",
    "FencedInstanceError",
    "GroupAuthorizationFailedError",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "NewTopic",
    "NoOffsetError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "PreparedTransaction",
    "Producer",
    "ProducerDescription",
    "ProducerFencedError",
    "ProducerSession",
    "RecordColumns",
    "RecordDeserializationError",
    "RecordMetadata",
    "RecordTooLargeError",
    "RecordsLostError",
    "RequestTimeoutError",
    "SessionError",
    "SessionPartition",
    "TimestampType",
    "TlsError",
    "TokenProvider",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TopicDescription",
    "TopicPartition",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionDescription",
    "TransactionListing",
    "TransactionStateError",
    "TransactionalIdAuthorizationFailedError",
    "UnknownTopicError",
    "UnsupportedVersionError",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(globals().keys() | _HOMES.keys())
