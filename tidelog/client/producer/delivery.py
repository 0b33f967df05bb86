"""The result of `Producer.send`: an awaitable for one record's metadata that is very cheap to create.

Owns: `Delivery`, which is a batch and an index in it; the batch has one outcome for all its records. And
`BatchDelivery`, the result of `send_batch`, because a batch that is too large for the broker is split.
Invariants: any number of tasks may await it any number of times, before or after the outcome.
"""

from asyncio import Future, InvalidStateError, get_running_loop
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Self

from tidelog.client.producer.batch import ProducerBatch
from tidelog.client.types import RecordMetadata, TimestampType
from tidelog.protocol.sequences import increment_sequence

_NOT_KNOWN = "the outcome is not known yet: await the delivery"


class Delivery:
    """`await` it for the `RecordMetadata`; raises the batch's DeliveryError when it was not stored."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    # No __init__: calling it would take longer than everything else here. The producer's fast path sets the
    # attributes itself.
    _batch: ProducerBatch
    _index: int
    _timestamp_ms: int

    @classmethod
    def of(cls, batch: ProducerBatch, index: int, timestamp_ms: int) -> Self:
        """The delivery of record `index` (from 0) of the batch."""
        delivery = cls()
        delivery._batch = batch
        delivery._index = index
        delivery._timestamp_ms = timestamp_ms
        return delivery

    @property
    def topic(self) -> str:
        return self._batch.key.topic

    @property
    def partition(self) -> int:
        return self._batch.key.partition

    def done(self) -> bool:
        """Whether the outcome is known, so awaiting returns at once."""
        return self._open_batch() is None

    def result(self) -> RecordMetadata:
        """The metadata of the stored record. Raises its DeliveryError, or InvalidStateError while the outcome
        is not known."""
        batch, index = self._find()
        if (outcome := batch.outcome) is None:
            raise InvalidStateError(_NOT_KNOWN)
        if outcome.error is not None:
            # Each waiter raises its own copy, so tracebacks do not accumulate on the shared error.
            raise outcome.error.with_traceback(None)
        offset, sequence = outcome.base_offset, batch.base_sequence
        producer_id, epoch = batch.identity or (-1, -1)
        if outcome.log_append_time_ms >= 0:
            timestamp, kind = outcome.log_append_time_ms, TimestampType.LOG_APPEND_TIME
        else:
            timestamp, kind = self._timestamp_ms, TimestampType.CREATE_TIME
        return RecordMetadata(
            *batch.key,
            offset + index if offset >= 0 else -1,
            timestamp,
            kind,
            producer_id,
            epoch,
            increment_sequence(sequence, index) if sequence >= 0 else -1,
        )

    def add_done_callback(self, callback: "Callable[[Self], object]") -> None:
        """Have the event loop call `callback` with this delivery once its outcome is known."""
        batch = self._open_batch()
        if batch is None:
            get_running_loop().call_soon(callback, self)
        else:
            batch.when_changed(partial(self.add_done_callback, callback))

    def exception(self) -> BaseException | None:
        """Why the record was given up; None if the outcome is not known yet or the record was stored."""
        outcome = self._find()[0].outcome
        return None if outcome is None else outcome.error

    def __await__(self) -> Generator["Future[None]", None, RecordMetadata]:
        while (batch := self._open_batch()) is not None:
            yield from change_of(batch)
        return self.result()

    def _open_batch(self) -> ProducerBatch | None:
        """A batch whose outcome is not known, and on which this delivery depends."""
        batch, _ = self._find()
        return batch if batch.outcome is None else None

    def _find(self) -> tuple[ProducerBatch, int]:
        self._batch, self._index = found = self._batch.part_of(self._index)
        return found


class BatchDelivery(Delivery):
    """`await` it for the metadata of the batch's first record, once all its records are stored. Raises the
    DeliveryError of the first record that is not."""

    __slots__ = ("_batches",)

    _batches: list[ProducerBatch]

    @classmethod
    def of_records(cls, records: Sequence[Delivery]) -> "BatchDelivery":
        """The delivery of these records (at least one), in the order in which they were sent."""
        first = records[0]
        delivery = cls.of(first._batch, first._index, first._timestamp_ms)
        delivery._batches = list(dict.fromkeys(each._batch for each in records))
        return delivery

    def exception(self) -> BaseException | None:
        errors = (batch.first_error() for batch in self._batches)
        return next((error for error in errors if error is not None), None)

    def result(self) -> RecordMetadata:
        if self._open_batch() is not None:
            raise InvalidStateError(_NOT_KNOWN)
        if (error := self.exception()) is not None:
            raise error.with_traceback(None)
        return super().result()

    def _open_batch(self) -> ProducerBatch | None:
        return next((part for batch in self._batches if (part := batch.first_open()) is not None), None)


def change_of(batch: ProducerBatch) -> "Future[None]":
    """Done when the batch is resolved or split."""
    # Each waiter has its own future: cancelling a task cancels the future that it awaits.
    waiter: Future[None] = get_running_loop().create_future()
    batch.when_changed(partial(_wake, waiter))
    return waiter


def _wake(waiter: "Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
