"""This broker's copy of a partition: its role, and what it does while it follows its leader.

Owns the change of the role. `leader` has what it does while it leads, `replica_log` what both roles need.
Invariant: a follower deletes nothing that is not committed here.

Event loop only; `read` alone may also run in a thread.
"""

import asyncio

from tidelog.broker.cluster.catalog import NO_LEADER, PartitionAssignment
from tidelog.broker.replicas.leader import Leader
from tidelog.broker.storage.partition_log import AppendOrigin
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import Buffer


class Replica(Leader):
    """The copy of one partition. It is the leader's until `follow` says that another broker leads it."""

    leader_id: int = NO_LEADER
    """Whom this replica follows, if it does."""
    may_lose_committed = False
    """Whether a broker led that may lack what was committed, because an operator chose it."""
    _leader_start = 0

    def lead(self, assigned: PartitionAssignment) -> None:
        """Serve as the leader of this epoch, also if another broker led before."""
        if not self._has_ended:
            self.leader_epoch = assigned.leader_epoch
            self.leadership = self.stopped = None
            self.is_given_up = False
            self.progress.forget_followers()
            self.set_assigned(assigned)
            if self.is_unflushed:
                self._group_commit.request(self)
            self._tell_watchers()
            self._tell_append_watchers()

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

    def kept(self, leader_epoch: int) -> None:
        """This broker still led after it had given up the partition in this epoch."""
        if self.leader_epoch == leader_epoch:
            self.is_given_up = False

    @property
    def is_unled(self) -> bool:
        """Whether no broker leads."""
        return self.is_follower and self.leader_id == NO_LEADER

    @property
    def durable_end(self) -> tuple[int, int]:
        """The leader epoch of the last record, and the log's end. Raises ApiError until that is durable."""
        end_offset = self.log.end_offset
        if end_offset > self.log.flushed_end_offset:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return self.log.leader_epoch_for(end_offset - 1), end_offset

    @property
    def fetch_offset(self) -> int:
        """From where to fetch: the durable end, which the leader may count. What is only written counts as
        well while the leader, in this epoch, has committed more than that: then this replica is not in sync,
        and no offset before the high watermark lets it join."""
        log = self.log
        end_offset = log.end_offset
        return end_offset if end_offset < self.progress.others_end else log.flushed_end_offset

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
        before = self.progress.high_watermark
        self.progress.follower_flushed_to(self.leader_id, high_watermark)
        if self._watchers and self.progress.high_watermark > before:
            self.visible_bytes += 1
            self._tell_watchers()

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

    def _flushed_as_follower(self) -> None:
        if self._leader_start > self.log.start_offset:
            self.leader_starts_at(self._leader_start)
