"""The log of a partition as this broker holds it, whatever its role: marks, flushes, who waits and watches.

Owns when the log is flushed, who waits for which mark of `progress`, who is notified of new records, and that
a failed log serves nothing. It returns its offsets only for an answer that waits for a mark, or that promises
no more than the topic does.

Invariants:
- after a failed flush or write the partition is offline: every waiter and every later call gets
  KAFKA_STORAGE_ERROR until the broker is restarted. It is never tried again;
- a flush without a free file handle has not failed: its waiters continue to wait, and it is tried again every
  `HANDLES_RETRY_MS` until a handle is free.

Everything runs on the event loop; `read` alone may also run in a thread.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar
from uuid import UUID

import structlog

from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.replicas.group_commit import Answering, GroupCommit, Work, report_unanswered
from tidelog.broker.replicas.progress import Mark, Progress, Waiting
from tidelog.broker.storage.disk import HANDLES_ADVICE, advice_on, is_out_of_handles
from tidelog.broker.storage.integrity import CorruptSegmentError
from tidelog.broker.storage.invariants import InvariantError
from tidelog.broker.storage.log_types import READ_COMMITTED, READ_WRITTEN, LogEnds
from tidelog.broker.storage.partition_log import FlushWork, PartitionLog, Read, ReadResult
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from tidelog.broker.replicas.leadership import Leadership

HANDLES_RETRY_MS = 100
TOLD_EVERY_MS = 10_000
_DAMAGE_ADVICE = (
    "check the disk that holds the data folder; `tidelog log verify` shows what is damaged, DeleteRecords"
    " moves the start of the log past it"
)
_FLUSHES_AWAITED_AT_ONCE = 100
_ResultT = TypeVar("_ResultT")
_ReplicaT_contra = TypeVar("_ReplicaT_contra", contravariant=True)
_DISK_ADVICE = (
    "check the disk that holds the data folder, then restart the broker; nothing that was acknowledged with"
    " acks=all is lost, unless acks.all.durable is false"
)
_FAULT_ADVICE = (
    "this is a fault of the broker: report this event, and restart the broker, which reads the log again;"
    " `tidelog log verify` shows whether anything is damaged"
)
logger = structlog.get_logger(__name__)


class Watcher(Protocol[_ReplicaT_contra]):
    """Called on the loop when more can be read, or when the replica stops."""

    def replica_changed(self, replica: _ReplicaT_contra) -> None: ...


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


async def all_flushed(replicas: Iterable[ReplicaLog]) -> None:
    """Return once these replicas hold durably what they hold now, whatever their followers lack; one that
    fails does not delay the others."""
    unflushed = (replica for replica in replicas if replica.is_unflushed)
    while flushes := [replica.flushed() for replica in islice(unflushed, _FLUSHES_AWAITED_AT_ONCE)]:
        await asyncio.gather(*flushes, return_exceptions=True)


def _tell_failed(waiters: Iterable[Waiting], code: ErrorCode) -> None:
    for _, waiter, slot in waiters:
        try:
            waiter.partition_failed(slot, code)
        except Exception as error:
            report_unanswered([error])


class ReplicaLog:
    """What each role needs. `Replica` adds what one role alone does."""

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
        when_troubled: Callable[[Self], None] = lambda _: None,
        when_noted: Callable[[Callable[[], None]], bool] = lambda _: True,
    ) -> None:
        """`committed_end`: all before it is known to be committed; None if this replica alone decides.
        `when_troubled` is called where the log failed, or has no space. `when_noted`: as that of
        `CatalogCheckpoint`."""
        self.topic = log.topic
        self.topic_id = topic_id
        self.partition = log.partition
        self.log = log
        self.leader_epoch = leader_epoch
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
        self._when_noted = when_noted
        self._flush_began = math.inf
        self._slowest_flush_seconds = 0.0
        self._group_commit = group_commit
        self._metrics = metrics
        self._loop = loop
        self.leadership: Leadership | None = None
        """Of a partition with followers, while this replica leads it."""
        self.is_given_up = False
        """Whether another broker may lead it already, because this one has asked for an election."""
        self.in_sync_count = 1
        """How many replicas are in sync, as the catalog says."""
        self._watchers: dict[Watcher[Self], None] = {}
        self._append_watchers: dict[Watcher[Self], None] = {}
        self._unflushed_batches = 0
        self._flushing_bytes = 0
        self._tell_again_at = 0.0
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

    @property
    def is_behind(self) -> bool:
        """Whether records that were appended, and perhaps acknowledged with acks=1, are not visible yet."""
        return self.stopped is None and self.log.end_offset > self.progress.high_watermark

    @property
    def is_unflushed(self) -> bool:
        """Whether records that were appended are not durable yet."""
        return self.stopped is None and self.log.end_offset > self.log.flushed_end_offset

    def _not_appended(self: Self, error: ApiError) -> None:
        if self.log.failure is not None:
            self.fail(self.log.failure)
        elif isinstance(error.__cause__, CorruptSegmentError):
            self._tell("duplicate_refused", error.message, _DAMAGE_ADVICE)
        elif isinstance(error.__cause__, TimeoutError):
            return  # Remote storage has not answered, which its own task reports.
        elif error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            advice = "free space on the disk that holds the data folder; it is tried again, nothing is lost"
            if self._tell("append_refused", error.message, advice_on(error.__cause__, advice)):
                self._when_troubled(self)

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
        appended_bytes = self.log.appended_bytes
        try:
            work = self.log.begin_flush()
        except Exception as error:
            self.fail(error)
            return None
        if work is not None:
            self._flush_began = self._loop.time()
            self._flushing_bytes = appended_bytes
            self._metrics.group_commit(self._unflushed_batches)
            self._unflushed_batches = 0
            if self.leadership is not None:
                self._tell_followers(self.leadership)
        return work

    def flush_finished(self, work: Work, error: BaseException | None) -> Answering | None:
        """For GroupCommit: the marks move, or the partition goes offline."""
        self._slowest_flush_seconds = self._flush_seconds()
        self._flush_began = math.inf
        if self._has_ended:
            return None
        if error is not None:
            if not is_out_of_handles(error):
                self.fail(error)
                return None
            self.log.flush_undone(work)  # type: ignore[arg-type]
            self._tell("flush_waits_for_file_handles", str(error), HANDLES_ADVICE)
            self._flush_within(HANDLES_RETRY_MS)
            return None
        log, progress = self.log, self.progress
        high_watermark = progress.high_watermark
        try:
            log.finish_flush(work)  # type: ignore[arg-type]
            progress.flushed_to(log.flushed_end_offset)
            progress.check(log.start_offset)
        except Exception as broken:
            self.fail(broken)
            return None
        if self.leadership is not None:
            self._note_visible(high_watermark)
        elif progress.high_watermark > high_watermark:
            self.visible_bytes = max(self.visible_bytes + 1, self._flushing_bytes)
        if self.stopped is not None:
            self._flushed_as_follower()
        return self._tell_all_waiting if self._watchers else progress.answer

    def slowest_flush_seconds(self) -> float:
        """How long the slowest flush took since the last call, or the one in progress takes."""
        slowest, self._slowest_flush_seconds = self._flush_seconds(), 0.0
        return slowest

    def _flush_seconds(self) -> float:
        return max(self._slowest_flush_seconds, self._loop.time() - self._flush_began)

    def _flushed_as_follower(self) -> None:
        """For `Replica`: more is durable here."""

    def _tell_followers(self: Self, leadership: Leadership) -> None:
        """They may fetch what is written, so that they flush it while this replica does."""
        leadership.note_written(self.log.end_offset, self.log.appended_bytes)
        self._tell_append_watchers()

    def _note_visible(self, before: int) -> None:
        """The high watermark was `before`, and may be higher."""
        high_watermark = self.progress.high_watermark
        if high_watermark <= before:
            return
        if self.leadership is None:
            self.visible_bytes = self.log.appended_bytes
        else:
            self.visible_bytes = self.leadership.visible_bytes(self.visible_bytes, high_watermark)

    def _tell_all_waiting(self) -> list[Exception]:
        """Answer those whose marks have moved, and let readers look."""
        errors = self.progress.answer()
        self._tell_watchers()
        return errors

    def fail(self: Self, error: BaseException) -> None:
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

    def stop(self, code: ErrorCode) -> None:
        """Serve nothing more, ever: see `_refuse`."""
        if not self._has_ended:
            self._has_ended = True
            self._refuse(code)

    def _refuse(self: Self, code: ErrorCode) -> None:
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
        self._tell_append_watchers()

    def watch(self, watcher: Watcher[Self], isolation_level: int = 0) -> None:
        """Call `watcher` whenever a reader of this level may read more, or the replica stops, or leads in
        another epoch, until `unwatch`."""
        if isolation_level == READ_WRITTEN:
            self._append_watchers[watcher] = None
        else:
            self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher[Self]) -> None:
        self._watchers.pop(watcher, None)
        self._append_watchers.pop(watcher, None)

    def _tell_append_watchers(self: Self) -> None:
        self._tell_all(self._append_watchers)

    def _tell_watchers(self: Self) -> None:
        self._tell_all(self._watchers)

    def _tell_all(self: Self, watchers: Iterable[Watcher[Self]]) -> None:
        for watcher in list(watchers):
            try:
                watcher.replica_changed(self)
            except Exception as error:
                report_unanswered([error])

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

    def read(self, wanted: Read, *, may_follow: bool = False) -> ReadResult:
        """As `ReadableLog.read`; the upper offset is one of `ends`. With `may_follow` also if it follows.

        Raises ApiError (OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR), and ColdRead.
        """
        if self.stopped is not None and not (may_follow and self.is_follower):
            raise ApiError(self.stopped)
        try:
            return self.log.read(wanted)
        except ApiError as error:
            if error.code not in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE):
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
