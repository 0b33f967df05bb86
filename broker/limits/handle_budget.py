"""File handles: how many of them connections may take, so that the logs find theirs.

Owns the decision whether there is one for another connection. Connections are the part of what the process
opens that strangers decide about, so they are refused first.

Invariants: beyond the first `ALWAYS_SERVED` connections none is taken that would leave the logs less than
`_kept`; the handles are counted where the system keeps them, so what others in this process open counts too;
counting is amortized, for where the system has no number it takes a look at each one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidelog.broker.storage.disk import Disk

ALWAYS_SERVED = 16
"""So that a broker whose logs need nearly all handles can still be looked after."""
_SPARE = 96
"""For flushes, snapshots, the store, HTTP, new partitions."""
_INDEXES_A_PARTITION = 2
"""They are opened some time after the log itself."""
_LOOK_AGAIN_SECONDS = 0.1


class HandleBudget:
    """Of one broker."""

    def __init__(
        self,
        disk: Disk,
        count_partitions: Callable[[], int],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._disk = disk
        self._count_partitions = count_partitions
        self._seconds = seconds
        self._sure = 0
        """So many connections are had without another look."""
        self._look_again_at = 0.0

    def admits(self, connections: int) -> bool:
        """Whether there is a handle for one accepted just now, beside the `connections` before it."""
        if connections < ALWAYS_SERVED:
            return True
        if self._sure > 0:
            self._sure -= 1
            return True
        now = self._seconds()
        if now < self._look_again_at:
            return False
        spare = self._disk.free_handles() - self._kept()
        self._sure = max(spare // 2, 0)
        if spare < 0:
            self._look_again_at = now + _LOOK_AGAIN_SECONDS
        return spare >= 0

    def _kept(self) -> int:
        wanted = _SPARE + _INDEXES_A_PARTITION * self._count_partitions()
        return min(wanted, self._disk.handle_limit() // 4)
