"""What a replica writes and deletes while it follows its leader.

Invariant: nothing is deleted that is not committed here.

Event loop only.
"""

import asyncio

from tidelog.broker.cluster.catalog import NO_LEADER
from tidelog.broker.replicas.replica_log import ReplicaLog
from tidelog.broker.storage.partition_log import AppendOrigin
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import Buffer


class FollowerWrites(ReplicaLog):
    """Appends to one replica's log, and deletes from it, while it follows its leader."""

    leader_id: int = NO_LEADER
    """Whom this replica follows, if it does."""
    may_lose_committed = False
    """Whether a broker led that may lack what was committed, because an operator chose it."""
    _leader_start = 0

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
