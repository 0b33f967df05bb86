"""An asyncio client for Kafka and Tidelog: idempotent, pipelined, and honest about what it does not know.

The public names. `Producer`, `Consumer` and `Admin` have aiokafka's verbs and argument names where it has
them.
"""

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
    TopicAlreadyExistsError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from client.producer import Producer
from client.types import (
    ConsumerRecord,
    OffsetAndTimestamp,
    RecordMetadata,
    TimestampType,
    TopicPartition,
)

__all__ = [
    "AuthorizationError",
    "BrokerError",
    "BrokerUnavailableError",
    "ClientClosedError",
    "ClientError",
    "ConnectionLostError",
    "ConsumerRecord",
    "CorruptRecordError",
    "Delivery",
    "DeliveryError",
    "DeliveryFailedError",
    "DeliveryTimeoutError",
    "DeliveryUncertainError",
    "NoOffsetError",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "Producer",
    "ProducerFencedError",
    "RecordMetadata",
    "RecordTooLargeError",
    "RequestTimeoutError",
    "TimestampType",
    "TopicAlreadyExistsError",
    "TopicPartition",
    "UnknownTopicError",
    "UnsupportedVersionError",
]
