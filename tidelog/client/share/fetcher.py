"""One share session per broker: it fetches records and sends their acknowledgements.

Owns: the loops (one task per broker), the buffer of records that the application has not got yet, and what is
held. Invariants:
- a session has one request at a time, because each raises its epoch. Acknowledgements go with the next fetch
  if there is one; those made while a fetch waits for records are sent after it;
- no more than `max_poll_records` are held, if the broker keeps to the limit in a request;
- nothing is fetched for an application that does not read. A record whose lock ended is not returned;
- at the end each session is closed, which releases what is still held.

For one event loop. Source: KIP-932, KIP-1222, Kafka's ShareConsumeRequestManager.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from tidelog.client.errors import AcknowledgementError, CorruptRecordError
from tidelog.client.share.config import ShareConsumerConfig
from tidelog.client.share.decoding import AcquiredRange, decoded
from tidelog.client.share.held import GAP, AcknowledgeType, HeldPartition
from tidelog.client.share.records import ShareRecord
from tidelog.client.share.session import SESSION_ERRORS, Acknowledged, SharePartition, ShareSession
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition
from tidelog.wire.backoff import Backoff
from tidelog.wire.cluster import Cluster
from tidelog.wire.connection import Connection
from tidelog.wire.errors import ClientError, UnexpectedError, broker_error
from tidelog.wire.events import logger

_LANE: Final = "fetch"
_FIRST_WITH_RENEWALS: Final = 2
_FIRST_LOCK_SECONDS: Final = 30.0
"""Until the first answer, which has the duration of locks."""
_MOST_FAILURES: Final = 5
"""Requests in a row without an answer, after which a broker's locks count as gone."""
_MOST_REFUSED: Final = 10_000
_Wanted = Mapping[SharePartition, TopicPartition]


class _Commit:
    """A call that waits until acknowledgements are settled."""

    def __init__(self, waits_for: dict[HeldPartition, set[int]], done: "asyncio.Future[None]") -> None:
        self._waits_for = waits_for
        self.done = done

    def settled(self, holder: HeldPartition, done: Iterable[int], refused: Iterable[int]) -> None:
        waits_for = self._waits_for.get(holder)
        if waits_for is None:
            return
        waits_for.difference_update(done, refused)
        if not waits_for:
            del self._waits_for[holder]
        if not self._waits_for and not self.done.done():
            self.done.set_result(None)


class ShareFetcher:
    """Fetches for the member `member_id`; created within its loop. `on_data` is called if there are new
    records or errors. `errors` are raised once each, when there are no records."""

    def __init__(
        self, config: ShareConsumerConfig, cluster: Cluster, member_id: str, on_data: Callable[[], None]
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._member_id = member_id
        self._on_data = on_data
        self._loop = asyncio.get_running_loop()
        self._backoff = Backoff(cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms)
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._held: dict[tuple[SharePartition, int], HeldPartition] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._changes: dict[int, asyncio.Event] = {}
        self._connections: dict[int, Connection] = {}
        # How many records the requests under way may bring, by broker.
        self._requested: dict[int, int] = {}
        self._lock_seconds = _FIRST_LOCK_SECONDS
        self._can_renew = True
        self._began_at = self._loop.time()
        self._read_at = -math.inf
        self.waiting_reads = 0
        """Reads of the application that wait for records."""
        self._is_closing = False
        self._commits: list[_Commit] = []
        # Since the last commit.
        self._refusals: dict[TopicPartition, list[int]] = {}
        self.records: deque[ShareRecord] = deque()
        self.errors: dict[object, ClientError] = {}
        self.acknowledged_count = 0
        self.refused_count = 0
        cluster.add_listener(self.wake)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions to fetch from."""
        return self._assigned

    def assign(self, partitions: frozenset[TopicPartition]) -> None:
        """Fetch from exactly these. What is held of others stays held until it is acknowledged."""
        self._assigned = partitions
        self._cluster.watch_topics({key.topic for key in partitions})
        self.wake()

    def idle_seconds(self) -> float:
        """How long the application has neither read nor processed a record."""
        if self.waiting_reads or any(each.is_processing for each in self._held.values()):
            return 0.0
        return self._loop.time() - max(self._read_at, self._began_at)

    def take(self, limit: int) -> list[ShareRecord]:
        """Up to `limit` records, which the application gets now."""
        self._read_at = self._loop.time()
        taken: list[ShareRecord] = []
        while self.records and len(taken) < limit:
            record = self.records.popleft()
            if record.holder.is_unread(record.offset):
                record.holder.returned(record.offset)
                taken.append(record)
        if not self.records:
            self.wake()
        return taken

    def put_back(self, records: Sequence[ShareRecord]) -> None:
        """The application did not get these last ones."""
        for record in records:
            record.holder.not_returned(record.offset)
        self.records.extendleft(reversed(records))

    async def commit(self) -> None:
        """Wait until everything that was acknowledged is settled. Raises AcknowledgementError for what was
        refused since the last call."""
        waits_for = {each: offsets for each in self._held.values() if (offsets := each.unsettled())}
        if waits_for:
            await self._wait_until_settled(waits_for)
        refused, self._refusals = self._refusals, {}
        if refused:
            raise AcknowledgementError(refused)

    async def _wait_until_settled(self, waits_for: dict[HeldPartition, set[int]]) -> None:
        commit = _Commit(waits_for, self._loop.create_future())
        self._commits.append(commit)
        self.wake()
        try:
            await commit.done
        finally:
            self._commits.remove(commit)

    async def close(self) -> None:
        """Send what was acknowledged, and close the sessions. Brokers have request_timeout_ms to answer."""
        self._is_closing = True
        self.wake()
        tasks = list(self._tasks.values())
        try:
            async with asyncio.timeout(self._cluster.config.request_timeout_ms / 1000):
                await asyncio.gather(*tasks, return_exceptions=True)
        except TimeoutError:
            logger.warning("share_session_not_closed", group_id=self._config.group_id)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._give_up(list(self._held.values()))
        self.records.clear()

    def wake(self) -> None:
        """Something changed: look for what to request."""
        leaders = {self._cluster.image.leader(key) for key in self._assigned}
        if -1 in leaders:
            self._cluster.request_refresh()
        holding = {each.node_id for each in self._held.values() if not each.is_idle}
        for node_id in (leaders | holding) - {-1}:
            if node_id not in self._tasks and not self._is_closing:
                self._changes[node_id] = asyncio.Event()
                task = self._tasks[node_id] = self._cluster.spawn(self._serve(node_id))
                task.add_done_callback(lambda task, node_id=node_id: self._reap(node_id, task))  # type: ignore[misc]
        for changed in self._changes.values():
            changed.set()

    def _reap(self, node_id: int, task: "asyncio.Task[None]") -> None:
        del self._tasks[node_id], self._changes[node_id]
        if not task.cancelled() and task.exception() is not None:
            # No commit may wait for what it held, and the broker releases that with the connection.
            self._give_up(self._holders(node_id))
            if node_id in self._connections:
                self._connections[node_id].close()

    # One broker

    async def _serve(self, node_id: int) -> None:
        """Request until there is nothing to read and nothing to acknowledge at this broker."""
        session = ShareSession()
        failures = 0
        while True:
            self._changes[node_id].clear()
            holders = self._holders(node_id)
            if session.is_open and not self._connections[node_id].is_open:
                self._session_ended(session, holders)
            self._expire()
            # A broker releases what a session held when it ends.
            if not session.is_open and (self._is_closing or not self._wanted(node_id)):
                break
            try:
                code = await self._request(node_id, session)
            except ClientError as error:
                logger.debug("share_request_failed", node_id=node_id, error=str(error), failures=failures)
                self._session_ended(session, holders)
                if isinstance(error, UnexpectedError):
                    raise
                if not error.retriable:
                    self._fail(node_id, error)
                self._cluster.request_refresh()
                code = ErrorCode.NETWORK_EXCEPTION
            failures = failures + 1 if code is not ErrorCode.NONE else 0
            if failures >= _MOST_FAILURES:
                self._give_up(holders)
            if failures:
                await asyncio.sleep(self._backoff.delay_ms(failures) / 1000)
        self._give_up(holders)
        self._held = {
            key: each for key, each in self._held.items() if each.node_id != node_id or each.has_ended
        }

    async def _request(self, node_id: int, session: ShareSession) -> ErrorCode:
        """Send the request that is needed most, or wait until one is."""
        wanted, holders = self._wanted(node_id), self._holders(node_id)
        to_send = [each for each in holders if each.has_to_send()]
        is_done = self._is_closing or not (wanted or any(not each.is_idle for each in holders))
        connection = self._connections[node_id] = await self._cluster.connected(node_id, _LANE)
        if session.is_open:
            now, seconds, renews = self._loop.time(), self._lock_seconds, self._renews(connection)
            to_renew = [each for each in holders if each.has_renewals(now, seconds, renews=renews)]
            if is_done:
                is_final = all(each.is_last for each in to_send)
                return await self._acknowledge(
                    connection, session, _taken(to_send), holders, is_final=is_final
                )
            if to_renew:
                batches = {
                    each.share_partition: each.take_renewals(now, seconds, renews=renews) for each in to_renew
                }
                return await self._acknowledge(connection, session, batches, holders, is_renewal=True)
        limit = self._limit(node_id) if wanted else 0
        cannot_wait = (
            not limit or self._commits or any(each.share_partition not in wanted for each in to_send)
        )
        if session.is_open and to_send and cannot_wait:
            return await self._acknowledge(connection, session, _taken(to_send), holders)
        if limit or (to_send and not session.is_open):
            return await self._fetch(node_id, connection, session, wanted, limit or 1)
        await self._wait(node_id, holders)
        return ErrorCode.NONE

    async def _wait(self, node_id: int, holders: Iterable[HeldPartition]) -> None:
        """Wait for a change, or until a lock must be renewed or ends."""
        renews = self._can_renew and self._is_alive
        ends = [each.next_at(self._lock_seconds, renews=renews) for each in holders]
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min((each for each in ends if each is not None), default=None)):
                await self._changes[node_id].wait()

    def _wanted(self, node_id: int) -> _Wanted:
        """The assigned partitions that this node leads."""
        image, found = self._cluster.image, {}
        for key in self._assigned:
            if image.leader(key) == node_id and (topic_id := image.topic_id(key.topic)) is not None:
                found[SharePartition(topic_id, key.partition)] = key
        return found

    def _holders(self, node_id: int) -> list[HeldPartition]:
        return [each for each in self._held.values() if each.node_id == node_id]

    def _limit(self, node_id: int) -> int:
        """How many records the next fetch may bring: 0 while half of what may be held is held, and not all of
        that was read."""
        most = self._config.max_poll_records
        held = sum(each.open_count for each in self._held.values())
        free = most - held - sum(count for node, count in self._requested.items() if node != node_id)
        if free <= 0 or not self._is_alive or (self.records and 2 * free < most):
            return 0
        return min(free, max(1, most // len(self._tasks)))

    @property
    def _is_alive(self) -> bool:
        """Whether the application works: else no records are fetched, and what it has not got is let go."""
        is_processing = any(each.is_processing for each in self._held.values())
        return (
            self.waiting_reads > 0 or is_processing or self._loop.time() - self._read_at < self._lock_seconds
        )

    def _renews(self, connection: Connection) -> bool:
        self._can_renew = connection.version(ApiKey.SHARE_ACKNOWLEDGE) >= _FIRST_WITH_RENEWALS
        return self._can_renew and self._is_alive

    def _expire(self) -> None:
        now = self._loop.time()
        for holder in self._held.values():
            for offset in holder.expire(now):
                logger.warning(
                    "record_lock_ended",
                    topic=holder.key.topic,
                    partition=holder.key.partition,
                    offset=offset,
                    lock_seconds=self._lock_seconds,
                    advice="another member may get it; process it within `record.processing()`",
                )
        if any(not each.holder.is_unread(each.offset) for each in self.records):
            self.records = deque(each for each in self.records if each.holder.is_unread(each.offset))

    # Requests

    async def _acknowledge(
        self,
        connection: Connection,
        session: ShareSession,
        acknowledged: Acknowledged,
        holders: Sequence[HeldPartition],
        *,
        is_final: bool = False,
        is_renewal: bool = False,
    ) -> ErrorCode:
        values: DictOf[types.ShareAcknowledgeRequest] = {
            "group_id": self._config.group_id,
            "member_id": self._member_id,
            "is_renew_ack": is_renewal,
            **session.acknowledge(acknowledged, is_final=is_final),
        }
        answer: types.ShareAcknowledgeResponse = await connection.call(ApiKey.SHARE_ACKNOWLEDGE, values)
        code = error_code(answer.error_code)
        self._locked_for(answer.acquisition_lock_timeout_ms)
        self._answered(session, code, answer.error_message, holders)
        if is_final:
            session.failed()
        self._follow_leaders(answer)
        self._settle(
            code,
            holders,
            acknowledged,
            {
                SharePartition(topic.topic_id, each.partition_index): error_code(each.error_code)
                for topic in answer.responses
                for each in topic.partitions
            },
        )
        return code

    async def _fetch(
        self, node_id: int, connection: Connection, session: ShareSession, wanted: _Wanted, limit: int
    ) -> ErrorCode:
        config, holders = self._config, self._holders(node_id)
        acknowledged = _taken([each for each in holders if each.has_to_send()]) if session.is_open else {}
        wait_ms = config.fetch_max_wait_ms
        if any(each.open_count for each in holders):
            # Renewals wait for the answer.
            wait_ms = min(wait_ms, int(self._lock_seconds * 1000 / 4))
        values: DictOf[types.ShareFetchRequest] = {
            "group_id": config.group_id,
            "member_id": self._member_id,
            "max_wait_ms": wait_ms,
            "min_bytes": config.fetch_min_bytes,
            "max_bytes": config.fetch_max_bytes,
            "max_records": limit,
            "batch_size": limit,
            "share_acquire_mode": config.acquire_code,
            **session.fetch(wanted.keys(), acknowledged),
        }
        self._requested[node_id] = limit
        try:
            answer: types.ShareFetchResponse = await connection.call(
                ApiKey.SHARE_FETCH, values, timeout_ms=wait_ms + self._cluster.config.request_timeout_ms
            )
        finally:
            del self._requested[node_id]
            self.wake()  # Other brokers may be asked for so many records.
        code = error_code(answer.error_code)
        self._locked_for(answer.acquisition_lock_timeout_ms)
        self._answered(session, code, answer.error_message, holders)
        self._follow_leaders(answer)
        found = [
            (SharePartition(topic.topic_id, each.partition_index), each)
            for topic in answer.responses
            for each in topic.partitions
        ]
        codes = {key: error_code(each.acknowledge_error_code) for key, each in found}
        self._settle(code, holders, acknowledged, codes)
        self._expire()
        for key, each in found:
            if key in wanted and each.error_code:
                code = self._refused(wanted[key], error_code(each.error_code), each.error_message)
            elif key in wanted and each.acquired_records:
                self._received(self._holder(key, wanted[key], node_id), each)
        return code

    def _received(self, holder: HeldPartition, answer: "types.ShareFetchResponsePartition") -> None:
        ranges = [
            AcquiredRange(each.first_offset, each.last_offset, each.delivery_count)
            for each in answer.acquired_records
        ]
        lock_end = self._loop.time() + self._lock_seconds
        holder.acquired(chain.from_iterable(range(first, last + 1) for first, last, _ in ranges), lock_end)
        records, gaps, damaged, error = decoded(
            holder, answer.records, ranges, check_crc=self._config.check_crcs
        )
        self.records += records
        holder.passed_over(gaps, GAP)
        holder.passed_over(damaged, AcknowledgeType.RELEASE)
        if error is not None:
            self._fail(holder.key, CorruptRecordError(f"{holder.key.topic}-{holder.key.partition}: {error}"))
        self._on_data()

    def _holder(self, key: SharePartition, named: TopicPartition, node_id: int) -> HeldPartition:
        holder = self._held.get((key, node_id))
        if holder is None:
            holder = self._held[key, node_id] = HeldPartition(named, key, node_id, self.wake)
        return holder

    def _settle(
        self,
        code: ErrorCode,
        holders: Iterable[HeldPartition],
        acknowledged: Acknowledged,
        codes: Mapping[SharePartition, ErrorCode],
    ) -> None:
        """Apply the answer to what was acknowledged: `code` is that of the whole answer."""
        lock_end = self._loop.time() + self._lock_seconds
        for holder in holders:
            if holder.share_partition not in acknowledged or code in SESSION_ERRORS:
                continue
            own = codes.get(holder.share_partition, ErrorCode.NONE) if code is ErrorCode.NONE else code
            self._settled(holder, own, *holder.answered(own, lock_end))

    def _settled(
        self, holder: HeldPartition, code: ErrorCode, done: Sequence[int], refused: Sequence[int]
    ) -> None:
        self.acknowledged_count += len(done)
        self.refused_count += len(refused)
        if refused:
            known = self._refusals.setdefault(holder.key, [])
            known += refused
            del known[:-_MOST_REFUSED]
            logger.warning(
                "acknowledgement_refused",
                topic=holder.key.topic,
                partition=holder.key.partition,
                count=len(refused),
                first_offset=min(refused),
                error=code.name,
            )
        for commit in list(self._commits):
            commit.settled(holder, done, refused)

    def _give_up(self, holders: Iterable[HeldPartition]) -> None:
        """The session is closed or lost: what it held is released."""
        for holder in holders:
            self._settled(holder, ErrorCode.SHARE_SESSION_NOT_FOUND, [], holder.give_up())

    @staticmethod
    def _session_ended(session: ShareSession, holders: Iterable[HeldPartition]) -> None:
        session.failed()
        for holder in holders:
            holder.session_ended()

    def _answered(
        self, session: ShareSession, code: ErrorCode, message: str | None, holders: Iterable[HeldPartition]
    ) -> None:
        """The answer as a whole has this code."""
        session.answered(code)
        if code in SESSION_ERRORS:
            self._session_ended(session, holders)
        if code is not ErrorCode.NONE and not code.retriable:
            what = f"share group {self._config.group_id!r}"
            self._fail(what, broker_error(code, what, message))

    def _locked_for(self, duration_ms: int) -> None:
        if duration_ms > 0:
            self._lock_seconds = duration_ms / 1000

    def _follow_leaders(self, answer: Any) -> None:
        """Take over the leaders that the answer names (KIP-951)."""
        names = {
            topic_id: name
            for name in self._cluster.image.topics
            if (topic_id := self._cluster.image.topic_id(name)) is not None
        }
        leaders = {
            TopicPartition(names[topic.topic_id], each.partition_index): (
                each.current_leader.leader_id,
                each.current_leader.leader_epoch,
            )
            for topic in answer.responses
            for each in topic.partitions
            if each.error_code and topic.topic_id in names
        }
        if leaders:
            endpoints = [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
            self._cluster.leaders_named(leaders, endpoints)

    def _refused(self, key: TopicPartition, code: ErrorCode, message: str | None) -> ErrorCode:
        """A partition was not fetched."""
        self._cluster.request_refresh()
        if not code.retriable:
            self._fail(key, broker_error(code, f"{key.topic}-{key.partition}", message))
        return code

    def _fail(self, what: object, error: ClientError) -> None:
        self.errors[what] = error
        self._on_data()


def _taken(holders: Iterable[HeldPartition]) -> Acknowledged:
    return {each.share_partition: each.take() for each in holders}
