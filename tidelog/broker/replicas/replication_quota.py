"""How many bytes per second of throttled replicas a broker sends as their leader, or gets as a follower.

Owns the rule for both sides: it holds for the replicas that a topic's setting names, counts what is moved of
them, and holds back those that are not in sync. So replicas that are added do not take the disks and the
network from those in use, and a throttle that is too low removes no replica from the in-sync set.

Invariant: in the long run no more than the rate is moved; at once, what one second allows and one answer.

Pure: the clock is passed in, in seconds. Source: KIP-73, Kafka's ReplicationQuotaManager.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tidelog.broker.limits.client_quotas import Bucket

UNLIMITED: Final = 2**63 - 1
_BURST_SECONDS: Final = 1.0


class ReplicationQuota:
    """Throttles the replication of one broker on one side: as leader or as follower."""

    def __init__(self, node_id: int, clock: Callable[[], float]) -> None:
        self.moved_bytes = 0
        """Of throttled replicas, since the start."""
        self._node_id = node_id
        self._clock = clock
        self._bucket: Bucket | None = None

    def set_rate(self, bytes_per_second: int) -> None:
        """From now on; UNLIMITED throttles nothing."""
        if bytes_per_second == UNLIMITED:
            self._bucket = None
        elif self._bucket is None or self._bucket.rate != bytes_per_second:
            self._bucket = Bucket(bytes_per_second, _BURST_SECONDS)
            self._bucket.charge(self._bucket.burst, self._clock())

    def holds_for(self, throttled: Sequence[str], partition: int) -> bool:
        """Whether this broker's replica of a partition is throttled; `throttled` is its topic's setting."""
        return self._bucket is not None and (
            tuple(throttled) == ("*",) or f"{partition}:{self._node_id}" in throttled
        )

    def moved(self, size_bytes: int) -> None:
        """So much was sent or received of a throttled replica."""
        self.moved_bytes += size_bytes
        if self._bucket is not None:
            self._bucket.charge(size_bytes, self._clock())

    def delay_seconds(self, unmoved_bytes: int = 0) -> float:
        """How long replicas that are not in sync have to wait; `unmoved_bytes` will be moved before."""
        if self._bucket is None:
            return 0.0
        return self._bucket.delay_seconds(self._clock()) + max(unmoved_bytes / self._bucket.rate - 1, 0)
