"""What a follower asks one leader for, and which of the answers still count.

Owns the fetch session of one leader (KIP-227), as the follower keeps it: the first request names each
partition, later ones only what changed since. A partition that failed is left out for a while, which doubles
with each failure in a row.

Invariants: an answer counts for a partition only while the offset and the epoch of its request are still
wanted; the cost of a request depends on the changes, not on the number of partitions; after a request without
an answer, and after an error of the session, the next request begins a new session.

Pure: the time is passed in, in milliseconds of one clock. Source: KIP-227, Kafka's FetchSessionHandler.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import FetchPartition, FetchPartitionResult, FetchRequest, FetchResponse

_T = TypeVar("_T")
PartitionKey = tuple[UUID, int]
"""Topic id and partition."""
NO_SESSION: Final = 0
FULL: Final = 0
"""The session epoch that begins a session."""
_LAST_EPOCH: Final = 2**31 - 1
FIRST_DELAY_MS: Final = 20
"""A leader may learn of its election some milliseconds after its followers."""


class FetchLimits(NamedTuple):
    """The bounds that a follower sets in each Fetch request, and on its retries."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    longest_delay_ms: int
    """How long a partition that fails again and again is left out."""


class Fetching:
    """What one follower, at one of its starts (`replica_epoch`), fetches from one leader."""

    def __init__(self, replica_id: int, replica_epoch: int, limits: FetchLimits) -> None:
        self._replica_id = replica_id
        self._replica_epoch = replica_epoch
        self._limits = limits
        self._wanted: dict[PartitionKey, FetchPartition] = {}
        self._told: dict[PartitionKey, FetchPartition] = {}
        """The partitions of the session, as the leader knows them."""
        self._changed: set[PartitionKey] = set()
        """Those that may differ from what the leader knows."""
        self._session_id, self._session_epoch = NO_SESSION, FULL
        self._failures: dict[PartitionKey, tuple[int, float]] = {}
        """How often a partition failed in a row, and until when it is left out."""

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, key: PartitionKey, asked: FetchPartition) -> None:
        """Fetch a partition from here on."""
        self._wanted[key] = asked
        self._changed.add(key)

    def drop(self, key: PartitionKey) -> None:
        """Fetch it no more."""
        self._wanted.pop(key, None)
        self._failures.pop(key, None)
        self._changed.add(key)

    def failed(self, key: PartitionKey, now_ms: float) -> None:
        """Leave a partition out for a while."""
        if key in self._wanted:
            times = self._failures.get(key, (0, 0.0))[0] + 1
            delay_ms = min(FIRST_DELAY_MS << min(times - 1, 20), self._limits.longest_delay_ms)
            self._failures[key] = (times, now_ms + delay_ms)
            self._changed.add(key)

    def delay(self, key: PartitionKey, until_ms: float) -> None:
        """Leave a partition out until then."""
        self._failures[key] = (0, until_ms)
        self._changed.add(key)

    def succeeded(self, key: PartitionKey) -> None:
        """It gave what was asked for."""
        self._failures.pop(key, None)

    def next_due_ms(self) -> float | None:
        """When the first of those that are left out is due again; None if there is none."""
        return min((until for _, until in self._failures.values()), default=None)

    def request(self, now_ms: float) -> FetchRequest | None:
        """The next request; None while there is nothing to ask for."""
        self._changed.update(key for key, (_, until) in self._failures.items() if until <= now_ms)
        changed: list[tuple[PartitionKey, FetchPartition]] = []
        gone: list[tuple[PartitionKey, int]] = []
        for key in self._changed:
            wanted = self._wanted.get(key)
            if wanted is None or self._is_late(key, now_ms):
                if self._told.pop(key, None) is not None:
                    gone.append((key, key[1]))
            elif self._told.get(key) != wanted:
                self._told[key] = wanted
                changed.append((key, wanted))
        if not self._told:
            self._session_id, self._session_epoch = NO_SESSION, FULL
            return None
        self._changed.clear()
        return FetchRequest(
            self._replica_id,
            self._limits.max_wait_ms,
            self._limits.min_bytes,
            self._limits.max_bytes,
            0,
            self._session_id,
            self._session_epoch,
            _by_topic(changed),
            _by_topic(gone),
            replica_epoch=self._replica_epoch,
        )

    def _is_late(self, key: PartitionKey, now_ms: float) -> bool:
        """Whether a partition is left out now."""
        return key in self._failures and self._failures[key][1] > now_ms

    def lost(self) -> None:
        """The last request has no answer."""
        self._told = {}
        self._changed.update(self._wanted)
        self._session_id, self._session_epoch = NO_SESSION, FULL

    def answered(self, response: FetchResponse) -> Iterator[tuple[PartitionKey, FetchPartitionResult]]:
        """The results of the last request that count."""
        told = self._told
        if response.error_code != ErrorCode.NONE or response.session_id == NO_SESSION:
            self.lost()
        else:
            self._session_id = response.session_id
            self._session_epoch = 1 if self._session_epoch == _LAST_EPOCH else self._session_epoch + 1
        for topic_id, results in response.topics:
            for result in results:
                if isinstance(topic_id, UUID):
                    key = topic_id, result.partition_index
                    asked = told.get(key)
                    if asked is not None and self._wanted.get(key) == asked:
                        yield key, result


def _by_topic(items: Iterable[tuple[PartitionKey, _T]]) -> list[tuple[UUID, list[_T]]]:
    grouped: defaultdict[UUID, list[_T]] = defaultdict(list)
    for (topic_id, _), value in items:
        grouped[topic_id].append(value)
    return list(grouped.items())
