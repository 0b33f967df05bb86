"""An asyncio client for Kafka and Tidelog: idempotent, pipelined, and explicit about unknown outcomes.

`Producer`, `Consumer` and `Admin` have the names of aiokafka's methods and arguments if it has them. Modules
with many imports are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidelog.client.errors import (
    AcknowledgementError,
    ClusterAuthorizationFailedError,
    CommitFailedError,
    CorruptRecordError,
    DeliveryError,
    DeliveryFailedError,
    DeliveryNotAuthorizedError,
    DeliveryTimeoutError,
    DeliveryUncertainError,
    DeserializerNotReadyError,
    FencedInstanceError,
    GroupAuthorizationFailedError,
    LogTruncationError,
    NoOffsetError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    RecordDeserializationError,
    RecordsLostError,
    RecordTooLargeError,
    SessionError,
    TopicAlreadyExistsError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationFailedError,
    TransactionStateError,
)
from tidelog.client.types import (
    AppendedRecord,
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PreparedTransaction,
    RecordColumns,
    RecordMetadata,
    TimestampType,
)
from tidelog.protocol.types import TopicPartition
from tidelog.wire.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BrokerUnavailableError,
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    TlsError,
    TopicAuthorizationFailedError,
    UnexpectedError,
    UnknownTopicError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.types import (
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
        Reassignment,
        ShareOffset,
        TopicDescription,
        TransactionDescription,
        TransactionListing,
    )
    from tidelog.client.consumer.consumer import Consumer
    from tidelog.client.groups.listener import ConsumerRebalanceListener
    from tidelog.client.producer.delivery import Delivery
    from tidelog.client.producer.producer import Producer
    from tidelog.client.producer.record_batch import BatchBuilder
    from tidelog.client.producer.session import ProducerSession, SessionPartition
    from tidelog.client.share.consumer import ShareConsumer
    from tidelog.client.share.dead_letters import DeadLetter
    from tidelog.client.share.held import AcknowledgeType
    from tidelog.client.share.records import ShareRecord
    from tidelog.protocol.settings import ConfigError
    from tidelog.wire.cluster_config import ClusterConfig
    from tidelog.wire.security.tls import create_ssl_context
    from tidelog.wire.token_provider import TokenProvider

_HOMES = {
    name: home
    for home, names in {
        "tidelog.client.admin.admin": "Admin",
        "tidelog.client.admin.types": (
            "ClaimedTransaction ClusterDescription CommittedOffset ConfigEntry ConfigResource "
            "ConfigResourceType GroupDescription GroupListing GroupMember NewTopic ProducerDescription "
            "Reassignment ShareOffset TopicDescription TransactionDescription TransactionListing"
        ),
        "tidelog.client.consumer.consumer": "Consumer",
        "tidelog.client.groups.listener": "ConsumerRebalanceListener",
        "tidelog.client.producer.delivery": "Delivery",
        "tidelog.client.producer.producer": "Producer",
        "tidelog.client.producer.record_batch": "BatchBuilder",
        "tidelog.client.producer.session": "ProducerSession SessionPartition",
        "tidelog.client.share.consumer": "ShareConsumer",
        "tidelog.client.share.dead_letters": "DeadLetter",
        "tidelog.client.share.held": "AcknowledgeType",
        "tidelog.client.share.records": "ShareRecord",
        "tidelog.protocol.settings": "ConfigError",
        "tidelog.wire.cluster_config": "ClusterConfig",
        "tidelog.wire.security.tls": "create_ssl_context",
        "tidelog.wire.token_provider": "TokenProvider",
    }.items()
    for name in names.split()
}

__all__ = [
    "AcknowledgeType", "AcknowledgementError", "Admin", "AppendedRecord", "AuthenticationError",
    "AuthorizationError", "BatchBuilder", "BrokerError", "BrokerUnavailableError", "ClaimedTransaction",
    "ClientClosedError", "ClientError", "ClusterAuthorizationFailedError", "ClusterConfig",
    "ClusterDescription", "CommitFailedError", "CommittedOffset", "ConfigEntry", "ConfigError",
    "ConfigResource", "ConfigResourceType", "ConnectionLostError", "Consumer", "ConsumerGroupMetadata",
    "ConsumerRebalanceListener", "ConsumerRecord", "CorruptRecordError", "DeadLetter", "Delivery",
    "DeliveryError", "DeliveryFailedError", "DeliveryNotAuthorizedError", "DeliveryTimeoutError",
    "DeliveryUncertainError", "DeserializerNotReadyError", "FencedInstanceError",
    "GroupAuthorizationFailedError", "GroupDescription", "GroupListing", "GroupMember", "LogTruncationError",
    "NewTopic", "NoOffsetError", "OffsetAndMetadata", "OffsetAndTimestamp", "OffsetOutOfRangeError",
    "PreparedTransaction", "Producer", "ProducerDescription", "ProducerFencedError", "ProducerSession",
    "Reassignment", "RecordColumns", "RecordDeserializationError", "RecordMetadata", "RecordTooLargeError",
    "RecordsLostError", "RequestTimeoutError", "SessionError", "SessionPartition", "ShareConsumer",
    "ShareOffset", "ShareRecord", "TimestampType", "TlsError", "TokenProvider", "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError", "TopicDescription", "TopicPartition", "TransactionAbortableError",
    "TransactionAbortedError", "TransactionDescription", "TransactionListing", "TransactionStateError",
    "TransactionalIdAuthorizationFailedError", "UnexpectedError", "UnknownTopicError",
    "UnsupportedVersionError", "create_ssl_context",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(globals().keys() | _HOMES.keys())
