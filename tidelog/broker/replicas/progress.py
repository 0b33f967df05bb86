"""The progress of the replicas of a partition, and its effects: what is committed, what clients may read, the
last stable offset, and which requests are answered.

Owns these rules, as the leader applies them. An offset is committed once this replica and each other member
of the maximal in-sync set (those in the catalog, and those that are being added) hold all before it durably,
while the catalog's set has at least min.insync.replicas members. Clients may read what is committed; where
acks.all.durable is false, also what this replica has only written and those members hold.

Invariants: none of these offsets falls, however the set changes; only the high watermark passes the committed
end, so no marker and no coordinator's answer depends on data that a crash could remove; a waiter for an
offset is called once, after all earlier waiters for the same mark.

Pure. Source: KIP-966, and Kafka's Partition.maybeIncrementLeaderHW.
"""

from collections import deque
from collections.abc import Collection
from typing import Final, Protocol

from tidelog.broker.storage.invariants import broken_last_stable
from tidelog.broker.storage.open_transactions import OpenTransactions
from tidelog.protocol.errors import ErrorCode

_UNLIMITED: Final = 1 << 63


class CommitWaiter(Protocol):
    """Waits until a mark has reached its batches; called once, on the loop, per offset that it waits for."""

    def partition_committed(self, slot: int) -> None: ...

    def partition_failed(self, slot: int, code: ErrorCode) -> None: ...


Waiting = tuple[int, CommitWaiter, int]
"""The offset that is waited for, who waits, and the slot that it gave."""


class Mark:
    """An offset that only grows, and those who wait for it, in the order in which they came."""

    __slots__ = ("offset", "waiting")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.waiting: deque[Waiting] = deque()


class Progress:
    """Finds what is committed and what clients may read of one partition. Without `set_in_sync` this replica
    is the only one."""

    __slots__ = (
        "_follower_ends", "_last_stable", "_least_in_sync", "_limit", "_members", "_shown_end",
        "_stored_members", "_transactions", "committed", "flushed", "high_watermark",
    )  # fmt: skip

    def __init__(self, flushed_end: int, transactions: OpenTransactions, committed_end: int) -> None:
        """All before `committed_end` is known to be committed."""
        self.flushed = Mark(flushed_end)
        """What this replica holds durably."""
        self.committed = Mark(committed_end)
        self.high_watermark = committed_end
        """Before it clients may read."""
        self._shown_end = 0
        self._transactions = transactions
        self._last_stable = 0
        """The last stable offset as it was checked last."""
        self._follower_ends: dict[int, int] = {}
        self._members: frozenset[int] = frozenset()
        self._stored_members = 0
        self._least_in_sync = 1
        self._limit = _UNLIMITED
        """What all other members hold durably; 0 while the set is too small."""
        transactions.settle(committed_end)

    def forget_followers(self) -> None:
        """An epoch begins, in which nothing is known yet of other replicas; `set_in_sync` comes next."""
        self._follower_ends.clear()

    def flushed_to(self, durable_end: int) -> None:
        """This replica holds all before `durable_end` durably."""
        self.flushed.offset = durable_end
        self._advance()

    @property
    def others_end(self) -> int:
        """Up to where all other members of the in-sync set hold all durably; of a follower that is what its
        leader has committed, 0 until that says so in this epoch."""
        return self._limit

    @property
    def needs_others(self) -> bool:
        """Whether what is written from now on is committed only with other replicas."""
        return self._limit != _UNLIMITED

    def show(self, written_end: int) -> None:
        """Clients may read what this replica has written before `written_end`, durable here or not; with 0
        again only what is committed."""
        self._shown_end = written_end
        self._advance()

    def follower_flushed_to(self, broker_id: int, durable_end: int) -> None:
        """A follower holds all before `durable_end` durably, be it in sync or not."""
        self._follower_ends[broker_id] = durable_end
        self._find_limit()

    def set_in_sync(self, stored: Collection[int], joining: Collection[int], least: int) -> None:
        """The broker ids of the other members of the in-sync set in the catalog, of those that are being
        added, and how many members are needed, this replica included."""
        self._members = frozenset((*stored, *joining))
        self._stored_members = len(stored)
        self._least_in_sync = least
        self._find_limit()

    def _find_limit(self) -> None:
        if 1 + self._stored_members < self._least_in_sync:
            self._limit = 0
        else:
            ends = (self._follower_ends.get(member, 0) for member in self._members)
            self._limit = min(ends, default=_UNLIMITED)
        self._advance()

    def _advance(self) -> None:
        # By comparisons, which cost less than `min` and `max`: this runs per flush.
        limit, committed, end = self._limit, self.committed, self.flushed.offset
        if end > limit:
            end = limit
        if end > committed.offset:
            committed.offset = end
            if self._transactions.ended:
                self._transactions.settle(end)
        if (shown_end := self._shown_end) > end:
            end = shown_end if shown_end < limit else limit
        if end > self.high_watermark:
            self.high_watermark = end

    def last_stable(self, start_offset: int) -> int:
        """Before it no transaction is open, nor one whose marker is not committed."""
        first_unstable, high_watermark = self._transactions.first_unstable, self.high_watermark
        if first_unstable > high_watermark:
            return high_watermark
        return first_unstable if first_unstable > start_offset else start_offset

    def check(self, start_offset: int) -> None:
        """Raise InvariantError if the last stable offset has fallen since the last call."""
        last_stable = self.last_stable(start_offset)
        if not self._last_stable <= last_stable <= self.high_watermark:
            raise broken_last_stable(self._last_stable, last_stable, self.high_watermark)
        self._last_stable = last_stable

    def answer(self) -> list[Exception]:
        """Call those whose offsets are reached; the errors of those that failed, which wait no longer."""
        errors: list[Exception] = []
        for mark in (self.flushed, self.committed):
            waiting, offset = mark.waiting, mark.offset
            while waiting and waiting[0][0] <= offset:
                _, waiter, slot = waiting.popleft()
                try:
                    waiter.partition_committed(slot)
                except Exception as error:
                    errors.append(error)
        return errors

    def take_waiting(self) -> list[Waiting]:
        """Those who still wait: they wait no longer."""
        left = [*self.flushed.waiting, *self.committed.waiting]
        self.flushed.waiting.clear()
        self.committed.waiting.clear()
        return left
