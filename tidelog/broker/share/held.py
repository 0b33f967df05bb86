"""One share partition in memory, on the broker that leads the partition.

Owns the timer of its locks, who waits for its records, and its writes: one is under way at a time, and what
changes meanwhile is joined in the next one. So the state that is stored never goes back. Dead letters are
written beside that, one batch at a time.

Invariants: an update is settled only after it is durable, and undone if it is refused; a record whose dead
letter is to be written is stored as such before, and as archived after it, so a crash repeats a dead letter
and loses none.

On the event loop. Source: Kafka's SharePartition and AcquisitionLockTimerTask, KIP-1191.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import structlog

from tidelog.broker.beginning import begin
from tidelog.broker.coordinator.share_states.machine import StateWrite
from tidelog.broker.coordinator.share_states.state import SharePartitionKey, combined
from tidelog.broker.observability.share_counts import ShareCounts
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.share.dead_letters import DeadLetterTopics
from tidelog.broker.share.log_reader import READ_BYTES
from tidelog.broker.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    DeadLetters,
    Limits,
    SharePartition,
    Update,
)
from tidelog.broker.share.states import ShareStatesClient
from tidelog.protocol.errors import ApiError, ErrorCode

_ENDED = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH, ErrorCode.INVALID_REQUEST)
"""Why a state cannot be written any more: another broker leads, or its offsets were altered or deleted."""
_FOREVER_MS = 1 << 62
_NAMES = {int(kind): kind.name.lower() for kind in AcknowledgeType}
_MOST_SHOWN = 10
"""Ranges of offsets in one log line."""
logger = structlog.get_logger(__name__)


class Watcher(Protocol):
    """Who waits for records."""

    def may_give(self, held: HeldPartition) -> None: ...


Stored = Callable[[ApiError | None], None]
"""Called once a change is durable, or refused with this error. Raises nothing."""


class _Waiting(NamedTuple):
    update: Update
    stored: Stored | None
    """None: nobody waits for it."""


class HeldPartition:
    """`machine` may be read; changes go through the methods."""

    def __init__(
        self,
        key: SharePartitionKey,
        replica: Replica,
        state_epoch: int,
        machine: SharePartition,
        states: ShareStatesClient,
        steady_ms: Callable[[], int],
        counts: ShareCounts,
        limits: Callable[[], Limits],
        dead_letter_topics: DeadLetterTopics,
    ) -> None:
        self._counts = counts
        self._limits = limits
        self._dead_letter_topics = dead_letter_topics
        self.key = key
        self.replica = replica
        self.machine = machine
        self.leader_epoch = replica.leader_epoch
        self.has_ended = False
        self.bytes_per_record = READ_BYTES
        """In the last read."""
        self._state_epoch = state_epoch
        self._states = states
        self._steady_ms = steady_ms
        self._waiting: list[_Waiting] = []
        self._is_writing = False
        self._writer: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watchers: dict[Watcher, None] = {}
        self._told: Watcher | None = None
        self._dead_letters: list[DeadLetters] = []
        self._dead_letter_writer: asyncio.Task[None] | None = None
        self._write_dead_letters(machine.start_offset, machine.end_offset - 1)

    @property
    def is_current(self) -> bool:
        """Whether this broker leads the partition still, in the same epoch."""
        replica = self.replica
        return not self.has_ended and replica.stopped is None and replica.leader_epoch == self.leader_epoch

    @property
    def is_idle(self) -> bool:
        """Whether no member holds a record, and no write is under way."""
        is_writing = self._is_writing or self._dead_letter_writer is not None
        return not is_writing and self.machine.next_deadline_ms is None

    def watch(self, watcher: Watcher) -> None:
        """Tell it when records may be acquired, after those that have waited longer."""
        if not self._watchers:
            self.replica.watch(self)
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)
        if self._told is watcher:
            self._told = None
        if not self._watchers:
            self.replica.unwatch(self)

    def may_acquire(self, watcher: Watcher) -> bool:
        """Whether no other one was told, which is the first to acquire then."""
        return self._told in (None, watcher)

    def tell_next(self) -> None:
        """Tell who has waited longest, if records may be acquired.

        Who was told has to call this when it waits no longer: it may have left some, or all.
        """
        machine, ends = self.machine, self.replica.ends
        if self._watchers and machine.can_acquire and machine.next_fetch_offset < ends.high_watermark:
            self._told = next(iter(self._watchers))
            self._told.may_give(self)

    def replica_changed(self, replica: Replica) -> None:
        """There is more to read, or it stops."""
        if self.is_current:
            self.tell_next()
        else:
            self._tell_all()

    def _tell_all(self) -> None:
        for watcher in self._watchers:
            watcher.may_give(self)

    def changed(self) -> None:
        """Let locks end in time, and who waits look again."""
        self.tell_next()
        if self._timer is None and not self.has_ended:
            deadline_ms = self.machine.next_deadline_ms
            if deadline_ms is not None:
                delay_seconds = max(0, deadline_ms - self._steady_ms()) / 1000
                self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._locks_end)

    def _locks_end(self) -> None:
        self._timer = None
        self._expire(self._steady_ms())

    def expire_locks(self) -> int:
        """End all locks now; of how many records."""
        return sum(end - first for first, end, _ in self._expire(_FOREVER_MS).before)

    def _expire(self, now_ms: int) -> Update:
        self.machine.limits = self._limits()
        update = self.machine.expire(now_ms)
        if update.before:
            self._counts.lock_timeouts += len(update.before)
            self._write(_Waiting(update, None))
        self.changed()
        return update

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], stored: Stored
    ) -> None:
        """`stored` is called within this call if nothing has to be stored. Raises ApiError; then it is not
        called."""
        self.machine.limits = self._limits()
        try:
            update = self.machine.acknowledge(member_id, acknowledgements, self._steady_ms())
            self.tell_next()  # Records are not in flight from now on.
        except ApiError:
            raise
        except Exception as error:
            raise self._broken(error) from error

        def counted(error: ApiError | None) -> None:
            if error is None:
                self._count(acknowledgements)
            stored(error)

        self._store(update, counted)

    def _count(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        acknowledged = self._counts.acknowledged
        for first, last, types in acknowledgements:
            if len(types) == 1:
                acknowledged[_NAMES[types[0]]] += last - first + 1
            else:
                for kind, count in Counter(types).items():
                    acknowledged[_NAMES[kind]] += count

    def release(self, member_id: str, stored: Stored) -> None:
        """Make available what the member holds; `stored` as with `acknowledge`."""
        self.machine.limits = self._limits()
        self._store(self.machine.release(member_id), stored)

    def _store(self, update: Update, stored: Stored) -> None:
        if update.before:
            self._write(_Waiting(update, stored))
        else:
            stored(None)

    def _write(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if not self._is_writing:
            self._is_writing = True
            self._writer = begin(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                await self._write_group(group)
        finally:  # After an error that nobody expected, the next write is not kept waiting.
            self._is_writing = False

    async def _write_group(self, group: Sequence[_Waiting]) -> None:
        refusal: ApiError | None = None
        try:
            if self.has_ended:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker leads it no longer")
            await self._states.write(self.key, self._joined(group))
        except ApiError as error:
            refusal = self._refused(group, error)
        except Exception as error:
            refusal = self._refused(group, self._broken(error))
        else:
            for update, stored in group:
                if stored is not None:
                    self.machine.settle(update)
        for _, stored in group:
            if stored is not None:
                self._tell(stored, refusal)
        for update, _ in group:
            for batch in update.batches:
                self._write_dead_letters(batch.first, batch.last)
        self.changed()

    def _broken(self, error: Exception) -> ApiError:
        """An invariant is broken: what is in memory may not be what is stored. The refusal."""
        logger.error("share_partition_broken", group_id=self.key.group_id, error=repr(error), exc_info=error)
        self.end()
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))

    def _tell(self, stored: Stored, refusal: ApiError | None) -> None:
        try:
            stored(refusal)
        except Exception as error:  # The others of the group wait too, and later writes.
            logger.error("share_answer_failed", group_id=self.key.group_id, error=repr(error))

    def _joined(self, group: Sequence[_Waiting]) -> StateWrite:
        start_offset, complete_count = self.machine.after(update for update, _ in group)
        batches = combined((), (batch for update, _ in group for batch in update.batches), start_offset)
        return StateWrite(self._state_epoch, self.leader_epoch, start_offset, complete_count, batches)

    def _refused(self, group: Sequence[_Waiting], error: ApiError) -> ApiError:
        """Undo what was not stored; with which code it is refused."""
        if error.code in _ENDED:
            self.end()
            if error.code == ErrorCode.FENCED_LEADER_EPOCH:
                error = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
        for update, stored in reversed(group):
            if stored is None:
                logger.warning(
                    "share_state_not_written",
                    group_id=self.key.group_id,
                    topic=self.replica.topic,
                    partition=self.key.partition,
                    error=str(error),
                    advice="if this broker ends now, the delivery counts of expired locks may be lost, and "
                    "dead letters may be written twice",
                )
                continue
            self.machine.undo(update)
        return error

    def _write_dead_letters(self, first: int, last: int) -> None:
        """Begin to write those of these records, in whose stored state they are due."""
        if self.has_ended:
            return
        self._dead_letters += self.machine.dead_letters(first, last)
        if self._dead_letters and self._dead_letter_writer is None:
            work = self._write_all_dead_letters()
            self._dead_letter_writer = asyncio.get_running_loop().create_task(work)

    async def _write_all_dead_letters(self) -> None:
        try:
            while self._dead_letters and not self.has_ended:
                count, error = await self._dead_letter_topics.write(
                    self.key, self.replica, self._dead_letters
                )
                done, self._dead_letters = _first_of(self._dead_letters, count)
                if error is not None:  # As Kafka does: else the group would come to a halt.
                    logger.error(
                        "dead_letters_not_written",
                        group_id=self.key.group_id,
                        topic=self.replica.topic,
                        partition=self.key.partition,
                        offsets=[(each.first, each.last) for each in done[:_MOST_SHOWN]],
                        records=count,
                        error=str(error),
                        advice="the records are archived without dead letters; they stay in their topic",
                    )
                update = self.machine.archive(done)
                if update.before:
                    self._write(_Waiting(update, None))
                self.changed()
        finally:
            self._dead_letter_writer = None

    def end(self) -> None:
        """Serve nothing more: its state is read again with the next use."""
        self.has_ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._dead_letter_writer is not None:
            self._dead_letter_writer.cancel()  # Who leads next writes them.
        self._tell_all()

    async def close(self) -> None:
        """Wait for the writes under way."""
        self.end()
        under_way = [each for each in (self._writer, self._dead_letter_writer) if each is not None]
        if under_way:
            await asyncio.wait(under_way)


def _first_of(letters: Sequence[DeadLetters], count: int) -> tuple[Sequence[DeadLetters], list[DeadLetters]]:
    """The first so many, and the others."""
    for index, each in enumerate(letters):
        size = each.last - each.first + 1
        if count < size:
            cut = each.first + count
            begun = [each._replace(last=cut - 1)] if count else []
            return [*letters[:index], *begun], [each._replace(first=cut), *letters[index + 1 :]]
        count -= size
    return letters, []
