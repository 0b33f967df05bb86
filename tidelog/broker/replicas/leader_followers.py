"""What a replica does with its followers while it leads: their progress moves the committed end.

Owns how the marks follow the in-sync set and the fetches of its members, and what a follower may ask. The
rules are those of `leadership` and `progress`. A partition with one replica has no followers: then nothing
here changes a mark.

Event loop only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.replicas.leader_writes import LeaderWrites
from tidelog.broker.storage.invariants import InvariantError
from tidelog.broker.storage.log_config import LogConfig
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.replicas.leadership import Leadership


class LeaderFollowers(LeaderWrites):
    """Takes the fetches of one replica's followers while it leads; their progress moves the committed end."""

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
        """Whether a follower is in the in-sync set."""
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
        progress.answer()
        self._tell_watchers()

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
                "this broker cannot reach the cluster's store, nor each replica that may become the leader",
            )
