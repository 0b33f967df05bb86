"""File handles: how many of them connections may take, so that enough remain for the logs.

Owns the decision whether one more connection gets a handle.

Invariants: beyond the first `ALWAYS_SERVED` connections, none is accepted that would leave the logs fewer
than `_kept` handles; the system counts the handles, so those that other code in this process opens count too;
counting is amortized, because a system without a total must check every handle.
"""

import time
from collections.abc import Callable

from tidelog.broker.storage.disk import Disk

ALWAYS_SERVED = 16
"""So that a broker whose logs need nearly all handles can still be administered."""
_SPARE = 96
"""For flushes, snapshots, the store, HTTP, new partitions."""
_INDEXES_PER_PARTITION = 2
"""Those of a closed segment are opened some time after the log itself."""
_LOOK_AGAIN_SECONDS = 0.1


class HandleBudget:
    """Decides whether one more connection of one broker gets a file handle."""

    def __init__(
        self, disk: Disk, count_partitions: Callable[[], int], seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._disk = disk
        self._count_partitions = count_partitions
        self._seconds = seconds
        self._sure = 0
        """How many connections can be admitted without counting the handles again."""
        self._look_again_at = 0.0

    def admits(self, connections: int) -> bool:
        """Whether the connection just accepted gets a handle, beside the `connections` before it."""
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

    def facts(self) -> tuple[int, int, int]:
        """How many handles are free now, how many this process may have, and how many are kept for logs.

        On a system without a total it checks every handle: some milliseconds."""
        return self._disk.free_handles(), self._disk.handle_limit(), self._kept()

    def _kept(self) -> int:
        wanted = _SPARE + _INDEXES_PER_PARTITION * self._count_partitions()
        return min(wanted, self._disk.handle_limit() // 4)
