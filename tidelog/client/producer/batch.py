"""A batch of records, from `send` until its acknowledgement.

Owns: the batch's encoded bytes, its identity (producer id, epoch, first sequence), the state of its attempts,
and its outcome. Pure: waiters are callbacks. Invariants: the outcome is set once. The bytes are built when
the batch is first sent. After that only their producer fields change, when the identity changes, and only
while no attempt is in flight. `may_be_stored` is True from the first attempt whose outcome stayed unknown.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import RecordBatchBuilder, decode_batch, last_sequence, set_producer
from tidelog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from tidelog.wire.errors import ClientError

# Replaces the builder of a batch whose bytes were dropped. Nothing is ever appended to it.
_SPENT = RecordBatchBuilder(0)


class Identity(NamedTuple):
    """The idempotent identity under which batches are numbered."""

    producer_id: int
    epoch: int


class Outcome(NamedTuple):
    """How a batch ended: stored at `base_offset` (-1: offset not known), or failed with `error`."""

    base_offset: int
    log_append_time_ms: int
    error: ClientError | None = None


class ProducerBatch:
    """A record batch of one partition, from its first record to its outcome. Times are milliseconds of the
    client's monotonic clock."""

    __slots__ = (
        "_encoded", "_encoded_as", "_raw_size_bytes", "_released_count", "_waiters", "attempts",
        "base_sequence", "builder", "created_ms", "deadline_ms", "identity", "is_abandoned", "is_on_wire",
        "key", "last_code", "may_be_stored", "outcome", "parts", "reserved_bytes", "retry_at_ms",
    )  # fmt: skip

    def __init__(self, key: TopicPartition, max_size_bytes: int, created_ms: int, deadline_ms: int) -> None:
        self.key = key
        self.builder = RecordBatchBuilder(max_size_bytes)
        self.created_ms = created_ms
        self.deadline_ms = deadline_ms
        self.reserved_bytes = 0
        self.identity: Identity | None = None
        self.base_sequence: int = NO_SEQUENCE
        self.attempts = 0
        self.is_on_wire = False
        self.is_abandoned = False
        self.may_be_stored = False
        self.retry_at_ms = 0
        self.last_code: ErrorCode | None = None
        self.outcome: Outcome | None = None
        self.parts: list[ProducerBatch] | None = None
        self._encoded: bytearray | None = None
        self._encoded_as: tuple[Identity | None, int] = (None, NO_SEQUENCE)
        self._raw_size_bytes = 0
        self._released_count = 0
        self._waiters: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        where = f"{self.key.topic}-{self.key.partition}"
        what = f"{self.record_count} records, {self.identity}, sequence {self.base_sequence}"
        return f"<ProducerBatch {where}: {what}, {self.attempts} attempts, on wire {self.is_on_wire}>"

    @property
    def record_count(self) -> int:
        return self._released_count or self.builder.record_count

    @property
    def size_bytes(self) -> int:
        """The encoded size so far; until `encode` it is the size before compression."""
        return self.builder.size_bytes

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record. The batch must be numbered."""
        return last_sequence(self.base_sequence, self.record_count)

    def number(self, identity: Identity, base_sequence: int) -> None:
        """Set the batch's identity and first sequence."""
        self.identity = identity
        self.base_sequence = base_sequence

    def encode(self, compression: Compression, *, is_transactional: bool = False) -> bytearray:
        """The bytes to send under the present identity. They are built once, then only patched."""
        now = (self.identity, self.base_sequence)
        producer_id, epoch = self.identity or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        encoded = self._encoded
        if encoded is None:
            self._raw_size_bytes = self.builder.size_bytes
            encoded = self._encoded = self.builder.build(
                compression, producer_id, epoch, self.base_sequence, is_transactional=is_transactional
            )
        elif self._encoded_as != now:
            set_producer(encoded, producer_id, epoch, self.base_sequence)
        self._encoded_as = now
        return encoded

    def split(self) -> "list[ProducerBatch]":
        """Replace this batch (of at least two records) by two or more with the same records in order.

        Before compression each has at most half of this one's size, unless it is a single record.
        """
        if self._encoded is None or self.record_count < 2:
            raise ValueError("only an encoded batch of at least two records can be split")
        max_size_bytes = self._raw_size_bytes // 2
        parts: list[ProducerBatch] = []
        for record in decode_batch(self._encoded, check_crc=False):
            fields = (record.timestamp, record.key, record.value, record.headers)
            if not parts or not parts[-1].builder.append(*fields):
                part = ProducerBatch(self.key, max_size_bytes, self.created_ms, self.deadline_ms)
                part.builder.append(*fields)
                part.may_be_stored = self.may_be_stored
                part.last_code = self.last_code
                parts.append(part)
        for part in parts:
            part.reserved_bytes = part.size_bytes
        self.parts = parts
        self.release()
        self._wake()
        return parts

    def part_of(self, index: int) -> "tuple[ProducerBatch, int]":
        """After all splits: the batch that now holds record `index`, and the record's index in it."""
        batch = self
        while batch.parts is not None:
            for part in batch.parts:
                if index < part.record_count:
                    batch = part
                    break
                index -= part.record_count
        return batch, index

    def first_open(self) -> "ProducerBatch | None":
        """After all splits: the first batch with records of this one whose outcome is not known."""
        return next((each for each in self._last_parts() if each.outcome is None), None)

    def first_error(self) -> ClientError | None:
        """The error of the first records that were given up."""
        outcomes = (each.outcome for each in self._last_parts())
        return next((each.error for each in outcomes if each is not None and each.error is not None), None)

    def _last_parts(self) -> "Iterator[ProducerBatch]":
        if self.parts is None:
            yield self
        for part in self.parts or ():
            yield from part._last_parts()

    def resolve(self, outcome: Outcome) -> bool:
        """Set the outcome and wake the waiters. False if an outcome was set before; it stays."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        self._wake()
        return True

    def release(self) -> None:
        """Drop the bytes: the batch will not be sent again, but deliveries may keep it alive."""
        self._released_count = self.record_count
        self.builder = _SPENT
        self._encoded = None

    def when_changed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the batch is resolved or split."""
        self._waiters.append(callback)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for callback in waiters:
            callback()
