"""What the leader of a partition knows of its followers, and which of them are in sync.

Owns both rules. A follower is late when it did not have all of the leader's log for `lag_ms`: it had all of
it at the time of its fetch from the leader's end, or at the time of the fetch before, if it now fetches from
the end of the log at that time. A follower outside may join the in-sync set once it holds all that clients
may read, and all that was written before the leader's epoch. From the high watermark on, its fetch offset is
its durable end (`Replica.fetch_offset`). A follower that fetches in an epoch did not know of a later one when
it asked, so it did not lead in one.

Invariants: a restarted follower joins only by fetches since its start; a request may have waited here while
this broker was stopped, so only the answer before it gives its earliest time.

Pure: the time is passed in, in milliseconds of one clock. Source: Kafka's Replica.updateFetchStateOrThrow,
Partition.isFollowerOutOfSync and isFollowerInSync; KIP-903.
"""

import math
from collections.abc import Iterable


class _Follower:
    __slots__ = (
        "asked_ms", "caught_up_ms", "end_offset", "fetched_ms", "leader_end_offset", "replica_epoch",
    )  # fmt: skip

    def __init__(self, caught_up_ms: float) -> None:
        self.replica_epoch = -1
        self.end_offset = -1
        self.asked_ms = -math.inf
        """It fetched in this epoch then, or later."""
        self.caught_up_ms = self.fetched_ms = caught_up_ms
        self.leader_end_offset = 1 << 63
        """The end of the leader's log at the last fetch."""


class Followers:
    """Tracks the followers of one partition, while this broker leads it in one epoch."""

    __slots__ = ("_began_ms", "_epoch_start", "_followers")

    def __init__(self, epoch_start: int, now_ms: float) -> None:
        """The epoch began at the offset `epoch_start`; who is in sync counts as having all of it now."""
        self._epoch_start = epoch_start
        self._began_ms = now_ms
        self._followers: dict[int, _Follower] = {}

    def fetched(
        self,
        broker_id: int,
        replica_epoch: int,
        offset: int,
        leader_end_offset: int,
        now_ms: float,
        asked_after_ms: float = -math.inf,
    ) -> None:
        """A follower that was started as `replica_epoch` says holds all before `offset` durably. It
        asked after `asked_after_ms`."""
        follower = self._followers.get(broker_id)
        if follower is None:
            follower = self._followers[broker_id] = _Follower(self._began_ms)
        follower.replica_epoch, follower.end_offset = replica_epoch, offset
        follower.asked_ms = max(follower.asked_ms, asked_after_ms)
        if offset >= leader_end_offset:
            follower.caught_up_ms = now_ms
        elif offset >= follower.leader_end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.leader_end_offset, follower.fetched_ms = leader_end_offset, now_ms

    def end_offset(self, broker_id: int) -> int:
        """The follower holds all before it durably; -1 if it did not fetch in this epoch."""
        follower = self._followers.get(broker_id)
        return -1 if follower is None else follower.end_offset

    def late(
        self, in_sync: Iterable[int], leader_end_offset: int, now_ms: float, lag_ms: float
    ) -> frozenset[int]:
        """Those of these followers that are to leave the in-sync set."""
        return frozenset(
            broker_id for broker_id in in_sync if self._is_late(broker_id, leader_end_offset, now_ms, lag_ms)
        )

    def _is_late(self, broker_id: int, leader_end_offset: int, now_ms: float, lag_ms: float) -> bool:
        follower = self._followers.get(broker_id)
        if follower is None:
            return now_ms - self._began_ms > lag_ms
        return follower.end_offset != leader_end_offset and now_ms - follower.caught_up_ms > lag_ms

    def have_asked_since(self, broker_ids: Iterable[int], since_ms: float) -> bool:
        """Whether each of these followers fetched in this epoch after `since_ms`, for certain."""
        known = (self._followers.get(each) for each in broker_ids)
        return all(follower is not None and follower.asked_ms >= since_ms for follower in known)

    def may_join(self, broker_id: int, high_watermark: int) -> bool:
        """Whether a follower has what each member of the in-sync set has to have."""
        follower = self._followers.get(broker_id)
        return follower is not None and follower.end_offset >= max(high_watermark, self._epoch_start)

    def replica_epoch(self, broker_id: int) -> int:
        """The start of a follower that fetched."""
        return self._followers[broker_id].replica_epoch
