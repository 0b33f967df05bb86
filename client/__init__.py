"""An asyncio client for Kafka and Tidelog: idempotent, pipelined, and honest about what it does not know.

The public names. `Producer`, `Consumer` and `Admin` have aiokafka's verbs and argument names where it has
them.
"""

from client.admin import Admin
from client.admin_types import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    ProducerDescription,
    TopicDescription,
)
from client.consumer import Consumer
from client.delivery import Delivery
from client.errors import (
    AuthorizationError,
    BrokerError,
    BrokerUnavailableError,
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    CorruptRecordError,
    DeliveryError,
    DeliveryFailedError,
    DeliveryTimeoutError,
    DeliveryUncertainError,
    NoOffsetError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    RecordTooLargeError,
    RequestTimeoutError,
    SessionError,
    TopicAlreadyExistsError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from client.producer import Producer
from client.record_batch import BatchBuilder
from client.session import ProducerSession, SessionPartition
from client.types import (
    ConsumerRecord,
    OffsetAndTimestamp,
    RecordMetadata,
    TimestampType,
    TopicPartition,
)

__all__ = [
    "Admin",
    "AuthorizationError",
    "BatchBuilder",
    "BrokerError",
    "BrokerUnavailableError",
    "ClientClosedError",
    "ClientError",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConnectionLostError",
    "Consumer",
    "ConsumerRecord",
    "CorruptRecordError",
    "Delivery",
    "DeliveryError",
    "DeliveryFailedError",
    "DeliveryTimeoutError",
    "DeliveryUncertainError",
    "NewTopic",
    "NoOffsetError",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "Producer",
    "ProducerDescription",
    "ProducerFencedError",
    "ProducerSession",
    "RecordMetadata",
    "RecordTooLargeError",
    "RequestTimeoutError",
    "SessionError",
    "SessionPartition",
    "TimestampType",
    "TopicAlreadyExistsError",
    "TopicDescription",
    "TopicPartition",
    "UnknownTopicError",
    "UnsupportedVersionError",
]
