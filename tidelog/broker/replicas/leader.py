"""What a replica does while it leads: its writes, what an answer waits for, and the fetches of its followers.

An answer waits for `progress.committed` with acks=all, for a marker and for a coordinator. It waits for
`flushed`, which needs no other brokers, if flush.messages requires a flush, and if a request for the end of
the log, or a read at its end, has to find every record that was acknowledged. With acks=1 and acks=0 the data
is flushed within `FLUSH_SOON_MS` or flush.ms. The fetches of the members of the in-sync set move the
committed end, by the rules of `leadership` and `progress`; with one replica, nothing of that changes a mark.

Invariant: appends happen synchronously in the order of arrival; five requests in flight depend on it.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NewType, Protocol
from weakref import WeakSet

from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.replicas.group_commit import report_unanswered
from tidelog.broker.replicas.progress import CommitWaiter, Mark
from tidelog.broker.replicas.replica_log import ReplicaLog
from tidelog.broker.storage.batch_inspection import Effort
from tidelog.broker.storage.batch_rules import Permit, may_not_begin
from tidelog.broker.storage.invariants import InvariantError
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import AppendOrigin, AppendResult
from tidelog.broker.storage.producer_state import is_late
from tidelog.broker.storage.recompression import Inspected
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import TransactionMarker, build_marker
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.broker.replicas.leadership import Leadership

ACKS_ALL = -1
FLUSH_SOON_MS = 5
_NEVER = (1 << 63) - 1
"""The flush.ms and the flush.messages that ask for no flush."""


class Written(Protocol):
    """A batch that the log holds, durable or not. `when` and `soon_durable` give what to answer."""

    @property
    def duplicate(self) -> bool: ...


MovedStart = NewType("MovedStart", object)
"""Where DeleteRecords moved the start of a log. `Partitions.save_start_offsets` gives what to answer."""


class MarkerWatch:
    """Whether a marker of one producer was written on a partition since this watch began."""

    __slots__ = ("__weakref__", "has_seen_marker", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.has_seen_marker = False


class Leader(ReplicaLog):
    """What one replica does while it leads."""

    _marker_watches: WeakSet[MarkerWatch] | None = None

    @property
    def acks_all_durable(self) -> bool:
        """Whether acks=all means durable: always with followers, which report nothing else."""
        return self.log.config.acks_all_durable or self.leadership is not None

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
            if not self.acks_all_durable and origin is AppendOrigin.CLIENT:
                self._show_written()
        return result

    def append_run(self, batches: Sequence[Buffer], now_ms: int) -> tuple[int, Written] | None:
        """Append those of a client's batches, from the first on, that one write can store; how many, and
        what `append_as_leader` returns, for all of them. None if that has to judge the first.

        Raises ApiError; then nothing was stored, and `append_as_leader` says why.
        """
        if self.stopped is not None:
            return None
        result = self.log.append_run(batches, self.leader_epoch, now_ms)
        if result is None:
            return None
        count = result.last_offset - result.base_offset + 1
        self._unflushed_batches += count
        if not self.acks_all_durable:
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

        Its offsets are known at once, and given when it is committed. Raises ApiError if it is refused,
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
        nothing. If the producer has no open transaction here, its epoch is still stored.
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
        if acks == ACKS_ALL and self.acks_all_durable:
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
        elif self.acks_all_durable:
            self._flush_within(min(FLUSH_SOON_MS, self.log.config.flush_ms))
        result: AppendResult = written  # type: ignore[assignment]
        return result

    @property
    def is_flush_due(self) -> bool:
        """Whether the number of records that are not durable requires a flush before the next answer."""
        log = self.log
        most = log.config.flush_messages
        # Mostly without the look-ups of the rest.
        return most < _NEVER and log.end_offset - log.flushed_end_offset >= most

    def delete_records_before(self, offset: int) -> MovedStart:
        """Let the log begin at `offset`. Raises ApiError."""
        moved = self.log.delete_records_before(offset)
        self._tell_append_watchers()
        return MovedStart(moved)

    # Followers

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
    def least_in_sync(self) -> int:
        """How many replicas have to be in sync: see `cluster.in_sync.needed`."""
        leadership = self.leadership
        return 1 if leadership is None else leadership.needed(self.log.config.min_insync_replicas)

    def has_in_sync(self, broker_id: int) -> bool:
        return self.leadership is not None and broker_id in self.leadership.assigned.isr

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
        """As `Leadership.end_joining`, of the leadership in which they began to. `assigned` is the current
        state in the catalog; if another epoch has begun, they count until this replica learns of it."""
        if self.leadership is leadership and assigned.leader_epoch == self.leader_epoch:
            leadership.end_joining(joined)
            self.set_assigned(assigned)

    def set_assigned(self, assigned: PartitionAssignment) -> None:
        """The state of the replicas in the catalog, within the same epoch. What it said before it said what
        is known here is left out."""
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
        if self.leadership is not None:
            self.leadership.is_noted = self._when_noted(partial(self._noted, self.leadership, assigned))
        self._follow_in_sync_set()

    def _noted(self, leadership: Leadership, assigned: PartitionAssignment) -> None:
        """The data folder knows a state in the catalog; a later one has its own call."""
        if self.leadership is leadership and leadership.assigned is assigned:
            leadership.is_noted = True
            self._follow_in_sync_set()

    def reconfigure(self, config: LogConfig) -> None:
        """Follow the topic's settings from now on."""
        self.log.reconfigure(config)
        if self.leadership is not None:
            self._follow_in_sync_set()
        if self.acks_all_durable:
            self.progress.show(0)
            if self.is_unflushed:
                self._group_commit.request(self)

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
        report_unanswered(self._tell_all_waiting())

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
        """Raise ApiError if another broker may have been elected longer than `within_ms` ago."""
        leadership, now_ms = self.leadership, self._loop.time() * 1000
        if leadership is not None and leadership.may_have_ended(now_ms - within_ms):
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "this broker cannot reach the cluster's store, or gives up the partition, and a replica that"
                " may become the leader has not fetched lately",
            )
