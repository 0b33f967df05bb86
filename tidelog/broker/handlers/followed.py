"""Which partitions of a follower's fetch session its next answer has to look at.

Owns what is due: what the request names, what has changed since the last check, and what did not fit into an
answer. So a request costs what is written, not what is followed. A replica says when it has written more, has
stopped, or leads in another epoch; changes without a notice (its log start, what clients may read, that the
follower still asks) are found within `LOOKS_WITHIN_S`.

Invariants: a partition is watched before it is read, so nothing that is written between two requests is
missed; all are checked again before a follower without new requests for one counts as late.

Event loop only. Source: KIP-227, which leaves open how a broker finds what changed.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from tidelog.broker.handlers.fetch_sessions import PartitionKey
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage.log_types import READ_WRITTEN

LOOKS_WITHIN_S: Final = 1.0
"""All partitions are looked at after this time, or after `_PART` of `replica.lag.time.max.ms` or of
`broker.session.timeout.ms`."""
_PART: Final = 8


class Followed:
    """Tells which partitions of one fetch session are due, from its first request on."""

    def __init__(self, lag_ms: int, session_timeout_ms: int, *, sees_marks: bool = False) -> None:
        """With `sees_marks` a partition is due also when clients may read more of it: the follower's may
        too."""
        self._sees_marks = sees_marks
        self._interval_s = min(LOOKS_WITHIN_S, lag_ms / _PART / 1000, session_timeout_ms / _PART / 1000)
        self._loop = asyncio.get_running_loop()
        self._looked_at = self._loop.time()
        self._replicas: dict[PartitionKey, Replica] = {}
        self._keys: dict[Replica, PartitionKey] = {}
        self._due: dict[PartitionKey, None] = {}
        self._changed: asyncio.Future[None] | None = None
        self._is_closed = False

    def watch(self, key: PartitionKey, replica: Replica) -> None:
        """This replica is that of the partition from now on."""
        before = self._replicas.get(key)
        if before is not replica and not self._is_closed:
            self._leave(key)
            self._replicas[key], self._keys[replica] = replica, key
            replica.watch(self, READ_WRITTEN)
            if self._sees_marks:
                replica.watch(self)

    def _leave(self, key: PartitionKey) -> None:
        if (replica := self._replicas.pop(key, None)) is not None:
            del self._keys[replica]
            replica.unwatch(self)

    def replica_changed(self, replica: Replica) -> None:
        """See `Watcher`."""
        self._due[self._keys[replica]] = None
        self._wake()

    def come_again(self, key: PartitionKey) -> None:
        """The next request has to look at this partition, whatever happens."""
        self._due[key] = None

    def take(self, named: Iterable[PartitionKey], forgotten: Iterable[PartitionKey]) -> list[PartitionKey]:
        """What is to be looked at now: what was left first, so that each partition is served."""
        for key in forgotten:
            self._due.pop(key, None)
            self._leave(key)
        due, self._due = self._due, {}
        return list(due | dict.fromkeys(named))

    @property
    def is_look_due(self) -> bool:
        """Whether to look at all partitions; then that counts as done."""
        now = self._loop.time()
        if now < self._looked_at + self._interval_s:
            return False
        self._looked_at = now
        return True

    async def wait(self, deadline: float) -> None:
        """Return when a partition is due, or at `deadline` on the loop's clock."""
        if self._due:
            return
        self._changed = self._loop.create_future()
        timer = self._loop.call_at(deadline, self._wake)
        try:
            await self._changed
        finally:
            timer.cancel()
            self._changed = None

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def close(self) -> None:
        """The session has ended."""
        self._is_closed = True
        for key in list(self._replicas):
            self._leave(key)
        self._wake()
