"""What a replica writes while it leads, and which mark an answer waits for.

An answer waits for `progress.committed` with acks=all, for a marker and for a coordinator. It waits for
`flushed`, which needs no other brokers, if flush.messages requires a flush, and if a request for the end of
the log, or a read at its end, has to find every record that was acknowledged. With acks=1 and acks=0 the data
is flushed within `FLUSH_SOON_MS` or flush.ms.

Invariant: appends happen synchronously in the order of arrival; five requests in flight depend on it.

Event loop only.
"""

import asyncio
from collections.abc import Sequence
from typing import NewType, Protocol
from weakref import WeakSet

from tidelog.broker.replicas.progress import CommitWaiter, Mark
from tidelog.broker.replicas.replica_log import ReplicaLog
from tidelog.broker.storage.batch_inspection import Effort
from tidelog.broker.storage.batch_rules import Permit, may_not_begin
from tidelog.broker.storage.partition_log import AppendOrigin, AppendResult
from tidelog.broker.storage.producer_state import is_late
from tidelog.broker.storage.recompression import Inspected
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import TransactionMarker, build_marker
from tidelog.protocol.types import Buffer

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


class LeaderWrites(ReplicaLog):
    """Appends to one replica's log while it leads, and tells which mark an answer waits for."""

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
