"""Tidelog: a Kafka-compatible broker, an asyncio client and a data pipeline on Spark.

The client's public names are here: `from tidelog import Producer, Consumer, Admin, TopicPartition`. They are
the names of `tidelog.client`, which is imported when the first of them is used, so that a broker does not pay
for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.client import (
        Admin as Admin,
    )
    from tidelog.client import (
        AuthenticationError as AuthenticationError,
    )
    from tidelog.client import (
        AuthorizationError as AuthorizationError,
    )
    from tidelog.client import (
        BatchBuilder as BatchBuilder,
    )
    from tidelog.client import (
        BrokerError as BrokerError,
    )
    from tidelog.client import (
        BrokerUnavailableError as BrokerUnavailableError,
    )
    from tidelog.client import (
        ClientClosedError as ClientClosedError,
    )
    from tidelog.client import (
        ClientError as ClientError,
    )
    from tidelog.client import (
        ClusterConfig as ClusterConfig,
    )
    from tidelog.client import (
        ClusterDescription as ClusterDescription,
    )
    from tidelog.client import (
        CommitFailedError as CommitFailedError,
    )
    from tidelog.client import (
        ConfigEntry as ConfigEntry,
    )
    from tidelog.client import (
        ConfigResource as ConfigResource,
    )
    from tidelog.client import (
        ConfigResourceType as ConfigResourceType,
    )
    from tidelog.client import (
        ConnectionLostError as ConnectionLostError,
    )
    from tidelog.client import (
        Consumer as Consumer,
    )
    from tidelog.client import (
        ConsumerRecord as ConsumerRecord,
    )
    from tidelog.client import (
        CorruptRecordError as CorruptRecordError,
    )
    from tidelog.client import (
        Delivery as Delivery,
    )
    from tidelog.client import (
        DeliveryError as DeliveryError,
    )
    from tidelog.client import (
        DeliveryFailedError as DeliveryFailedError,
    )
    from tidelog.client import (
        DeliveryTimeoutError as DeliveryTimeoutError,
    )
    from tidelog.client import (
        DeliveryUncertainError as DeliveryUncertainError,
    )
    from tidelog.client import (
        FencedInstanceError as FencedInstanceError,
    )
    from tidelog.client import (
        NewTopic as NewTopic,
    )
    from tidelog.client import (
        NoOffsetError as NoOffsetError,
    )
    from tidelog.client import (
        OffsetAndMetadata as OffsetAndMetadata,
    )
    from tidelog.client import (
        OffsetAndTimestamp as OffsetAndTimestamp,
    )
    from tidelog.client import (
        OffsetOutOfRangeError as OffsetOutOfRangeError,
    )
    from tidelog.client import (
        Producer as Producer,
    )
    from tidelog.client import (
        ProducerDescription as ProducerDescription,
    )
    from tidelog.client import (
        ProducerFencedError as ProducerFencedError,
    )
    from tidelog.client import (
        ProducerSession as ProducerSession,
    )
    from tidelog.client import (
        RecordMetadata as RecordMetadata,
    )
    from tidelog.client import (
        RecordsLostError as RecordsLostError,
    )
    from tidelog.client import (
        RecordTooLargeError as RecordTooLargeError,
    )
    from tidelog.client import (
        RequestTimeoutError as RequestTimeoutError,
    )
    from tidelog.client import (
        SessionError as SessionError,
    )
    from tidelog.client import (
        SessionPartition as SessionPartition,
    )
    from tidelog.client import (
        TimestampType as TimestampType,
    )
    from tidelog.client import (
        TlsError as TlsError,
    )
    from tidelog.client import (
        TokenProvider as TokenProvider,
    )
    from tidelog.client import (
        TopicAlreadyExistsError as TopicAlreadyExistsError,
    )
    from tidelog.client import (
        TopicDescription as TopicDescription,
    )
    from tidelog.client import (
        TopicPartition as TopicPartition,
    )
    from tidelog.client import (
        UnknownTopicError as UnknownTopicError,
    )
    from tidelog.client import (
        UnsupportedVersionError as UnsupportedVersionError,
    )


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        client = import_module("tidelog.client")
        if name in client.__all__:
            value = globals()[name] = getattr(client, name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(globals().keys() | set(import_module("tidelog.client").__all__))
