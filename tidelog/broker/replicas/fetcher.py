"""Copies what one leader has to the replicas here that follow it.

Owns the loop: fetch, write the answer, make it durable, fetch from there. Where a replica lacks what is
committed, the disk works on one answer while the next one is fetched. One request is in flight at a time, so
memory is bounded by one answer. These cases are passed to `repair`: a log that diverges from the leader's,
one that ends before the start of the leader's, one that lacks the epochs in a gap.

Invariants: a follower asks from `Replica.fetch_offset`, so the leader may count what is before it; of at most
two answers the disk has not all; a replica whose role changed ignores answers to earlier requests; a waiting
request is given up when another partition is to be fetched, so that a new leader does not wait for its
followers until that is answered. The next request names all partitions, so this happens the less often the
more there are.

Event loop only. Source: Kafka's AbstractFetcherThread and ReplicaFetcherThread, KIP-227, KIP-595.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol
from uuid import UUID

import structlog

from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.replicas.fetching import Fetching, PartitionKey
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.replication_quota import ReplicationQuota
from tidelog.broker.storage.own_batches import EpochsUnknownError
from tidelog.broker.tasks import is_set_within
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError, error_code
from tidelog.protocol.hot import (
    NO_EPOCH_END_OFFSET,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
)
from tidelog.protocol.records import iter_batches

logger = structlog.get_logger(__name__)
INTERRUPT_SECONDS: Final = 0.02
"""How long a request may go on while other partitions wait: those of one change come together."""
INTERRUPT_SECONDS_PER_PARTITION: Final = 0.001
"""How long between two requests that are given up, for each partition: many times what its name costs."""
_FIRST_BACKOFF_S: Final = 0.05
_BYTES_PER_STEP: Final = 1 << 20
"""Written between two turns of other work."""
_EXPECTED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""One of the two brokers has not got a change yet."""


class Repair(Protocol):
    """Makes a log one that can follow its leader. Its replica ends, and another one takes its place."""

    def diverged(self, replica: Replica, leader: tuple[int, int]) -> None:
        """`leader` is (epoch, end offset) of the latest epoch that it has, up to that of the last batch."""

    def out_of_range(self, replica: Replica) -> None:
        """The leader has nothing that follows this log."""

    def epochs_unknown(self, replica: Replica, epoch: int) -> None:
        """The leader's next batch, of `epoch`, lies behind a gap: see `EpochsUnknownError`."""


class Fetcher:
    """Copies records from one leader to the replicas here that follow it."""

    def __init__(
        self,
        leader_id: int,
        fetching: Fetching,
        fetch: Callable[[int, FetchRequest], Awaitable[FetchResponse]],
        repair: Repair,
        clock_ms: Callable[[], int],
        events: PeerEvents,
        quota: ReplicationQuota,
        is_in_sync: Callable[[Replica], bool],
        *,
        partition_max_bytes: int,
        longest_backoff_ms: int,
    ) -> None:
        """`fetch` asks a broker, and raises ApiError; cancelled, it leaves no request behind."""
        self._quota = quota
        self._is_in_sync = is_in_sync
        self._leader_id = leader_id
        self._fetching = fetching
        self._fetch = fetch
        self._repair = repair
        self._clock_ms = clock_ms
        self._events = events
        self._partition_max_bytes = partition_max_bytes
        self._longest_backoff_s = longest_backoff_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._replicas: dict[PartitionKey, Replica] = {}
        self._is_due = asyncio.Event()
        self._asking: asyncio.Task[FetchResponse] | None = None
        self._interruption: asyncio.TimerHandle | None = None
        self._interrupted_at = -math.inf
        self._problem = ""
        self._flushing: asyncio.Future[list[BaseException | None]] | None = None
        """Of what the last answer had, where the next one did not wait for it."""
        self._task = self._loop.create_task(self._run())

    def add(self, replica: Replica) -> None:
        """Let a replica follow this leader from now on, once it holds durably what it has."""
        self._replicas[_key(replica)] = replica
        if replica.log.end_offset == replica.log.flushed_end_offset:
            self._begin(replica)
        else:
            replica.flushed_as_follower().add_done_callback(partial(self._is_flushed, replica))

    def _is_flushed(self, replica: Replica, flushed: asyncio.Future[None]) -> None:
        if flushed.exception() is None and self._replicas.get(_key(replica)) is replica:
            self._begin(replica)

    def _begin(self, replica: Replica) -> None:
        self._ask_from_end(replica)
        self._is_due.set()
        if self._asking is not None and self._interruption is None:
            earliest = self._interrupted_at + INTERRUPT_SECONDS_PER_PARTITION * len(self._fetching)
            when = max(self._loop.time() + INTERRUPT_SECONDS, earliest)
            self._interruption = self._loop.call_at(when, self._interrupt)

    def remove(self, replica: Replica) -> None:
        """Fetch nothing more for this replica."""
        key = _key(replica)
        if self._replicas.get(key) is replica:
            del self._replicas[key]
            self._fetching.drop(key)

    def _interrupt(self) -> None:
        self._interruption = None
        if self._asking is not None:
            self._interrupted_at = self._loop.time()
            self._asking.cancel()

    def _ask_from_end(self, replica: Replica) -> None:
        log = replica.log
        self._fetching.want(
            _key(replica),
            FetchPartition(
                replica.partition,
                replica.leader_epoch,
                replica.fetch_offset,
                log.leader_epoch,
                log.start_offset,
                self._partition_max_bytes,
            ),
        )
        if self._is_throttled(replica) and not self._is_in_sync(replica):
            delay_s = self._quota.delay_seconds()
            if delay_s:
                self._fetching.delay(_key(replica), self._now_ms() + delay_s * 1000)

    def _is_throttled(self, replica: Replica) -> bool:
        throttled = replica.log.config.follower_replication_throttled_replicas
        return self._quota.holds_for(throttled, replica.partition)

    def _now_ms(self) -> float:
        return self._loop.time() * 1000

    async def _run(self) -> None:
        failures = 0
        while True:
            self._is_due.clear()
            request = self._fetching.request(self._now_ms())
            if request is None:
                await self._due()
                continue
            try:
                response = await self._ask(request)
                if response is None:
                    continue
                await self._apply(response)
                failures, self._problem = 0, ""
            except Exception as error:
                self._fetching.lost()
                failures += 1
                self._tell(error)
                longest_s = min(_FIRST_BACKOFF_S * 2 ** min(failures, 10), self._longest_backoff_s)
                await asyncio.sleep(longest_s * random.uniform(0.5, 1))

    async def _due(self) -> None:
        """Return when there may be something to ask for."""
        due_ms = self._fetching.next_due_ms()
        seconds = None if due_ms is None else max(due_ms - self._now_ms(), 1) / 1000
        await is_set_within(self._is_due, seconds)

    async def _ask(self, request: FetchRequest) -> FetchResponse | None:
        """The answer; None if the request was given up. Raises ApiError, ProtocolError."""
        self._asking = asyncio.ensure_future(self._fetch(self._leader_id, request))
        try:
            await asyncio.wait([self._asking])
            if self._asking.cancelled():
                self._fetching.lost()
                return None
            return self._asking.result()
        finally:
            self._asking.cancel()
            self._asking = None
            if self._interruption is not None:
                self._interruption.cancel()
                self._interruption = None

    async def _apply(self, response: FetchResponse) -> None:
        written: list[Replica] = []
        unyielded = 0
        for key, result in self._fetching.answered(response):
            replica = self._replicas.get(key)
            if replica is None:
                continue
            if not replica.is_follower:
                self.remove(replica)
                continue
            unyielded += self._take(key, replica, result, written)
            if unyielded >= _BYTES_PER_STEP:
                unyielded = 0
                await asyncio.sleep(0)
        await self._until_flushed(written)
        for replica in written:
            is_ready = replica.fetch_offset == replica.log.end_offset  # Else another epoch began.
            if self._replicas.get(_key(replica)) is replica and replica.is_follower and is_ready:
                self._ask_from_end(replica)
        if response.error_code != ErrorCode.NONE:
            raise ApiError(error_code(response.error_code))

    async def _until_flushed(self, written: list[Replica]) -> None:
        """Return when those are durable whose leaders may count them, and of the others what was written
        before: the disk may work on one answer while the next one is fetched."""
        before, self._flushing = self._flushing, None
        now: list[asyncio.Future[None]] = []
        later: list[asyncio.Future[None]] = []
        for replica in written:
            may_go_on = replica.fetch_offset == replica.log.end_offset
            (later if may_go_on else now).append(replica.flushed_as_follower())
        if later:
            self._flushing = asyncio.gather(*later, return_exceptions=True)
        if now:
            await asyncio.gather(*now, return_exceptions=True)
        if before is not None:
            await before

    def _take(
        self, key: PartitionKey, replica: Replica, result: FetchPartitionResult, written: list[Replica]
    ) -> int:
        """Write what a leader answered for one partition; how many bytes. Never raises."""
        try:
            if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.remove(replica)
                self._repair.out_of_range(replica)
                return 0
            if result.error_code != ErrorCode.NONE:
                raise ApiError(error_code(result.error_code))
            if result.diverging_epoch != NO_EPOCH_END_OFFSET:
                self.remove(replica)
                self._repair.diverged(replica, result.diverging_epoch)
                return 0
            records = result.records
            size = 0
            if records:
                size = self._append(replica, memoryview(records), written)  # type: ignore[arg-type]
                if self._is_throttled(replica):
                    self._quota.moved(size)
            replica.leader_committed_to(result.high_watermark)
            start_offset = replica.log.start_offset
            replica.leader_starts_at(result.log_start_offset)
            if not records and replica.log.start_offset != start_offset:
                self._ask_from_end(replica)  # This informs the leader.
            self._fetching.succeeded(key)
            return size
        except EpochsUnknownError as error:
            self.remove(replica)
            self._repair.epochs_unknown(replica, error.epoch)
            return 0
        except Exception as error:
            if not isinstance(error, ApiError | ProtocolError):
                self.remove(replica)
                replica.fail(error)
                return 0
            self._fetching.failed(key, self._now_ms())
            if not isinstance(error, ApiError) or error.code not in _EXPECTED:
                self._events.warning(
                    "replica_not_fetched",
                    replica.topic,
                    topic=replica.topic,
                    partition=replica.partition,
                    leader_id=self._leader_id,
                    error=str(error),
                    advice="the broker tries again; check the free space of the disk, and the leader's log",
                )
            return 0

    def _append(self, replica: Replica, records: memoryview, written: list[Replica]) -> int:
        now_ms, end = self._clock_ms(), 0
        for position, header in iter_batches(records):
            end = position + header.size_bytes
            replica.append_as_follower(records[position:end], now_ms)
            if not position:
                written.append(replica)
        return end

    def _tell(self, error: Exception) -> None:
        """Once, however often it is tried again."""
        problem, self._problem = self._problem, repr(error)
        if problem != self._problem:
            is_known = isinstance(error, ApiError | ProtocolError)
            logger.warning(
                "leader_not_reached",
                leader_id=self._leader_id,
                error=str(error),
                advice="nothing to do while that broker is down" if is_known else "report this",
                exc_info=None if is_known else error,
            )

    async def close(self) -> None:
        """Fetch nothing more."""
        self._task.cancel()
        await asyncio.wait([self._task])


def _key(replica: Replica) -> tuple[UUID, int]:
    return replica.topic_id, replica.partition
