"""A record of a share group, and what an application does with it.

Owns: `ShareRecord`, and `Processing`: the acknowledgement by how a body of code ends. Invariants: a record is
acknowledged once; what the application acknowledged in the body stays.
"""

from types import TracebackType
from typing import Generic, NamedTuple

from tidelog.client.share.held import AcknowledgeType, HeldPartition
from tidelog.client.types import KT, VT, RecordHeaders, TimestampType
from tidelog.protocol.types import TopicPartition
from tidelog.wire.events import logger

Exceptions = type[BaseException] | tuple[type[BaseException], ...]


class ShareRecord(NamedTuple, Generic[KT, VT]):
    """A record that this consumer holds, and no other: as a `ConsumerRecord`, with the number of times that
    it was delivered, this one included. `holder` holds it.

    Acknowledge it by `processing`, or once by `accept`, `release` or `reject`. That is sent in the
    background; `ShareConsumer.commit` waits for it. While its lock lasts, no other member gets it.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: KT
    value: VT
    headers: RecordHeaders
    serialized_key_size: int
    serialized_value_size: int
    leader_epoch: int
    delivery_count: int
    holder: HeldPartition

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def accept(self) -> None:
        """It was processed: no member gets it again."""
        self.acknowledge(AcknowledgeType.ACCEPT)

    def release(self) -> None:
        """It was not processed: a member gets it again, unless it was delivered as often as the group allows
        (`share.delivery.count.limit`)."""
        self.acknowledge(AcknowledgeType.RELEASE)

    def reject(self) -> None:
        """It cannot be processed: no member gets it again. It goes to the group's dead letters, if it has a
        topic for them (`errors.deadletterqueue.topic.name`)."""
        self.acknowledge(AcknowledgeType.REJECT)

    def renew(self) -> None:
        """Begin its lock anew (KIP-1222). `processing` does this by itself."""
        self.acknowledge(AcknowledgeType.RENEW)

    def acknowledge(self, kind: AcknowledgeType) -> None:
        """Raises ValueError if it was acknowledged already."""
        if not self.holder.acknowledge(self.offset, AcknowledgeType(kind)):
            raise ValueError(
                f"{self.topic}-{self.partition} at offset {self.offset} was acknowledged already"
            )

    def processing(self, *, reject: Exceptions = (), release: Exceptions = ()) -> "Processing[KT, VT]":
        """`async with record.processing(reject=ValueError):` accepts the record at the end of the body.

        An exception of `reject` rejects it, one of `release` releases it; both are logged and end here. Any
        other one releases it and is raised, also a cancellation. Meanwhile its lock is renewed.
        """
        return Processing(self, reject, release)


class Processing(Generic[KT, VT]):
    """The body of `ShareRecord.processing`."""

    def __init__(self, record: ShareRecord[KT, VT], reject: Exceptions, release: Exceptions) -> None:
        self._record = record
        self._reject = reject
        self._release = release

    async def __aenter__(self) -> ShareRecord[KT, VT]:
        self._record.holder.begin(self._record.offset)
        return self._record

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        record = self._record
        is_unanswered = record.holder.awaits_acknowledgement(record.offset)
        record.holder.end(record.offset)
        is_rejected = isinstance(error, self._reject)
        if error is None:
            taken = AcknowledgeType.ACCEPT
        else:
            taken = AcknowledgeType.REJECT if is_rejected else AcknowledgeType.RELEASE
        if is_unanswered:
            record.acknowledge(taken)
        if not is_rejected and not isinstance(error, self._release):
            return False
        logger.warning(
            "record_not_processed",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            delivery_count=record.delivery_count,
            acknowledgement=taken.name,
            exc_info=error,
        )
        return True
