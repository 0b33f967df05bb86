"""Fetches ahead: one long poll per broker for the assigned partitions, within a bound on memory.

Owns: the loops (one task per broker) and the reset of positions. Invariants:
- a partition is fetched from the end of its reader's bytes. An answer that comes after a seek is dropped;
- a partition is not fetched while it is paused, while it has `max_partition_fetch_bytes` unread, or while
  `buffer_bytes` of all partitions are unread. One answer per broker may exceed these limits;
- the next fetch is sent before the application reads the last answer, except at the end of the log;
- a position belongs to one topic id: in a new topic of the same name it means nothing, so the reset policy
  decides where to continue, after the records fetched before were read. If a broker no longer knows a topic,
  it is fetched again only after the metadata was;
- a position is validated before it is fetched from a leader of another epoch (`validation`);
- retriable errors are retried with backoff; other errors are raised by the next read of the partition.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from tidelog.client.consumer.config import RESET_TIMESTAMPS, ConsumerConfig
from tidelog.client.consumer.fetch_answers import FetchAnswers, Verdict
from tidelog.client.consumer.fetch_session import FINAL_EPOCH, FetchSession
from tidelog.client.consumer.partition_reader import PartitionReader
from tidelog.client.consumer.validation import validate
from tidelog.client.offset_lookup import LATEST, look_up_offsets
from tidelog.client.types import OffsetAndTimestamp
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import (
    FIRST_BY_ID,
    FetchPartition,
    FetchRequest,
    decode_fetch_response,
    encode_fetch_request,
)
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from tidelog.wire.backoff import Backoff
from tidelog.wire.cluster import Cluster
from tidelog.wire.connection import Connection
from tidelog.wire.errors import ClientError, UnexpectedError, broker_error
from tidelog.wire.events import logger

_CONSUMER: Final = -1
_LANE: Final = "fetch"
# The longest poll while another partition of the same broker is not fetched because it has too much unread.
_SHORT_WAIT_MS: Final = 25
# How long to wait for the end of a session. Without it the broker drops the session later.
_SESSION_END_TIMEOUT_S: Final = 1.0


class Fetcher:
    """Fetches records ahead for one consumer; created within its loop. `on_data` is called if a reader has
    new records or an error."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        readers: dict[TopicPartition, PartitionReader],
        on_data: Callable[[], None],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._readers = readers
        self._on_data = on_data
        self._backoff = Backoff(cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms)
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._sessions: dict[int, FetchSession] = {}
        self._changes: dict[int, asyncio.Event] = {}
        self._unknown: set[TopicPartition] = set()
        self._is_scheduled = False
        self._is_closed = False
        self._is_waiting_for_reads = False
        policy = RESET_TIMESTAMPS[config.auto_offset_reset]
        self._reset_timestamp = policy
        self._answers = FetchAnswers(policy, cluster, self.wake)

    def wake(self) -> None:
        """Readers, positions or leaders changed."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._start_tasks)

    def on_read(self) -> None:
        """Bytes were read, so more may be fetched."""
        if self._is_waiting_for_reads:
            self._is_waiting_for_reads = False
            self.wake()

    async def close(self) -> None:
        """Stop. The readers keep the fetched bytes."""
        self._is_closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(self._end_session(*each) for each in self._sessions.items()))

    def _start_tasks(self) -> None:
        """Start the tasks that are needed, and wake the others."""
        self._is_scheduled = False
        if self._is_closed:
            return
        leader_of = self._cluster.image.leader
        lost = ((key.topic, leader_of(key)) for key in self._readers if self._is_lost(key))
        for topic, leader in dict.fromkeys(lost):
            # Partitions without a leader, or with one that does not answer, must not delay the others.
            work = partial(self._find_positions, topic, leader)
            self._spawn(("positions", topic, leader), work)
        for leader in {leader_of(key) for key, each in self._readers.items() if self._is_doubtful(each)} - {
            -1
        }:
            self._spawn(("validation", leader), partial(self._validate, leader))
        if any(leader_of(key) < 0 for key in self._readers):
            self._cluster.request_refresh()
            self._fail_forbidden()
            self._warn_of_unknown()
        for node in {self._node(reader) for reader in self._readers.values()} - {-1}:
            self._changes.setdefault(node, asyncio.Event()).set()
            self._spawn(node, lambda node=node: self._poll_node(node))  # type: ignore[misc]

    def _fail_forbidden(self) -> None:
        """Readers of topics that the user may not see, which have no leader therefore."""
        for key, reader in self._readers.items():
            info = self._cluster.image.topics.get(key.topic)
            code = ErrorCode.NONE if info is None else info.error
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED and reader.error is None:
                reader.fail(broker_error(code, f"topic {key.topic!r}"))
                self._on_data()

    def _warn_of_unknown(self) -> None:
        """Log once each partition that its topic does not have: its reader waits until it is added."""
        for key in self._readers.keys() - self._unknown:
            info = self._cluster.image.topics.get(key.topic)
            if info is not None and 0 < len(info.partitions) <= key.partition:
                self._unknown.add(key)
                count = len(info.partitions)
                logger.warning(
                    "partition_not_found", topic=key.topic, partition=key.partition, partition_count=count
                )

    def _spawn(self, name: object, work: Callable[[], Any]) -> None:
        if name not in self._tasks:
            task = self._tasks[name] = self._cluster.spawn(work())
            task.add_done_callback(lambda task: self._reap(name, task))

    def _reap(self, name: object, task: "asyncio.Task[None]") -> None:
        del self._tasks[name]
        # If it was cancelled, the loop ends: a new task would be destroyed with it.
        if not task.cancelled() and task.exception() is None:
            self.wake()  # What it is needed for may have come after its last step.

    # Positions

    def _is_lost(self, key: TopicPartition) -> bool:
        """Whether its position must be found."""
        reader = self._readers[key]
        return reader.position is None and reader.error is None and reader.reset_timestamp is not None

    async def _find_positions(self, topic: str, leader: int) -> None:
        """Find positions for the topic's readers without one that this node leads (-1: that none leads), by a
        seek's or the policy's timestamp."""
        lost = [
            (reader, reader.generation)
            for key, reader in self._readers.items()
            if key.topic == topic and self._cluster.image.leader(key) == leader and self._is_lost(key)
        ]
        error = await self._place(lost)
        if error is not None and error.retriable:
            logger.warning("positions_not_found", topic=topic, error=str(error))
            await asyncio.sleep(self._backoff.delay_ms(1) / 1000)
        elif error is not None:
            # Perhaps only one partition failed, so ask for each alone.
            errors = await asyncio.gather(*(self._place([each]) for each in lost))
            for (reader, generation), own in zip(lost, errors, strict=True):
                if own is not None and not own.retriable and reader.generation == generation:
                    reader.fail(own)
        self._on_data()

    async def _place(self, lost: Sequence[tuple[PartitionReader, int]]) -> ClientError | None:
        """Find positions for these readers, except those moved by a seek meanwhile. Returns the error."""
        wanted = {reader.key: reader.reset_timestamp or 0 for reader, _ in lost}
        readers = {each[0].key: each for each in lost}
        topic_id = self._cluster.image.topic_id
        ids = {key.topic: topic_id(key.topic) for key in readers}

        def place(key: TopicPartition, found: OffsetAndTimestamp) -> None:
            reader, generation = readers[key]
            if reader.generation == generation:
                if found.offset >= 0:
                    _report_passed_over(reader, found.offset)
                    reader.seek(found.offset, found.leader_epoch, ids[key.topic])
                    reader.valid_in = self._cluster.image.leader_epoch(key)
                else:
                    # All records are older than the timestamp.
                    reader.reset(LATEST)
                self._on_data()
                self.wake()

        try:
            await look_up_offsets(self._cluster, wanted, self._config.isolation_code, on_found=place)
        except ClientError as error:
            return error
        return None

    def _is_doubtful(self, reader: PartitionReader) -> bool:
        """Whether its position must be validated at the present leader first."""
        if reader.position is None or reader.error is not None or reader.is_suspended:
            return False
        image, key = self._cluster.image, reader.key
        if reader.is_valid_in(image.leader_epoch(key)):
            return False
        # In another topic of this name the position means nothing.
        return reader.lost is None and reader.is_of(image.topic_id(key.topic))

    async def _validate(self, leader: int) -> None:
        """Validate the positions of the readers that this node leads, and that need it."""
        doubtful = [
            reader
            for key, reader in self._readers.items()
            if self._cluster.image.leader(key) == leader and self._is_doubtful(reader)
        ]
        lose = self._answers.lose_position
        error = await validate(self._cluster, leader, doubtful, self._reset_timestamp, lose)
        if error is not None and error.retriable:
            logger.debug("positions_not_validated", node_id=leader, error=str(error))
            self._cluster.request_refresh()
            await asyncio.sleep(self._backoff.delay_ms(1) / 1000)
        elif error is not None:
            for reader in doubtful:
                reader.fail(error)
        self._on_data()

    # Polling

    def _node(self, reader: PartitionReader) -> int:
        """The node to fetch from: the leader, or the replica that it named (KIP-392). -1 if there is none."""
        image, replica = self._cluster.image, reader.read_replica
        if replica is not None:
            if replica in image.nodes and self._loop.time() < reader.read_replica_until:
                return replica
            reader.read_replica = None
        return image.leader(reader.key)

    async def _poll_node(self, node: int) -> None:
        failures = 0
        session = self._sessions.setdefault(node, FetchSession())
        while True:
            changed = self._changes[node]
            changed.clear()
            wanted, waits_shortly = self._wanted(node)
            if not wanted:
                if all(self._node(reader) != node for reader in self._readers.values()):
                    return
                self._is_waiting_for_reads |= waits_shortly
                await changed.wait()
                continue
            try:
                connection = await self._cluster.connected(node, _LANE)
                verdict = await self._fetch(connection, session, wanted, waits_shortly)
                if verdict is Verdict.ASK_ANEW:
                    logger.debug("fetch_session_lost", node_id=node)
                    continue
                failures = failures + 1 if verdict is Verdict.PAUSE else 0
            except ClientError as error:
                session.failed()
                if isinstance(error, UnexpectedError):
                    raise
                failures += 1
                logger.debug("fetch_failed", node_id=node, error=str(error), failures=failures)
                if not error.retriable:
                    for reader, _ in wanted:
                        reader.fail(error)
                for reader, _ in wanted:
                    self._answers.leave_read_replica(reader)
                self._cluster.request_refresh()
            self._on_data()
            if failures:
                await asyncio.sleep(self._backoff.delay_ms(failures) / 1000)
            elif all(reader.fetch_offset >= reader.high_watermark for reader, _ in wanted):
                # The next fetch would only wait at the broker, and to send it takes longer than to read a few
                # records.
                await asyncio.sleep(0)

    def _wanted(self, node: int) -> tuple[list[tuple[PartitionReader, int]], bool]:
        """Readers to fetch for, with their generation, and whether others are left out only because of what
        is unread. A reader whose topic was created again has no position any more."""
        unread_bytes = sum(reader.buffered_bytes for reader in self._readers.values())
        remaining_bytes = self._config.buffer_bytes - unread_bytes
        wanted: list[tuple[PartitionReader, int]] = []
        is_full = False
        for key, reader in self._readers.items():
            if self._node(reader) != node or reader.is_stopped:
                continue
            if reader.position is None or reader.error is not None:
                continue
            if self._is_doubtful(reader):
                continue
            if reader.doubted_image is self._cluster.image:
                self._cluster.request_refresh()
                continue
            if not reader.is_of(self._cluster.image.topic_id(key.topic)):
                reader.lost = "the topic was deleted and created again"
            if reader.lost:
                if reader.has_unread:
                    is_full = True
                else:
                    self._answers.lose_position(reader, reader.lost)
                    self._on_data()
            elif remaining_bytes <= 0 or reader.buffered_bytes >= self._config.max_partition_fetch_bytes:
                is_full = True
            else:
                wanted.append((reader, reader.generation))
        return wanted, is_full

    async def _fetch(
        self,
        connection: Connection,
        session: FetchSession,
        wanted: Iterable[tuple[PartitionReader, int]],
        waits_shortly: bool,
    ) -> Verdict:
        """Send one request. When this returns, the readers have the answer's bytes: they copy them while the
        answer is in the connection's buffer."""
        config = self._config
        max_bytes = config.max_partition_fetch_bytes
        partitions = {
            reader.key: FetchPartition(
                reader.key.partition,
                reader.valid_in,
                reader.fetch_offset,
                NO_LEADER_EPOCH,
                NO_OFFSET,
                max_bytes,
            )
            for reader, _ in wanted
        }
        wait_ms = min(config.fetch_max_wait_ms, _SHORT_WAIT_MS) if waits_shortly else config.fetch_max_wait_ms
        # Partitions may have been given up while this consumer connected.
        ids = {reader.key.topic: reader.topic_id for reader, _ in wanted if reader.topic_id is not None}
        version = connection.version(ApiKey.FETCH)
        if any(key.topic not in ids for key in partitions):
            version = min(version, FIRST_BY_ID - 1)
        ask = session.ask(partitions, version, ids)
        request = FetchRequest(
            _CONSUMER,
            wait_ms,
            config.fetch_min_bytes,
            config.fetch_max_bytes,
            config.isolation_code,
            ask.session_id,
            ask.epoch,
            ask.topics,
            ask.forgotten,
            self._answers.rack(config.client_rack),
        )
        asked = [(reader, generation, reader.fetch_offset, reader.valid_in) for reader, generation in wanted]
        answer: asyncio.Future[Verdict] = self._loop.create_future()

        def handle(body: memoryview | None, error: ClientError | None) -> None:
            if answer.done():
                return
            if body is not None:
                response = decode_fetch_response(version, body)
                if version >= FIRST_BY_ID:
                    response = session.by_name(response)
                try:
                    answer.set_result(self._answers.take(session, response, asked))
                except ClientError as refused:
                    error = refused
            if error is not None:
                answer.set_exception(error)

        timeout_ms = wait_ms + self._cluster.config.request_timeout_ms
        connection.send(ApiKey.FETCH, version, encode_fetch_request(version, request), handle, timeout_ms)
        return await answer

    async def _end_session(self, leader: int, session: FetchSession) -> None:
        """Close the session at the broker, on the connection without long polls."""
        connection = self._cluster.connection(leader) if session.is_open else None
        if connection is None:
            return
        values = {
            "replica_id": _CONSUMER,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "session_id": session.session_id,
            "session_epoch": FINAL_EPOCH,
            "topics": [],
        }
        with contextlib.suppress(TimeoutError, ClientError):
            async with asyncio.timeout(_SESSION_END_TIMEOUT_S):
                await connection.call(ApiKey.FETCH, values)


def _report_passed_over(reader: PartitionReader, offset: int) -> None:
    """Log how many offsets a reader skips that continues at `offset` after it lost its position."""
    if reader.lost_at is None or offset <= reader.lost_at:
        return
    advice = "they were deleted before they were read; read faster, or keep records for longer"
    if reader.reset_timestamp == LATEST:
        advice = "the first of them were deleted; auto_offset_reset=earliest would read the remaining ones"
    logger.warning(
        "offsets_passed_over",
        partition=f"{reader.key.topic}-{reader.key.partition}",
        from_offset=reader.lost_at,
        to_offset=offset,
        count=offset - reader.lost_at,
        advice=advice,
    )
