"""What a batch of a Produce request must satisfy before it is appended: one list for all paths (`produce`).

Owns these rules, in Kafka's order. The rules of the batch itself and of its producer come with its append;
whether a client may use a transactional id, and which partitions take part in its transaction, are decided
for a request as a whole. Invariants: nothing is counted or logged here, so a path may check, store nothing,
and leave the refusal to another; batches that are stored by one write have one partition and the same
attributes, so checking one is enough.

Event loop only. Source: Kafka's KafkaApis.handleProduceRequest, ProduceRequest.validateRecords; KIP-516.
"""

from typing import Final

from tidelog.broker.cluster.catalog import INTERNAL_TOPICS
from tidelog.broker.handlers.access_control import AccessControl
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.handlers.produce_requests import NamedTopic
from tidelog.broker.replicas.leader import ACKS_ALL
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.security.required_access import WRITE_TOPIC, WRITE_TRANSACTION
from tidelog.broker.services import Services
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import FIRST_BY_ID
from tidelog.protocol.records import BATCH_HEADER_SIZE
from tidelog.protocol.types import Buffer

_VALID_ACKS: Final = frozenset((ACKS_ALL, 0, 1))
_FIRST_VERSION_WITH_ZSTD: Final = 7
_ATTRIBUTES_LOW_BYTE: Final = 22
_CODEC_MASK: Final = 0x07
_TRANSACTIONAL_BIT: Final = 0x10
_WRITE: Final = WRITE_TOPIC.bit
OF_THE_REQUEST: Final = frozenset(
    (
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNKNOWN_TOPIC_ID,
        WRITE_TOPIC.refusal,
        WRITE_TRANSACTION.refusal,
    )
)
"""Codes of refusals that do not concern a partition."""


class ProduceRules:
    """Checks at one broker whether a batch may be appended, and finds its replica."""

    def __init__(self, services: Services, access: AccessControl) -> None:
        self._services = services
        self._access = access
        self._has_authorizer = access.is_on
        self._replicas = services.replicas

    def replica_for(
        self,
        context: RequestContext,
        transactional_id: str | None,
        acks: int,
        topic: str,
        index: int,
        records: Buffer,
    ) -> Replica:
        """The replica to which the batch in `records` may be appended. Raises ApiError."""
        if acks not in _VALID_ACKS:
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
        version = context.header.api_version
        if not topic and version >= FIRST_BY_ID:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        if self._has_authorizer:
            # For each batch, so what is decided already is looked up here.
            access = context.connection.access
            is_known = access is not None and access.topics[topic] & _WRITE
            if not is_known and not self._access.shows(context, WRITE_TOPIC, topic):
                raise ApiError(WRITE_TOPIC.refusal)
            if transactional_id is None and _attributes(records) & _TRANSACTIONAL_BIT:
                raise ApiError(
                    WRITE_TRANSACTION.refusal,
                    "a batch of a transaction needs a request that names its transactional id",
                )
        replica = self._replicas.get((topic, index))
        if replica is None:
            raise self._services.missing(topic, index)
        if isinstance(topic, NamedTopic) and topic.bytes != replica.topic_id.bytes:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)  # Another topic has its name by now.
        if replica.leadership is not None:
            self._services.check_not_replaced(replica)
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}.")
        if version < _FIRST_VERSION_WITH_ZSTD and _attributes(records) & _CODEC_MASK == Compression.ZSTD:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"zstd needs Produce version {_FIRST_VERSION_WITH_ZSTD}, the request is version {version}",
            )
        if acks == ACKS_ALL and replica.in_sync_count < (least := replica.least_in_sync):
            if replica.stopped is not None:
                raise ApiError(replica.stopped)
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR : {replica.in_sync_count} is insufficient to satisfy the"
                f" min.isr requirement of {least} for partition {topic}-{index}: start the brokers of its"
                " replicas, or set min.insync.replicas to what the cluster has",
            )
        return replica


def _attributes(records: Buffer) -> int:
    """The low byte of a batch's attributes; 0 where the batch is too short to have any."""
    return records[_ATTRIBUTES_LOW_BYTE] if len(records) >= BATCH_HEADER_SIZE else 0
