"""Fetch: whole batches from the page cache; the high watermark wakes long polls.

Owns the answer to a FetchRequest. Available data is answered at once. Otherwise a coroutine waits until the
high watermark of a partition moves (no timer except max_wait_ms, no disk access meanwhile) and reads again.

Invariants:
- what was appended before the request arrived may have been acknowledged with acks=1: an answer that lacks it
  waits for its flush, also beyond max_wait_ms, but at most `FLUSH_PATIENCE_SECONDS`;
- a consumer of committed records gets what lies before the last stable offset, aborted records and markers
  included, and the aborted transactions among them: it leaves those out itself;
- a follower gets what is written, which the leader flushes at the same time; it has durably what lies before
  the offset from which it fetches, if that is not before the high watermark (`Replica.fetch_offset`), which
  counts once per request, where the follower's log agrees with this one and the catalog has the start of that
  broker that fetches;
- a request of a fetch session was sent after the answer to the one before, so after that one had come;
- a follower serves consumers what it knows to be committed, where `replica.selector.class` is set and they
  say their rack; the leader sends them to it, without records (KIP-392);
- a topic that is requested by id is read only under this id, also if its name belongs to another topic by
  then; what may not be read does not show its name;
- a cancelled long poll leaves no state behind: dispatch cancels it when its connection closes.

Versions: 7 brings sessions; 9 the epoch of the reader, which is fenced if it is old; 11 the rack; 12 where a
reader's log diverges; 13 topics by id only; 15 the start of a follower; `leader_hints` has those that name
new leaders. Source: Kafka's KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages and DelayedFetch, and
Partition.updateFollowerFetchState; KIP-516, KIP-903.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.context import LateAnswer, RequestContext
from tidelog.broker.handlers.fetch_budget import FetchBudget
from tidelog.broker.handlers.fetch_reading import FetchPass, diverging, level_of, name_of, replica_of
from tidelog.broker.handlers.fetch_sessions import NO_SESSION, FetchContext, FetchSessions
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.replica_log import all_flushed
from tidelog.broker.security.required_access import CLUSTER_ACTION, READ_TOPIC
from tidelog.broker.services import Services
from tidelog.broker.storage.disk import ColdRead
from tidelog.broker.storage.readable_log import ReadableLog, RemoteFound, RemoteRead
from tidelog.protocol.acls import CLUSTER_NAME
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import FIRST_BY_ID, FetchPartitionResult, FetchRequest, FetchResponse, TopicKey
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps, finish

if TYPE_CHECKING:
    from tidelog.broker.handlers.followed import Followed

FLUSH_PATIENCE_SECONDS = 1.0
PARKED_BYTES = 3000
"""Memory of a waiting Fetch, without its partitions."""
PARKED_PARTITION_BYTES = 600
"""Memory of each of its partitions: what is requested, and what is watched."""
SESSION_PARTITION_BYTES = 550
"""Memory of each partition of a fetch session, in a topic of its own that is named by id."""
_SESSIONS_PART = 4
"""Sessions may take this part of `queued.max.bytes`: they remain after their connections have closed."""


class FetchHandler(GuardedHandler):
    """Serves Fetch 4-18."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._replicas = services.replicas
        self._metrics = services.metrics
        self._clock_ms = services.clock_ms
        self._max_bytes = services.config.fetch_max_bytes
        self._memory = services.memory
        self._max_wait_ms = services.config.fetch_max_wait_ms
        self.sessions = FetchSessions(
            services.config.max_incremental_fetch_session_cache_slots,
            min(
                services.config.max_incremental_fetch_session_cache_partitions,
                self._memory.bound_bytes // _SESSIONS_PART // SESSION_PARTITION_BYTES,
            ),
            lambda: secrets.randbelow(2**31 - 1) + 1,
        )
        services.metrics.fetch_sessions = self.sessions
        self._memory.beside_bytes = lambda: SESSION_PARTITION_BYTES * self.sessions.partition_count

    def handle(self, context: RequestContext, request: FetchRequest) -> Steps[FetchResponse | LateAnswer]:
        """The response, at once or when there is data or the disk has given it."""
        most_bytes = context.connection.fetch_max_bytes
        if request.max_bytes > most_bytes:
            request = request._replace(max_bytes=most_bytes, min_bytes=min(request.min_bytes, most_bytes))
        partitions = [(topic, partition) for topic, listed in request.topics for partition in listed]
        forgotten = [(topic, index) for topic, indexes in request.forgotten_topics for index in indexes]
        by_id = context.header.api_version >= FIRST_BY_ID
        try:
            fetch = self.sessions.open_context(
                request.session_id,
                request.session_epoch,
                partitions,
                forgotten,
                self._clock_ms(),
                by_id=by_id,
            )
        except ApiError as error:
            return FetchResponse(0, error.code, NO_SESSION, [])
        if by_id:
            fetch = fetch._replace(names=(yield from self._names(fetch)))
        if self._access.is_on:
            fetch = fetch._replace(refused=(yield from self._refused(context, fetch, request.replica_id)))
        if request.replica_id >= 0 and not fetch.refused:
            fetch = yield from self._note_follower(fetch, request)
        try:
            sends_mapped = context.connection.sends_mapped and not context.is_long
            reading = yield from FetchPass(
                self._services, fetch, request, nowait=True, sends_mapped=sends_mapped
            ).read()
        except ColdRead:
            return self._parked(fetch, request, is_cold=True)
        if reading.remote:
            return self._parked(fetch, request, is_cold=False)
        if self._is_enough(reading, fetch, request):
            return (yield from self._respond(fetch, reading))
        if self._patience_ms(request) == 0 and not (yield from self._behind(fetch, request)):
            return (yield from self._respond(fetch, reading))
        return self._parked(fetch, request, is_cold=False, has_read=True)

    def _names(self, fetch: FetchContext) -> Steps[dict[UUID, str]]:
        """The names of the topics, as the session found them first."""
        pace = Pace(CHECKS_PER_STEP)
        known = {} if fetch.session is None else fetch.session.names
        # Those of partitions that this request does not look at stay.
        names: dict[UUID, str] = {} if _followed(fetch) is None else known
        name_of = self._services.catalog.name_of
        for topic, _ in fetch.partitions:
            if (
                isinstance(topic, UUID)
                and topic not in names
                and (name := known.get(topic) or name_of(topic))
            ):
                names[topic] = name
            if pace.spent():
                yield
        if fetch.session is not None:
            fetch.session.names = names
        return names

    def _refused(
        self, context: RequestContext, fetch: FetchContext, replica_id: int
    ) -> Steps[frozenset[str | None]]:
        """The topics that the principal may not read, also of a session that it began when it might; None for
        unknown ones. A follower reads all topics or none."""
        pace = Pace(CHECKS_PER_STEP)
        refused = []
        names = dict.fromkeys(name_of(topic, fetch) for topic, _ in fetch.partitions)
        if replica_id >= 0:
            if self._access.allows(context, CLUSTER_ACTION, CLUSTER_NAME):
                return frozenset()
            return frozenset((None, *names, *fetch.names.values()))
        for name in names:
            if name is not None and not self._access.allows(context, READ_TOPIC, name):
                refused.append(name)
            if pace.spent():
                yield
        return frozenset(refused)

    def _note_follower(self, fetch: FetchContext, request: FetchRequest) -> Steps[FetchContext]:
        """Note what the follower holds durably of these partitions, now and then of all; what to look at."""
        from tidelog.broker.cluster.in_sync import is_registered
        from tidelog.broker.handlers.followed import Followed

        session, config = fetch.session, self._services.config
        in_sync_sets = self._services.in_sync_sets
        is_known = is_registered(self._services.catalog, request.replica_id, request.replica_epoch)
        asked_after_ms = -math.inf
        if session is not None and is_known:
            asked_after_ms = session.noted_ms
            session.noted_ms = asyncio.get_running_loop().time() * 1000
        if session is not None and not fetch.is_incremental:
            session.due = Followed(
                config.replica_lag_time_max_ms,
                config.broker_session_timeout_ms,
                sees_marks=bool(self._services.config.replica_selector_class),
            )
        followed = _followed(fetch)
        partitions = fetch.partitions
        looks_at_all = followed is not None and fetch.is_incremental and followed.is_look_due
        if session is not None and looks_at_all:
            partitions = session.requested(list(session.partitions))
        pace = Pace(CHECKS_PER_STEP)
        for topic, wanted in partitions:
            key = topic, wanted.partition
            is_due = False
            try:
                replica = replica_of(self._services, fetch, topic, wanted.partition)
                if followed is not None:
                    followed.watch(key, replica)
                is_due = diverging(replica, wanted, request) is not None
                if is_known and not is_due and in_sync_sets is not None:
                    offset, start_offset = wanted.fetch_offset, wanted.log_start_offset
                    if replica.fetched_by(
                        request.replica_id, request.replica_epoch, offset, start_offset, asked_after_ms
                    ):
                        in_sync_sets.join(replica)
                if looks_at_all and session is not None:
                    is_due |= session.is_outdated(key, replica.high_watermark, replica.log.start_offset)
            except ApiError:
                is_due = True  # `FetchPass` answers with it.
            if followed is not None and looks_at_all and is_due:
                followed.come_again(key)
            if pace.spent():
                yield
        return self._with_due(fetch) if looks_at_all else fetch

    def _with_due(self, fetch: FetchContext) -> FetchContext:
        """What the answer has to look at, with what has become due meanwhile."""
        followed, session = _followed(fetch), fetch.session
        if followed is None or session is None:
            return fetch
        looked_at = [(topic, wanted.partition) for topic, wanted in fetch.partitions]
        due = followed.take((), ())
        for topic, partition in due:
            replica = self._replicas.get((name_of(topic, fetch) or "", partition))
            if replica is not None:
                followed.watch((topic, partition), replica)
        return fetch._replace(partitions=session.requested(dict.fromkeys((*due, *looked_at))))

    def _parked(
        self, fetch: FetchContext, request: FetchRequest, *, is_cold: bool, has_read: bool = False
    ) -> LateAnswer:
        held_bytes = PARKED_BYTES + PARKED_PARTITION_BYTES * len(fetch.partitions)
        return LateAnswer.of(self._wait_and_read(fetch, request, is_cold, has_read), held_bytes)

    def _is_enough(self, reading: FetchBudget, fetch: FetchContext, request: FetchRequest) -> bool:
        """Whether to answer now, without waiting for more records."""
        if reading.size_bytes >= (request.min_bytes or 1) or reading.must_answer:
            return True
        return not fetch.partitions and _followed(fetch) is None

    def _patience_ms(self, request: FetchRequest) -> int:
        """How long to wait for more than was appended before the request arrived."""
        return 0 if request.min_bytes <= 0 else max(0, min(request.max_wait_ms, self._max_wait_ms))

    def _behind(self, fetch: FetchContext, request: FetchRequest) -> Steps[list[Replica]]:
        """The replicas with records that a consumer cannot see yet."""
        pace = Pace(CHECKS_PER_STEP)
        behind: list[Replica] = []
        if request.replica_id >= 0:
            return behind
        for replica, _ in self._watched(fetch):
            if replica.is_behind:
                behind.append(replica)
            if pace.spent():
                yield
        return behind

    async def _wait_and_read(
        self, fetch: FetchContext, request: FetchRequest, is_cold: bool, has_read: bool
    ) -> FetchResponse:
        """Wait for enough data, for max_wait_ms at most; with `is_cold` read the disk first. `has_read`: all
        was read in this step."""
        loop = asyncio.get_running_loop()
        in_turns = self._services.turns.run
        deadline = loop.time() + self._patience_ms(request) / 1000
        has_all = False
        followed = _followed(fetch)
        reading: FetchBudget | None
        if has_read and followed is not None:
            await followed.wait(deadline)
            fetch = self._with_due(fetch)
        while True:
            # Watched before it is read, so that no change of a watermark is missed between the two.
            with _LongPoll(loop, request) as poll:
                if followed is None:
                    await in_turns(poll.watch(self._watched(fetch)))
                if is_cold:
                    read = FetchPass(self._services, fetch, request, nowait=False).read()
                    reading = await loop.run_in_executor(None, finish, read)
                else:
                    reading = await in_turns(self._read_or_none(fetch, request))
                is_cold = reading is None
                if reading is None:
                    continue
                if reading.remote:
                    reading = await self._with_remote(fetch, request, reading.remote)
                    return await in_turns(self._respond(fetch, reading))
                if self._is_enough(reading, fetch, request):
                    return await in_turns(self._respond(fetch, reading))
                is_late = loop.time() >= deadline
                if is_late and (has_all or not await in_turns(self._behind(fetch, request))):
                    return await in_turns(self._respond(fetch, reading))
                poll.set_missing(request.min_bytes - reading.size_bytes)
                # A result too small to be sent may be megabytes: it must not stay in memory during the wait.
                reading = None
                if is_late:
                    await self._flushed(fetch, request)
                    has_all = True
                elif followed is not None:
                    await followed.wait(deadline)
                    fetch = self._with_due(fetch)
                else:
                    await poll.wait(deadline)

    async def _with_remote(
        self, fetch: FetchContext, request: FetchRequest, reads: Sequence[RemoteRead]
    ) -> FetchBudget:
        """Everything, with the data that remote storage returns within remote.fetch.max.wait.ms."""
        tiering = self._services.tiering
        found: Mapping[tuple[ReadableLog, int], RemoteFound | ApiError] = {}
        if tiering is not None:
            found = await tiering.fetches.fetch(reads, self._services.config.remote_fetch_max_wait_ms)
        loop = asyncio.get_running_loop()
        again = FetchPass(self._services, fetch, request, nowait=False, remote=found)
        return await loop.run_in_executor(None, finish, again.read())

    async def _flushed(self, fetch: FetchContext, request: FetchRequest) -> None:
        """Return when what is appended now is visible, or when the disk takes too long for that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_PATIENCE_SECONDS):
                await all_flushed(await self._services.turns.run(self._behind(fetch, request)))

    def _read_or_none(self, fetch: FetchContext, request: FetchRequest) -> Steps[FetchBudget | None]:
        try:
            return (yield from FetchPass(self._services, fetch, request, nowait=True).read())
        except ColdRead:
            return None

    def _watched(self, fetch: FetchContext) -> Iterator[tuple[Replica, int]]:
        """The replicas of the requested partitions, and the most bytes that are wanted of each."""
        for topic, wanted in fetch.partitions:
            name = name_of(topic, fetch)
            replica = None if name is None else self._replicas.get((name, wanted.partition))
            if replica is not None:
                yield replica, wanted.partition_max_bytes

    def _respond(self, fetch: FetchContext, reading: FetchBudget) -> Steps[FetchResponse]:
        topics: list[tuple[TopicKey, list[FetchPartitionResult]]] = []
        followed = _followed(fetch)
        for start in range(0, len(reading.results), CHECKS_PER_STEP):
            if start:
                yield
            try:
                chosen = self.sessions.select(fetch, reading.results[start : start + CHECKS_PER_STEP])
            except ApiError as error:
                return FetchResponse(0, error.code, NO_SESSION, [])
            for topic, result in chosen:
                if not topics or topics[-1][0] != topic:
                    topics.append((topic, []))
                topics[-1][1].append(result)
        if reading.throttled_bytes and self._services.leader_quota is not None:
            self._services.leader_quota.moved(reading.throttled_bytes)
        if followed is not None:
            for key in reading.left:
                followed.come_again(key)
        for name, size_bytes in reading.sizes.items():
            if self._services.catalog.topic(name) is not None:  # A deleted topic gets no new series.
                self._metrics.bytes_out(name, size_bytes)
        session_id = NO_SESSION if fetch.session is None else fetch.session.session_id
        return FetchResponse(0, ErrorCode.NONE, session_id, topics)


def _followed(fetch: FetchContext) -> Followed | None:
    return None if fetch.session is None else fetch.session.due  # type: ignore[return-value]


class _LongPoll:
    """Watches replicas until enough bytes have become readable, or one of them has stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop, request: FetchRequest) -> None:
        self._loop = loop
        self._level = level_of(request)
        self._limits: dict[Replica, int] = {}
        self._seen: dict[Replica, int] = {}
        self._gained: dict[Replica, int] = {}
        self._gained_bytes = 0
        self._woken: asyncio.Future[None] = loop.create_future()
        self._missing_bytes = request.min_bytes

    def set_missing(self, missing_bytes: int) -> None:
        """Wake when this many more bytes have become readable since the watch began."""
        self._missing_bytes = missing_bytes
        if self._gained_bytes >= missing_bytes:
            self._wake()

    def watch(self, watched: Iterable[tuple[Replica, int]]) -> Steps[None]:
        """Begin to watch these replicas; of each at most the given number of bytes is wanted."""
        pace = Pace(CHECKS_PER_STEP)
        for replica, limit_bytes in watched:
            self._limits[replica] = limit_bytes
            self._seen[replica] = replica.readable_bytes(self._level)
            self._gained[replica] = 0
            replica.watch(self, self._level)
            if pace.spent():
                yield

    def __enter__(self) -> _LongPoll:
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self._limits:
            replica.unwatch(self)

    def replica_changed(self, replica: Replica) -> None:
        """Only the bytes of `replica` are counted again: thousands of others may be watched."""
        readable = replica.readable_bytes(self._level)
        gained = min(readable - self._seen[replica], self._limits[replica])
        self._gained_bytes += gained - self._gained[replica]
        self._gained[replica] = gained
        if self._gained_bytes >= self._missing_bytes or replica.stopped is not None:
            self._wake()

    async def wait(self, deadline: float) -> None:
        """Return when woken, or at `deadline` on the loop's clock."""
        timer = self._loop.call_at(deadline, self._wake)
        try:
            await self._woken
        finally:
            timer.cancel()

    def _wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)
