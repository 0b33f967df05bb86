"""What `Producer.send` gives: a promise of one record's metadata that costs next to nothing to make.

Owns: `Delivery`. It is a place in a batch, and the batch has the one outcome for all of its records.
Invariants: it may be awaited any number of times, by any number of tasks, before or after the outcome.
Cancelling one that waits concerns nobody else and takes back nothing that was sent.
Callers: the producer makes them, applications await them.
"""

from asyncio import Future, get_running_loop
from collections.abc import Generator
from functools import partial

from client.batch import Outcome, ProducerBatch
from client.types import RecordMetadata, TimestampType
from protocol.sequences import increment_sequence

__all__ = ["Delivery"]


class Delivery:
    """`await` it for the `RecordMetadata`; raises the batch's DeliveryError when it was not stored."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    # No __init__, which would take longer than all else that is done here: the producer's fast path fills in
    # these itself.
    _batch: ProducerBatch
    _index: int
    _timestamp_ms: int

    @classmethod
    def of(cls, batch: ProducerBatch, index: int, timestamp_ms: int) -> "Delivery":
        """Of the record that is the batch's `index`-th, counted from 0."""
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
        """Whether the outcome is known, so that awaiting does not wait."""
        return self._find()[0].outcome is not None

    def exception(self) -> BaseException | None:
        """Why the record was given up; None while that is open or when it was stored."""
        outcome = self._find()[0].outcome
        return None if outcome is None else outcome.error

    def __await__(self) -> Generator["Future[None]", None, RecordMetadata]:
        while True:
            batch, index = self._find()
            if batch.outcome is not None:
                return self._metadata(batch, index, batch.outcome)
            # One for each that waits, not shared: cancelling a task cancels the future it waits for.
            waiter: Future[None] = get_running_loop().create_future()
            batch.when_changed(partial(_wake, waiter))
            yield from waiter

    def _find(self) -> tuple[ProducerBatch, int]:
        self._batch, self._index = found = self._batch.part_of(self._index)
        return found

    def _metadata(self, batch: ProducerBatch, index: int, outcome: Outcome) -> RecordMetadata:
        if outcome.error is not None:
            # Raised once for each that waits: their tracebacks must not pile up on the shared error.
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


def _wake(waiter: "Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
