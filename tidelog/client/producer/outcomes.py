"""The end of batches: it turns verdicts into outcomes, frees memory, wakes waiters and logs events.

Owns: the set of batches that are not resolved, and the producer's fatal error. Invariants: a batch is
resolved exactly once, and then its memory is freed; a batch that was split is replaced by its parts. After a
fatal error every batch is resolved and no send waits for memory.
"""

import asyncio
import weakref
from collections.abc import Callable, Iterable

from tidelog.client.errors import DeliveryTimeoutError
from tidelog.client.producer.accumulator import Accumulator
from tidelog.client.producer.batch import Outcome, ProducerBatch
from tidelog.client.producer.buffer_memory import BufferMemory
from tidelog.client.producer.delivery import change_of
from tidelog.client.producer.state import ProducerState
from tidelog.client.producer.verdicts import Action, Verdict
from tidelog.wire.errors import ClientError
from tidelog.wire.events import logger


class Outcomes:
    """Resolves the batches of one producer, and frees their memory. `refresh_metadata` is called if an error
    suggests that the leader has changed."""

    def __init__(
        self,
        state: ProducerState,
        accumulator: Accumulator,
        buffer_memory: BufferMemory,
        refresh_metadata: Callable[[], None],
    ) -> None:
        self._state = state
        self._accumulator = accumulator
        self._buffer_memory = buffer_memory
        self._refresh_metadata = refresh_metadata
        self._unresolved: dict[ProducerBatch, None] = {}
        self._identity = state.identity
        self.fatal_error: ClientError | None = None
        # Called with the error of each batch that was given up.
        self.on_given_up: Callable[[ClientError], None] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether every batch is resolved and no answer is outstanding."""
        return not self._unresolved and not self._state.unsettled_partitions()

    def expect(self, batch: ProducerBatch) -> None:
        """A batch was opened."""
        self._unresolved[batch] = None

    def report_lost_with(self, producer: object) -> None:
        """When `producer` is destroyed, or the interpreter ends, log how many records had no outcome."""
        # The batches do not refer to the producer, so this does not keep it alive.
        weakref.finalize(producer, _report_lost, self._unresolved)

    async def wait_for_all(self) -> None:
        """Wait until every batch that is unresolved at the call is resolved."""
        for batch in list(self._unresolved):
            while (unresolved := batch.first_open()) is not None:
                await change_of(unresolved)

    def act(self, verdict: Verdict, cause: ClientError | None) -> None:
        """Execute the verdict. `cause` is the error of the attempt, for the log."""
        action, batch = verdict.action, verdict.batch
        if action is Action.STORED:
            self._resolve(batch, Outcome(verdict.base_offset, verdict.log_append_time_ms))
        elif action is Action.RETRY:
            logger.debug("batch_retried", **_fields(batch), cause=str(cause), attempts=batch.attempts)
            if cause is None or cause.retriable:
                self._refresh_metadata()
        elif action is Action.SPLIT:
            self._split(batch)
        elif action in (Action.FAILED, Action.FATAL) and verdict.error is not None:
            logger.warning("batch_given_up", **_fields(batch), error=str(verdict.error))
            self._resolve(batch, Outcome(-1, -1, verdict.error))
            if action is Action.FATAL:
                self.fail(verdict.error)
        self._note_identity(cause)

    def expire(self, now_ms: int) -> None:
        """Give up the batches whose deadline has passed."""
        for batch in self._accumulator.expire(now_ms):
            error = DeliveryTimeoutError("delivery_timeout_ms passed before they were sent", *batch.key)
            self._resolve(batch, Outcome(-1, -1, error))
            if self._state.is_session:
                # Later records must not be stored without this batch.
                self.fail(error)
        for key in self._state.unsettled_partitions():
            for verdict in self._state.expire(key, now_ms):
                self.act(verdict, None)

    def give_up_all(self, reason: str, error: ClientError | None = None) -> None:
        """Resolve all batches: unsent ones with `error` (or a timeout), others by the state machine."""
        for batch in self._accumulator.drain_all():
            unsent = error or DeliveryTimeoutError(f"{reason} before they were sent", *batch.key)
            self._resolve(batch, Outcome(-1, -1, unsent))
        for verdict in self._state.abandon_all(reason):
            self.act(verdict, error)

    def abort_all(self, error: ClientError) -> None:
        """Resolve all batches with `error`, because their transaction cannot be committed. Those on the wire
        stay in flight until they are answered."""
        for batch in self._accumulator.drain_all():
            self._resolve(batch, Outcome(-1, -1, error))
        for verdict in self._state.abandon_all("the transaction was aborted"):
            self.act(verdict._replace(error=error), error)

    def raise_fatal(self) -> None:
        """Raise what ended the producer, if it has ended."""
        if self.fatal_error is not None:
            # Else the traceback would grow each time.
            raise self.fatal_error.with_traceback(None)

    def fail(self, error: ClientError) -> None:
        """The producer can send nothing more."""
        if self.fatal_error is None:
            self.fatal_error = error
            logger.error("producer_failed", error=str(error))
            self._buffer_memory.fail(error)
            self.give_up_all("the producer failed", error)

    def fail_unexpectedly(self, error: ClientError) -> None:
        """As `fail`, and resolve also batches that were on their way from the accumulator to the state."""
        try:
            self.fail(error)
        finally:
            for batch in list(self._unresolved):
                self._resolve(batch, Outcome(-1, -1, error))

    def _split(self, batch: ProducerBatch) -> None:
        parts = batch.split()
        self._accumulator.replace(batch, parts)
        self._state.split(batch, parts)
        del self._unresolved[batch]
        self._unresolved.update(dict.fromkeys(parts))
        logger.info("batch_split", **_fields(batch), parts=len(parts))

    def _resolve(self, batch: ProducerBatch, outcome: Outcome) -> None:
        if batch.resolve(outcome):
            if outcome.error is not None:
                now = asyncio.get_running_loop().time()
                self._buffer_memory.metrics.records_failed(batch.record_count, now)
            del self._unresolved[batch]
            self._accumulator.release(batch)
            self._buffer_memory.notify()
            if outcome.error is not None and self.on_given_up is not None:
                self.on_given_up(outcome.error)

    def _note_identity(self, cause: ClientError | None) -> None:
        before, now = self._identity, self._state.identity
        if before == now:
            return
        self._identity = now
        if before is not None and not self._state.is_transactional:
            self._buffer_memory.metrics.epoch_bumped()
            # A healthy broker would not refuse this. The client continues, but an operator should look.
            new = "to be requested" if now is None else str(tuple(now))
            logger.warning("producer_identity_left", old=tuple(before), new=new, cause=str(cause))


def _fields(batch: ProducerBatch) -> dict[str, object]:
    producer_id, epoch = batch.identity or (-1, -1)
    return {
        "topic": batch.key.topic,
        "partition": batch.key.partition,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "base_sequence": batch.base_sequence,
        "records": batch.record_count,
    }


def _report_lost(unresolved: Iterable[ProducerBatch]) -> None:
    if lost := sum(batch.record_count for batch in unresolved):
        logger.error("producer_was_not_stopped", unacknowledged_records=lost)
