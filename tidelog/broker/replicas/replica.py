"""This broker's copy of a partition: its role, its log, and the requests that wait for it to move.

Owns when the log is flushed, and which mark of `progress` an answer waits for: `committed` with acks=all, for
markers and for coordinators; `flushed`, which asks nothing of other brokers, for the flush that
flush.messages asks for, and for a request for the end of the log or a read at its end, so that a client finds
every record that was acknowledged to it. With acks=1 and acks=0 the data is flushed within `FLUSH_SOON_MS` or
flush.ms. It gives its offsets only for an answer that waits for a mark, or that promises no more than the
topic does.

Invariants:
- appends happen synchronously in the order of arrival; five requests in flight depend on it;
- after a failed flush or write the partition is offline: every waiter and every later call gets
  KAFKA_STORAGE_ERROR until the broker is restarted. It is never tried again;
- a flush without a free file handle has not failed: its waiters continue to wait, and it is tried again every
  `HANDLES_RETRY_MS` until a handle is free.

Everything runs on the event loop; `read` alone may also run in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Generic, NewType, Protocol, TypeVar
from uuid import UUID
from weakref import WeakSet

import structlog

from tidelog.broker.cluster.catalog import NO_LEADER, PartitionAssignment
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.replicas.group_commit import GroupCommit, Work
from tidelog.broker.replicas.progress import CommitWaiter, Mark, Progress, Waiting
from tidelog.broker.storage.batch_inspection import Effort
from tidelog.broker.storage.batch_rules import Permit, may_not_begin
from tidelog.broker.storage.disk import HANDLES_ADVICE, advice_on, is_out_of_handles
from tidelog.broker.storage.integrity import CorruptSegmentError
from tidelog.broker.storage.invariants import InvariantError
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.log_types import READ_COMMITTED, READ_WRITTEN, LogEnds
from tidelog.broker.storage.partition_log import (
    AppendOrigin,
    AppendResult,
    FlushWork,
    PartitionLog,
    Read,
    ReadResult,
)
from tidelog.broker.storage.producer_state import is_late
from tidelog.broker.storage.recompression import Inspected
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import TransactionMarker, build_marker
from tidelog.protocol.types import NO_LEADER_EPOCH, Buffer

if TYPE_CHECKING:
    from tidelog.broker.replicas.leadership import Leadership

ACKS_ALL = -1
FLUSH_SOON_MS = 5
HANDLES_RETRY_MS = 100
TOLD_EVERY_MS = 10_000
_DAMAGE_ADVICE = (
    "check the disk that holds the data folder; `tidelog log verify` shows what is damaged, DeleteRecords"
    " moves the start of the log past it"
)
_FLUSHES_AWAITED_AT_ONCE = 100
_NEVER = (1 << 63) - 1
"""The flush.ms and the flush.messages that ask for no flush."""
_ResultT = TypeVar("_ResultT")
_DISK_ADVICE = (
    "check the disk that holds the data folder, then restart the broker; nothing that was acknowledged with"
    " acks=all is lost, unless acks.all.durable is false"
)
_FAULT_ADVICE = (
    "this is a fault of the broker: report this event, and restart the broker, which reads the log again;"
    " `tidelog log verify` shows whether anything is damaged"
)
logger = structlog.get_logger(__name__)


class Written(Protocol):
    """A batch that the log holds, durable or not. `when` and `soon_durable` give what to answer."""

    @property
    def duplicate(self) -> bool: ...


MovedStart = NewType("MovedStart", object)
"""Where DeleteRecords moved the start of a log. `Partitions.save_start_offsets` gives what to answer."""


class Watcher(Protocol):
    """Called on the loop when more can be read, or when the replica stops."""

    def replica_changed(self, replica: Replica) -> None: ...


class _FutureWaiter(Generic[_ResultT]):
    """A CommitWaiter that resolves one future with `result`, or with ApiError."""

    __slots__ = ("future", "result")

    def __init__(self, future: asyncio.Future[_ResultT], result: _ResultT) -> None:
        self.future = future
        self.result = result

    def partition_committed(self, slot: int) -> None:
        if not self.future.done():
            self.future.set_result(self.result)

    def partition_failed(self, slot: int, code: ErrorCode) -> None:
        if not self.future.done():
            self.future.set_exception(ApiError(code))


async def all_flushed(replicas: Iterable[Replica]) -> None:
    """Return once these replicas hold durably what they hold now, whatever their followers lack; one that
    fails does not delay the others."""
    unflushed = (replica for replica in replicas if replica.is_unflushed)
    while flushes := [replica.flushed() for replica in islice(unflushed, _FLUSHES_AWAITED_AT_ONCE)]:
        await asyncio.gather(*flushes, return_exceptions=True)


def _tell_failed(waiters: Iterable[Waiting], code: ErrorCode) -> None:
    for _, waiter, slot in waiters:
        waiter.partition_failed(slot, code)


class MarkerWatch:
    """Whether a marker of one producer was written on a partition since this watch began."""

    __slots__ = ("__weakref__", "has_seen_marker", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.has_seen_marker = False


class Replica:
    """The copy of one partition. It is the leader's until `follow` says that another broker leads it."""

    def __init__(
        self,
        topic_id: UUID,
        log: PartitionLog,
        *,
        leader_epoch: int,
        group_commit: GroupCommit,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
        committed_end: int | None = None,
        when_troubled: Callable[[Replica], None] = lambda _: None,
    ) -> None:
        """`committed_end`: all before it is known to be committed; None where this replica alone decides.
        `when_troubled` is called where the log failed, or has no space."""
        self.topic = log.topic
        self.topic_id = topic_id
        self.partition = log.partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.leader_id: int = NO_LEADER
        """Whom this replica follows, if it does."""
        self.may_lose_committed = False
        """Whether a broker led that may lack what was committed, because an operator chose it."""
        flushed_end = log.flushed_end_offset
        self.progress = Progress(
            flushed_end, log.transactions, flushed_end if committed_end is None else committed_end
        )
        self.visible_bytes = 0
        """How many bytes the high watermark has passed since the start."""
        self.stopped: ErrorCode | None = None
        """Why this replica serves nothing, or None."""
        self._has_ended = False
        self._when_troubled = when_troubled
        self._group_commit = group_commit
        self._metrics = metrics
        self._loop = loop
        self.leadership: Leadership | None = None
        """Of a partition with followers, while this replica leads it."""
        self.in_sync_count = 1
        """How many replicas are in sync, as the catalog says."""
        self._watchers: dict[Watcher, None] = {}
        self._append_watchers: dict[Watcher, None] = {}
        self._marker_watches: WeakSet[MarkerWatch] | None = None
        self._leader_start = 0
        self._unflushed_batches = 0
        self._flushing_bytes = 0
        self._tell_again_at = 0.0
        self._has_moved = False
        self._flush_timer: asyncio.TimerHandle | None = None
        if log.end_offset > log.flushed_end_offset:
            group_commit.request(self)

    @property
    def ends(self) -> LogEnds:
        """Where the log ends now. An answer to a consumer uses one of these values, not several reads."""
        progress, log = self.progress, self.log
        last_stable = progress.last_stable(log.start_offset)
        row = log.end_offset, progress.committed.offset, progress.high_watermark, last_stable
        return tuple.__new__(LogEnds, row)

    @property
    def is_follower(self) -> bool:
        """Whether another broker leads, or none."""
        return self.stopped == ErrorCode.NOT_LEADER_OR_FOLLOWER and not self._has_ended

    @property
    def is_running(self) -> bool:
        """Whether it leads or follows."""
        return self.stopped is None or self.is_follower

    @property
    def high_watermark(self) -> int:
        return self.progress.high_watermark

    def readable_bytes(self, isolation_level: int) -> int:
        """How many bytes became readable for consumers of this isolation level; use only differences."""
        transactions = self.log.transactions
        if isolation_level == READ_COMMITTED and transactions.first_unstable < self.progress.high_watermark:
            return transactions.bytes_before
        return self.log.appended_bytes if isolation_level == READ_WRITTEN else self.visible_bytes

    def append_as_leader(
        self,
        batch: Buffer,
        now_ms: int,
        inspected: Inspected | ApiError | Effort | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        permit: Permit = may_not_begin,
    ) -> Written:
        """Check and write one batch. Raises ApiError with the code that the producer is to get.

        `inspected` is the result of `inspect_to_store` for a client's batch, or an effort for that call: with
        an effort this raises TooMuchError too. `permit` is called where the batch begins a transaction.
        """
        if self.stopped is not None:
            raise ApiError(self.stopped)
        try:
            result = self.log.append(batch, self.leader_epoch, now_ms, origin, inspected, permit)
        except ApiError as error:
            self._not_appended(error)
            raise
        if not result.duplicate:
            self._unflushed_batches += 1
            if not self.log.config.acks_all_durable and origin is AppendOrigin.CLIENT:
                self._show_written()
        return result

    def _not_appended(self, error: ApiError) -> None:
        if self.log.failure is not None:
            self.fail(self.log.failure)
        elif isinstance(error.__cause__, CorruptSegmentError):
            self._tell("duplicate_refused", error.message, _DAMAGE_ADVICE)
        elif error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            advice = "free space on the disk that holds the data folder; it is tried again, nothing is lost"
            if self._tell("append_refused", error.message, advice_on(error.__cause__, advice)):
                self._when_troubled(self)

    def append_as_follower(self, batch: Buffer, now_ms: int) -> None:
        """Write one batch of the leader's. Raises ApiError; then nothing was written."""
        if not self.is_follower:
            raise ApiError(self.stopped or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            self.log.append(batch, self.leader_epoch, now_ms, AppendOrigin.LEADER)
        except ApiError as error:
            self._not_appended(error)
            raise
        self._unflushed_batches += 1

    def leader_committed_to(self, high_watermark: int) -> None:
        """The leader's high watermark: what is durable here and lies before it is committed."""
        self.progress.follower_flushed_to(self.leader_id, high_watermark)

    def leader_starts_at(self, offset: int) -> None:
        """Where the leader's log begins: what is committed here and lies before it, is deleted, now or with a
        later flush."""
        self._leader_start = offset
        offset = min(offset, self.progress.committed.offset)
        if offset > self.log.start_offset:
            self.log.delete_records_before(offset)

    def flushed_as_follower(self) -> asyncio.Future[None]:
        """Resolved once all that is appended now is durable here; raises ApiError when it cannot be, or where
        another epoch began meanwhile."""
        return self._settled(self.progress.flushed, self.log.end_offset, None, as_follower=True)

    def append_run(self, batches: Sequence[Buffer], now_ms: int) -> tuple[int, Written] | None:
        """Append those of a client's batches, from the first on, that one write can store; how many, and
        what `append_as_leader` returns, for all of them. None where that has to judge the first.

        Raises ApiError; then nothing was stored, and `append_as_leader` says why.
        """
        if self.stopped is not None:
            return None
        result = self.log.append_run(batches, self.leader_epoch, now_ms)
        if result is None:
            return None
        count = result.last_offset - result.base_offset + 1
        self._unflushed_batches += count
        if not self.log.config.acks_all_durable:
            self._show_written()
        return count, result

    def _show_written(self) -> None:
        """Let consumers read what is not durable yet, and see that a flush comes."""
        log = self.log
        if self.is_flush_due:
            return
        self.progress.show(log.end_offset)
        self.visible_bytes = log.appended_bytes
        if self._flush_timer is None and log.config.flush_ms < _NEVER:
            self._flush_within(log.config.flush_ms)
        self._tell_watchers()

    def append_as_coordinator(
        self, batch: Buffer, now_ms: int, *, may_wait: bool = False
    ) -> asyncio.Future[AppendResult]:
        """Write a batch of this broker's own: see AppendOrigin.COORDINATOR. With `may_wait` it becomes
        durable as `soon_durable` says.

        Its offsets are known at once, and given when it is committed. Raises ApiError where it is refused,
        then nothing was written; the future raises it where the batch was written and is not committed.
        """
        written = self.append_as_leader(batch, now_ms, origin=AppendOrigin.COORDINATOR)
        result: AppendResult = written  # type: ignore[assignment]
        settled = self._settled(self.progress.committed, result.last_offset + 1, result, may_wait=may_wait)
        if may_wait:
            self._flush_within(min(FLUSH_SOON_MS, self.log.config.flush_ms))
        return settled

    def write_marker(self, marker: TransactionMarker, now_ms: int) -> Written:
        """End a producer's transaction on this partition, with AppendOrigin.COORDINATOR.

        Raises ApiError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, or why this replica serves
        nothing. Where the producer has no open transaction here, its epoch counts all the same.
        """
        for watch in self._marker_watches or ():
            watch.has_seen_marker |= watch.producer_id == marker.producer_id
        if is_late(marker, self.log.producers.entry(marker.producer_id)):
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"the transaction of producer {marker.producer_id} that is open in epoch"
                f" {marker.producer_epoch} ends in a later one",
            )
        return self.append_as_leader(build_marker(marker, now_ms), now_ms, origin=AppendOrigin.COORDINATOR)

    def watch_markers(self, producer_id: int) -> MarkerWatch:
        """Watch for markers of a producer from now on, as long as the caller keeps the result."""
        watch = MarkerWatch(producer_id)
        if self._marker_watches is None:
            self._marker_watches = WeakSet()
        self._marker_watches.add(watch)
        return watch

    def append_marker(self, marker: TransactionMarker, now_ms: int) -> asyncio.Future[AppendResult]:
        """`write_marker`, with its offset given when it is committed; the future raises as in
        `append_as_coordinator`."""
        result: AppendResult = self.write_marker(marker, now_ms)  # type: ignore[assignment]
        return self._settled(self.progress.committed, result.last_offset + 1, result)

    def awaited(self, acks: int) -> Mark | None:
        """The mark that the answer for what was appended with `acks` waits for, or None if for none."""
        if acks == ACKS_ALL and self.log.config.acks_all_durable:
            return self.progress.committed
        return self.progress.flushed if acks != 0 and self.is_flush_due else None

    def when(self, mark: Mark, written: Written, waiter: CommitWaiter, slot: int) -> AppendResult:
        """The answer once `waiter` is called for `slot`: within this call if the mark has reached it."""
        result: AppendResult = written  # type: ignore[assignment]
        end_offset = result.last_offset + 1
        if end_offset <= mark.offset:
            waiter.partition_committed(slot)
        else:
            mark.waiting.append((end_offset, waiter, slot))
            self._group_commit.request(self)
        return result

    def soon_durable(self, written: Written) -> AppendResult:
        """The answer where it may be sent at once; durable `FLUSH_SOON_MS` later, or sooner if the topic's
        flush.ms or flush.messages says so. Only these two say when where acks.all.durable is false."""
        if self.is_flush_due:
            self._group_commit.request(self)
        elif self.log.config.acks_all_durable:
            self._flush_within(min(FLUSH_SOON_MS, self.log.config.flush_ms))
        result: AppendResult = written  # type: ignore[assignment]
        return result

    def committed(self, end_offset: int) -> asyncio.Future[None]:
        """Resolved once all before `end_offset` is committed; raises ApiError when it cannot be."""
        return self._settled(self.progress.committed, end_offset, None)

    def flushed(self) -> asyncio.Future[None]:
        """Resolved once all that is appended now is durable here; raises ApiError when it cannot be."""
        return self._settled(self.progress.flushed, self.log.end_offset, None)

    def _settled(
        self,
        mark: Mark,
        end_offset: int,
        result: _ResultT,
        *,
        may_wait: bool = False,
        as_follower: bool = False,
    ) -> asyncio.Future[_ResultT]:
        """Resolved with `result` once the mark is at `end_offset`; with `may_wait` another flush moves it."""
        future: asyncio.Future[_ResultT] = self._loop.create_future()
        if self.stopped is not None and not (as_follower and self.is_follower):
            future.set_exception(ApiError(self.stopped))
        elif end_offset <= mark.offset:
            future.set_result(result)
        else:
            mark.waiting.append((end_offset, _FutureWaiter(future, result), 0))
            if not may_wait:
                self._group_commit.request(self)
        return future

    @property
    def is_flush_due(self) -> bool:
        """Whether so many records are not durable that the topic wants a flush before the next answer."""
        log = self.log
        most = log.config.flush_messages
        # Mostly without the look-ups of the rest.
        return most < _NEVER and log.end_offset - log.flushed_end_offset >= most

    @property
    def is_behind_its_epoch(self) -> bool:
        """Whether clients may not read yet all that the log held when this leader's epoch began."""
        leadership = self.leadership
        return leadership is not None and self.progress.high_watermark < leadership.epoch_start

    @property
    def highest_read(self) -> int:
        """Up to where clients may have read, of this leader or of one before it."""
        leadership, high_watermark = self.leadership, self.progress.high_watermark
        return high_watermark if leadership is None else max(high_watermark, leadership.epoch_start)

    @property
    def is_behind(self) -> bool:
        """Whether records that were appended, and perhaps acknowledged with acks=1, are not visible yet."""
        return self.stopped is None and self.log.end_offset > self.progress.high_watermark

    @property
    def is_unflushed(self) -> bool:
        """Whether records that were appended are not durable yet."""
        return self.stopped is None and self.log.end_offset > self.log.flushed_end_offset

    def reconfigure(self, config: LogConfig) -> None:
        """Follow the topic's settings from now on. With followers acks=all means durable in any case: they
        have nothing else to tell."""
        if self.leadership is not None:
            config = replace(config, acks_all_durable=True)
        self.log.reconfigure(config)
        if self.leadership is not None:
            self._follow_in_sync_set()
        if config.acks_all_durable:
            self.progress.show(0)
            if self.is_unflushed:
                self._group_commit.request(self)

    def _flush_within(self, delay_ms: int) -> None:
        """Make what was appended durable, without a waiter."""
        if not delay_ms:
            self._group_commit.request(self)
        elif self._flush_timer is None:
            self._flush_timer = self._loop.call_later(delay_ms / 1000, self._flush_now)

    def _flush_now(self) -> None:
        self._flush_timer = None
        if not self._has_ended:
            self._group_commit.request(self)

    def begin_flush(self) -> FlushWork | None:
        """For GroupCommit: everything appended so far, as one piece of work."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self._has_ended:
            return None
        try:
            work = self.log.begin_flush()
        except InvariantError as error:
            self.fail(error)
            return None
        if work is not None:
            self._flushing_bytes = self.log.appended_bytes
            self._metrics.group_commit(self._unflushed_batches)
            self._unflushed_batches = 0
            if self.leadership is not None:
                self._tell_followers(self.leadership)
        return work

    def flush_finished(self, work: Work, error: BaseException | None) -> None:
        """For GroupCommit: the marks move, or the partition goes offline."""
        if self._has_ended:
            return
        if error is not None:
            if not is_out_of_handles(error):
                self.fail(error)
                return
            self.log.flush_undone(work)  # type: ignore[arg-type]
            self._tell("flush_waits_for_file_handles", str(error), HANDLES_ADVICE)
            self._flush_within(HANDLES_RETRY_MS)
            return
        log, progress = self.log, self.progress
        high_watermark = progress.high_watermark
        try:
            log.finish_flush(work)  # type: ignore[arg-type]
            progress.flushed_to(log.flushed_end_offset)
            progress.check(log.start_offset)
        except InvariantError as broken:
            self.fail(broken)
            return
        if self.leadership is not None:
            self._note_visible(high_watermark)
        elif progress.high_watermark > high_watermark:
            self.visible_bytes = self._flushing_bytes
        if self._leader_start > log.start_offset and self.is_follower:
            self.leader_starts_at(self._leader_start)
        self._has_moved = True

    def _tell_followers(self, leadership: Leadership) -> None:
        """They may fetch what is written, so that they flush it while this replica does."""
        leadership.note_written(self.log.end_offset, self.log.appended_bytes)
        for watcher in list(self._append_watchers):
            watcher.replica_changed(self)

    def _note_visible(self, before: int) -> None:
        """The high watermark was `before`, and may be higher."""
        high_watermark = self.progress.high_watermark
        if high_watermark <= before:
            return
        if self.leadership is None:
            self.visible_bytes = self.log.appended_bytes
        else:
            self.visible_bytes = self.leadership.visible_bytes(self.visible_bytes, high_watermark)

    def fetched_by(
        self, broker_id: int, replica_epoch: int, offset: int, start_offset: int, asked_after_ms: float
    ) -> bool:
        """A follower holds all from `start_offset` to `offset` durably, and asked after that moment of the
        loop's clock; whether it is to join the in-sync set."""
        leadership, log, progress = self.leadership, self.log, self.progress
        if leadership is None or not log.start_offset <= offset <= log.end_offset:
            return False
        now_ms = self._loop.time() * 1000
        end_offset = log.end_offset
        leadership.fetched(broker_id, replica_epoch, offset, start_offset, end_offset, now_ms, asked_after_ms)
        committed, high_watermark = progress.committed.offset, progress.high_watermark
        progress.follower_flushed_to(broker_id, offset)
        self._progressed(committed, high_watermark)
        return leadership.may_join(broker_id, progress.high_watermark)

    def _follow_in_sync_set(self) -> None:
        leadership, progress = self.leadership, self.progress
        committed, high_watermark = progress.committed.offset, progress.high_watermark
        if leadership is None:
            progress.set_in_sync((), (), 1)
        else:
            leadership.tell(progress, self.least_in_sync)
        self._progressed(committed, high_watermark)

    def _progressed(self, committed: int, high_watermark: int) -> None:
        """Answer those whose marks have moved since, by what followers hold."""
        progress = self.progress
        if (progress.committed.offset, progress.high_watermark) == (committed, high_watermark):
            return
        try:
            progress.check(self.log.start_offset)
        except InvariantError as broken:
            self.fail(broken)
            return
        self._note_visible(high_watermark)
        progress.answer()
        self._tell_watchers()

    @property
    def least_in_sync(self) -> int:
        """How many replicas have to be in sync: min.insync.replicas, or all if there are fewer."""
        if self.leadership is None:
            return 1
        return min(self.log.config.min_insync_replicas, len(self.leadership.assigned.replicas))

    def begin_joining(self) -> dict[int, int]:
        """As `Leadership.begin_joining`; from now on, what is committed needs them too."""
        if self.leadership is None:
            return {}
        joining = self.leadership.begin_joining(self.progress.high_watermark)
        self._follow_in_sync_set()
        return joining

    def end_joining(
        self, leadership: Leadership, joined: Iterable[int], assigned: PartitionAssignment
    ) -> None:
        """As `Leadership.end_joining`, of the leadership in which they began to. `assigned` is what the
        catalog says now; where another epoch has begun, they count until this replica hears of it."""
        if self.leadership is leadership and assigned.leader_epoch == self.leader_epoch:
            leadership.end_joining(joined)
            self.set_assigned(assigned)

    def check_follower(self, broker_id: int) -> None:
        """Raise ApiError unless this replica leads, and that broker has another one."""
        if self.stopped is not None:
            raise ApiError(self.stopped)
        if self.leadership is None or broker_id not in self.leadership.assigned.replicas:
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"broker {broker_id} has no replica of {self.topic}-{self.partition} in epoch"
                f" {self.leader_epoch}",
            )

    def check_not_replaced(self, within_ms: float) -> None:
        """Raise ApiError where another broker may have been elected longer than `within_ms` ago."""
        leadership, now_ms = self.leadership, self._loop.time() * 1000
        if leadership is not None and leadership.may_have_ended(now_ms - within_ms):
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "this broker cannot reach the cluster's store, nor each replica that may lead in its place",
            )

    def tell_waiting(self) -> None:
        """For GroupCommit: answer those whose marks have moved."""
        if self._has_moved:
            self._has_moved = False
            self.progress.answer()
            self._tell_watchers()

    def fail(self, error: BaseException) -> None:
        """Take the partition offline: its state in memory can no longer be trusted."""
        known = isinstance(error, OSError | InvariantError)
        logger.error(
            "partition_offline",
            topic=self.topic,
            partition=self.partition,
            error=str(error) if known else repr(error),
            durable_end_offset=self.log.flushed_end_offset,
            end_offset=self.log.end_offset,
            advice=_DISK_ADVICE if isinstance(error, OSError) else _FAULT_ADVICE,
            **({} if known else {"exc_info": error}),
        )
        self._metrics.partition_failed()
        self.log.mark_failed(error)
        self.stop(ErrorCode.KAFKA_STORAGE_ERROR)
        self._when_troubled(self)

    def lead(self, assigned: PartitionAssignment) -> None:
        """Serve as the leader of this epoch, also where another broker led before."""
        if not self._has_ended:
            self.leader_epoch = assigned.leader_epoch
            self.leadership = self.stopped = None
            self.progress.forget_followers()
            self.set_assigned(assigned)
            if self.is_unflushed:
                self._group_commit.request(self)
            self._tell_watchers()

    def set_assigned(self, assigned: PartitionAssignment) -> None:
        """What the catalog says of the replicas, within the same epoch. What it said before it said what is
        known here is left out."""
        leadership = self.leadership
        if self.stopped is not None or (
            leadership is not None and assigned.partition_epoch < leadership.assigned.partition_epoch
        ):
            return
        self.in_sync_count = len(assigned.isr)
        if leadership is not None:
            leadership.assigned = assigned
        elif len(assigned.replicas) > 1:
            from tidelog.broker.replicas.leadership import Leadership

            self.leadership = Leadership(assigned, self.log.end_offset, self._loop.time() * 1000)
            if not self.log.config.acks_all_durable:
                self.reconfigure(self.log.config)
        self._follow_in_sync_set()

    def follow(self, leader_epoch: int, leader_id: int) -> None:
        """Another broker, or none (NO_LEADER), leads in this epoch: serve nothing, and make what is here
        durable. What the leader calls committed is committed here."""
        if not self._has_ended:
            self.leader_epoch, self.leader_id = leader_epoch, leader_id
            self._refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.progress.forget_followers()
            self.progress.set_in_sync((leader_id,), (), 0)
            if self.log.end_offset > self.log.flushed_end_offset:
                self._group_commit.request(self)

    def stop(self, code: ErrorCode) -> None:
        """Serve nothing more, ever: see `_refuse`."""
        if not self._has_ended:
            self._has_ended = True
            self._refuse(code)

    def _refuse(self, code: ErrorCode) -> None:
        """Waiters and later calls get `code`, waiting fetches wake up.

        Waiters are called in the next step of the loop, because this step may be in the middle of a request.
        """
        self.stopped = code
        self.leadership = None
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if waiting := self.progress.take_waiting():
            self._loop.call_soon(_tell_failed, waiting, code)
        self._tell_watchers()
        for watcher in list(self._append_watchers):
            watcher.replica_changed(self)

    def watch(self, watcher: Watcher, isolation_level: int = 0) -> None:
        """Call `watcher` whenever a reader of this level may read more, or the replica stops, until
        `unwatch`."""
        if isolation_level == READ_WRITTEN:
            self._append_watchers[watcher] = None
        else:
            self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)
        self._append_watchers.pop(watcher, None)

    def _tell_watchers(self) -> None:
        if self._watchers:
            for watcher in list(self._watchers):
                watcher.replica_changed(self)

    def delete_records_before(self, offset: int) -> MovedStart:
        """Let the log begin at `offset`. Raises ApiError."""
        return MovedStart(self.log.delete_records_before(offset))

    def check_leader_epoch(self, leader_epoch: int) -> None:
        """Raise ApiError when the client knows another leader epoch than this replica (KIP-320)."""
        if leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        if leader_epoch < self.leader_epoch:
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"leader epoch {leader_epoch} is older than the current {self.leader_epoch}",
            )
        raise ApiError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"leader epoch {leader_epoch} is newer than {self.leader_epoch}, the newest known here",
        )

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the newest leader epoch up to `epoch` (KIP-320), or (-1, -1)."""
        return self.log.end_offset_for_epoch(epoch, self.leader_epoch)

    def read(self, wanted: Read) -> ReadResult:
        """As `ReadableLog.read`; the upper offset is one of `ends`.

        Raises ApiError (OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR), and ColdRead.
        """
        if self.stopped is not None:
            raise ApiError(self.stopped)
        try:
            return self.log.read(wanted)
        except ApiError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                self._tell("read_failed", error.message, advice_on(error.__cause__, _DAMAGE_ADVICE))
            raise

    def aborted_transactions(self, wanted: Read, found: ReadResult) -> list[tuple[int, int]]:
        """(producer id, first offset) of each aborted transaction with records in what was found.

        Raises ApiError and ColdRead as `read`.
        """
        if not found.records:
            return []
        return self.log.aborted_transactions(wanted.offset, found.next_offset, nowait=wanted.nowait)

    def _tell(self, event: str, error: str | None, advice: str) -> bool:
        """Log a disk problem once per `TOLD_EVERY_MS`, because clients repeat requests at once; whether it
        was logged. In any thread."""
        now = time.monotonic()
        if now < self._tell_again_at:
            return False
        self._tell_again_at = now + TOLD_EVERY_MS / 1000
        logger.error(event, topic=self.topic, partition=self.partition, error=error, advice=advice)
        return True
