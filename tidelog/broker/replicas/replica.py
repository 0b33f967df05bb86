"""This broker's copy of a partition: its role, and what it does in it.

Owns the change of the role. What each role does is in `leader_writes` and `leader_followers`, or in
`follower_writes`; what both need, in `replica_log`.

Event loop only; `read` alone may also run in a thread.
"""

from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.replicas.follower_writes import FollowerWrites
from tidelog.broker.replicas.leader_followers import LeaderFollowers
from tidelog.protocol.errors import ErrorCode


class Replica(LeaderFollowers, FollowerWrites):
    """The copy of one partition. It is the leader's until `follow` says that another broker leads it."""

    def lead(self, assigned: PartitionAssignment) -> None:
        """Serve as the leader of this epoch, also if another broker led before."""
        if not self._has_ended:
            self.leader_epoch = assigned.leader_epoch
            self.leadership = self.stopped = None
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
