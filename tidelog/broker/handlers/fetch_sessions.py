"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer requested.

Owns the sessions, their epochs and their eviction. A full fetch (epoch 0) opens a session; each further
request names only what changes, each response only what changed. A pure machine: time, and the numbers for
new sessions, are passed in; no I/O, no asyncio.

Invariants:
- at most `slots` sessions exist, with at most `cached_partitions` partitions in all; beyond that a full fetch
  is answered without a session (session id 0), unless old ones may be evicted: those unused for
  `EVICTION_MS`, and for a slot a smaller one older than `EVICTION_MS`. A session that outgrows the bound
  ends;
- a request with the wrong epoch changes nothing, nor does one that names topics by id in a session by name,
  or by name in a session by id;
- a response names a partition if it has records, an error, or a watermark or start offset that was not yet
  sent to the client; partitions that gave records move to the end of the order, so that each is served.

Pure. Source: KIP-227, KIP-516, Kafka's FetchSession.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol
from uuid import UUID

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import NO_EPOCH_END_OFFSET, FetchPartition, FetchPartitionResult, TopicKey

EVICTION_MS = 120_000
MAX_PARTITIONS = 20_000
"""Most partitions of one session: a client that requests more is served without one."""
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
MAX_EPOCH = 2**31 - 1
NO_SESSION = 0
_KINDS = ("name", "id")

PartitionKey = tuple[TopicKey, int]


def next_epoch(epoch: int) -> int:
    """The epoch that the request after `epoch` carries: 1 follows int32's end, -1 stays."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_EPOCH else epoch + 1


class _Told:
    """What the client requested of one partition, and what was last sent to it about that partition."""

    __slots__ = ("high_watermark", "log_start_offset", "request")

    def __init__(self, request: FetchPartition) -> None:
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1

    def is_outdated(self, high_watermark: int, log_start_offset: int) -> bool:
        return high_watermark != self.high_watermark or log_start_offset != self.log_start_offset

    def news(self, result: FetchPartitionResult, has_records: bool) -> bool:
        """Whether the response must name the partition; remembers what is sent."""
        respond = (
            has_records
            or self.is_outdated(result.high_watermark, result.log_start_offset)
            or result.preferred_read_replica >= 0
        )
        self.high_watermark = result.high_watermark
        self.log_start_offset = result.log_start_offset
        if result.error_code != ErrorCode.NONE or result.diverging_epoch != NO_EPOCH_END_OFFSET:
            # Sent again next time, whatever the watermark: the client takes errors to be lasting, and a
            # follower truncates its log, and takes nothing else from this.
            self.high_watermark = -1
            return True
        return respond


class Due(Protocol):
    """Says which partitions of a session a request has to look at (see `Followed`)."""

    def take(
        self, named: Iterable[PartitionKey], forgotten: Iterable[PartitionKey]
    ) -> Iterable[PartitionKey]: ...

    def close(self) -> None: ...


class FetchSession:
    """The partitions that one client requests. `epoch` is the one that its next request must carry. `names`
    holds the name that each id had when it was first found: another topic may have that name later."""

    __slots__ = (
        "by_id", "created_ms", "due", "epoch", "names", "noted_ms", "partitions", "session_id", "used_ms",
    )  # fmt: skip

    def __init__(self, session_id: int, now_ms: int, *, by_id: bool) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.names: dict[UUID, str] = {}
        self.epoch = 1
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.noted_ms = -math.inf
        """When a follower's last request was noted, on the loop's clock."""
        self.partitions: dict[PartitionKey, _Told] = {}
        self.due: Due | None = None
        """None: each request looks at all partitions."""

    def update(
        self, added: Iterable[tuple[TopicKey, FetchPartition]], forgotten: Iterable[PartitionKey]
    ) -> None:
        for topic, partition in added:
            key = (topic, partition.partition)
            known = self.partitions.get(key)
            if known is None or known.request.current_leader_epoch != partition.current_leader_epoch:
                # A client in another epoch may have ignored the last answer, which it asked for in an
                # earlier one.
                self.partitions[key] = _Told(partition)
            else:
                known.request = partition
        for key in forgotten:
            self.partitions.pop(key, None)

    def is_outdated(self, key: PartitionKey, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the client has other offsets of a partition of the session."""
        told = self.partitions.get(key)
        return told is not None and told.is_outdated(high_watermark, log_start_offset)

    def requested(self, keys: Iterable[PartitionKey]) -> list[tuple[TopicKey, FetchPartition]]:
        """What the client requested of these partitions, as far as they belong to the session."""
        partitions = self.partitions
        return [(key[0], partitions[key].request) for key in keys if key in partitions]


class FetchContext(NamedTuple):
    """How one request is served: which partitions, in which order, in which session."""

    partitions: list[tuple[TopicKey, FetchPartition]]
    session: FetchSession | None
    epoch: int
    """The epoch the session had when the request came; 0 for one that this request opened."""
    names: Mapping[UUID, str] = MappingProxyType({})
    """The names of the topics that are requested by id. An unknown id is not in it."""
    refused: frozenset[str | None] = frozenset()
    """Topics that the client may not read; None for those with an unknown id."""

    @property
    def is_incremental(self) -> bool:
        return self.session is not None and self.epoch > INITIAL_EPOCH

    def is_behind(self, topic: TopicKey, partition: int, high_watermark: int) -> bool:
        """Whether the session has a lower high watermark."""
        told = None if self.session is None else self.session.partitions.get((topic, partition))
        return told is not None and told.high_watermark < high_watermark


class FetchSessions:
    """Opens, finds and evicts the fetch sessions of one broker."""

    def __init__(self, slots: int, cached_partitions: int, new_session_id: Callable[[], int]) -> None:
        """`new_session_id` draws a number in 1..2^31-1; it is called again when the number is taken."""
        self._slots = slots
        self._cached_partitions = cached_partitions
        self._new_session_id = new_session_id
        self.partition_count = 0
        """The sum over all sessions."""
        self.evictions = 0
        self._sessions: dict[int, FetchSession] = {}  # Least recently used first.

    def __len__(self) -> int:
        return len(self._sessions)

    def open_context(
        self,
        session_id: int,
        epoch: int,
        partitions: list[tuple[TopicKey, FetchPartition]],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
        *,
        by_id: bool,
    ) -> FetchContext:
        """The partitions that the request asks for, together with its session.

        Raises ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
        FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(session_id)
            session = None
            if epoch == INITIAL_EPOCH and partitions:
                session = self._create(partitions, now_ms, by_id)
            return FetchContext(partitions, session, INITIAL_EPOCH)
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session has the id {session_id}")
        if session.epoch != epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session_id} expects epoch {session.epoch}, the request carries {epoch}",
            )
        if session.by_id != by_id:
            raise ApiError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session_id} names topics by {_KINDS[session.by_id]}, the request by"
                f" {_KINDS[by_id]}",
            )
        session.epoch = next_epoch(epoch)
        session.used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        self._update(session, partitions, forgotten, now_ms)
        if not session.partitions:
            self._remove(session_id)
            return FetchContext([], None, INITIAL_EPOCH)
        known: Iterable[PartitionKey] = session.partitions
        if session.due is not None:
            known = session.due.take([(topic, each.partition) for topic, each in partitions], forgotten)
        return FetchContext(session.requested(known), session, epoch)

    def select(
        self, context: FetchContext, results: list[tuple[TopicKey, FetchPartitionResult, bool]]
    ) -> list[tuple[TopicKey, FetchPartitionResult]]:
        """The results that the response must name. The bool of each says whether it holds records.

        Raises ApiError(INVALID_FETCH_SESSION_EPOCH) when a later request of the session overtook this one.
        """
        session = context.session
        if session is None:
            return [(topic, result) for topic, result, _ in results]
        if session.epoch != next_epoch(context.epoch):
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.session_id} went on to epoch {session.epoch} "
                f"while epoch {context.epoch} was being served",
            )
        chosen = []
        for topic, result, has_records in results:
            key = (topic, result.partition_index)
            told = session.partitions.get(key)
            if told is None:
                continue
            news = told.news(result, has_records)
            if has_records:
                session.partitions[key] = session.partitions.pop(key)
            if news or not context.is_incremental:
                chosen.append((topic, result))
        return chosen

    def _create(
        self, partitions: list[tuple[TopicKey, FetchPartition]], now_ms: int, by_id: bool
    ) -> FetchSession | None:
        if len(partitions) > MAX_PARTITIONS or not self._has_room(len(partitions), now_ms):
            return None
        session_id = self._new_session_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_session_id()
        session = self._sessions[session_id] = FetchSession(session_id, now_ms, by_id=by_id)
        session.update(partitions, ())
        self.partition_count += len(session.partitions)
        return session

    def _update(
        self,
        session: FetchSession,
        partitions: list[tuple[TopicKey, FetchPartition]],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
    ) -> None:
        before = len(session.partitions)
        session.update(partitions, forgotten)
        count = len(session.partitions)
        self.partition_count += count - before
        if count > MAX_PARTITIONS:
            problem = f"a session holds at most {MAX_PARTITIONS} partitions"
        elif count > before and not self._evict_unused(0, 0, now_ms):
            problem = f"all sessions hold at most {self._cached_partitions} partitions"
        else:
            return
        self._remove(session.session_id)
        raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, problem)

    def _has_room(self, size: int, now_ms: int) -> bool:
        """Whether a session of `size` partitions fits, after those that may be evicted are."""
        if self._evict_unused(1, size, now_ms):
            return True
        evictable = [held for held in self._sessions.values() if now_ms - held.created_ms > EVICTION_MS]
        smallest = min(evictable, key=lambda held: len(held.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= size:
            return False
        if self.partition_count - len(smallest.partitions) + size > self._cached_partitions:
            return False
        self._evict(smallest)
        return len(self._sessions) < self._slots

    def _evict_unused(self, sessions: int, partitions: int, now_ms: int) -> bool:
        """Whether this number more fits into the bounds, after unused sessions were evicted where
        necessary."""
        while (
            len(self._sessions) + sessions > self._slots
            or self.partition_count + partitions > self._cached_partitions
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms <= EVICTION_MS:
                return False
            self._evict(oldest)
        return True

    def _evict(self, session: FetchSession) -> None:
        self._remove(session.session_id)
        self.evictions += 1

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)
            if session.due is not None:
                session.due.close()
