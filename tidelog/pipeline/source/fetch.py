"""Record batches from a broker as they lie in its log, for Spark's tasks and its planner.

Owns how the bytes of an offset range are fetched over the client's connections. The interface is synchronous,
as Spark's workers are; `clients` keeps the connections between the calls.

Invariants: bytes come in the order of offsets and cover the range without gaps, except gaps of the log
itself. A fetch that fails with a retriable error is repeated. Nothing is yielded twice.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from tidelog.client import BrokerError, ClientError, OffsetOutOfRangeError, TopicPartition, UnknownTopicError
from tidelog.client.asked_apis import LAST_BY_NAME
from tidelog.client.errors import read_error
from tidelog.client.offset_lookup import EARLIEST, LATEST, edge_offsets, look_up_offsets
from tidelog.client.producer.session_lookup import repeat
from tidelog.pipeline.arrow.batches import batch_positions
from tidelog.pipeline.offsets import NO_TOPIC_ID, Logs, OffsetRange, Place, fits, require_same_topic
from tidelog.pipeline.source.clients import Client, client_of
from tidelog.protocol.errors import ErrorCode, ProtocolError, error_code
from tidelog.protocol.hot import FetchPartition, FetchRequest, decode_fetch_response, encode_fetch_request
from tidelog.protocol.hot.wire import TopicKey
from tidelog.protocol.records import read_batch_header
from tidelog.protocol.schema import ApiKey
from tidelog.wire.cluster import Cluster
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.connection import Connection
from tidelog.wire.links import result_of

# A little less than a connection's buffer: a larger answer would allocate new memory each time.
FETCH_BYTES = 2 * 1024 * 1024 - 4096
_MAX_WAIT_MS = 500
_FETCH_WITH_ISOLATION = 4
# 30 s (60 times _MAX_WAIT_MS) of waiting for records that the planner has seen.
_MOST_EMPTY_ANSWERS = 60
_ENDS_SECONDS = 1.0
_OTHER_TOPIC = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
_CONSUMER = -1
_NONE = -1


class RecordsMissingError(RuntimeError):
    """A log ends before records that it had when the read was planned: it was truncated or replaced."""

    def __init__(self, offsets: OffsetRange, position: int, end: int) -> None:
        super().__init__(
            f"{offsets.place}: no record at offset {position}. The log ends at {end}, but"
            f" it reached {offsets.end} when the read was planned"
        )


def find_bounds(
    config: ClusterConfig, topics: Iterable[str] | None, assigned: Iterable[Place] | None
) -> dict[Place, tuple[int, int]]:
    """The bounds that `find_logs` finds, up to the high watermarks."""
    return find_logs(config, topics, assigned).bounds


def find_logs(
    config: ClusterConfig,
    topics: Iterable[str] | None,
    assigned: Iterable[Place] | None,
    pattern: str | None = None,
    *,
    read_committed: bool = False,
) -> Logs:
    """The ids of the topics, and of each log its first offset, its end and its leader now: of all partitions
    of `topics`, of those assigned, or of all topics whose whole name matches the regular expression `pattern`
    (possibly none). The end is the high watermark, with `read_committed` the last stable offset: before the
    first open transaction.

    Raises ClientError if the broker cannot be reached, or does not know a topic or partition.
    """
    with client_of(config) as client:
        return client.run(_find_logs(client, topics, assigned, pattern, read_committed))


def find_ends(
    config: ClusterConfig, places: Iterable[Place], *, read_committed: bool = False
) -> dict[Place, int] | None:
    """The ends of these logs, as in `find_logs`; None if a leader does not know one at once."""
    times = dict.fromkeys(places, LATEST)
    try:
        with client_of(config) as client:
            return client.run(
                asyncio.wait_for(_find_offsets_at(client, times, read_committed), _ENDS_SECONDS)
            )
    except (ClientError, TimeoutError):
        return None


def find_offsets_at(
    config: ClusterConfig, times: Mapping[Place, int], *, read_committed: bool = False
) -> dict[Place, int]:
    """For each partition the first offset whose timestamp is not before the given one (milliseconds), -1 if
    none lies before the log's end (as in `find_bounds`). Raises ClientError."""
    with client_of(config) as client:
        return client.run(_find_offsets_at(client, times, read_committed))


def commit_offsets(config: ClusterConfig, group_id: str, offsets: Mapping[Place, int]) -> None:
    """Commit for a group without members. Raises ClientError."""
    from tidelog.client.admin.groups import GroupAdmin
    from tidelog.client.admin.requests import Requests

    with client_of(config) as client:
        client.run(client.know(()))
        wanted = {TopicPartition(*place): offset for place, offset in offsets.items()}
        client.run(GroupAdmin(Requests(client.cluster)).commit(group_id, wanted))


class Answer(NamedTuple):
    """The answer to one Fetch: the records from the batch that holds the offset on (empty if none came in
    time), the log's end for this reader, and the aborted transactions as (producer id, first offset)."""

    data: bytes
    end: int
    aborted: Sequence[tuple[int, int]]


def read_answers(
    config: ClusterConfig,
    offsets: OffsetRange,
    *,
    topic_id: str | None = None,
    read_committed: bool = False,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[Answer]:
    """Whole record batches that hold the range, in pieces of about `fetch_bytes`. The first batch may begin
    before the range, and the last may end after it. A piece may end with a truncated batch; the next piece
    repeats that batch. No piece is empty.

    Raises OffsetsLostError if the topic's id is not `topic_id` (None: any), OffsetOutOfRangeError for deleted
    records, other ClientErrors if the broker cannot be reached or refuses, ProtocolError for a batch with a
    malformed header.
    """
    with client_of(config) as client:
        reader = _RangeReader(client.cluster, offsets, topic_id, fetch_bytes, read_committed)
        client.run(client.know([offsets.topic]))
        position = offsets.start
        fetching = client.begin(reader.fetch(position))
        empty_answers = 0
        while position < offsets.end:
            answer = client.run(result_of(fetching))
            data = answer.data
            empty_answers = 0 if data else empty_answers + 1
            if empty_answers > _MOST_EMPTY_ANSWERS:
                raise RecordsMissingError(offsets, position, answer.end)
            position = next_offset(data, position)
            if not data and answer.end >= offsets.end:
                position = offsets.end
            if position < offsets.end:
                fetching = client.begin(reader.fetch(position))
            else:
                client.run(reader.check_topic())
            if data:
                yield answer


async def _find_logs(
    client: Client,
    topics: Iterable[str] | None,
    assigned: Iterable[Place] | None,
    pattern: str | None,
    read_committed: bool,
) -> Logs:
    cluster = client.cluster
    if pattern is not None:
        await client.know(())
        topics = await _matching_topics(cluster, pattern)
    assigned = None if assigned is None else list(assigned)
    wanted = list(topics or {place.topic for place in assigned or ()})
    await client.know(wanted, anew=True)
    places = await _places(cluster, wanted, assigned)
    keys = [TopicPartition(*place) for place in places]
    starts, ends = await asyncio.gather(
        *(edge_offsets(cluster, keys, edge, int(read_committed)) for edge in (EARLIEST, LATEST))
    )
    infos = [await cluster.topic(name) for name in wanted]
    ids = {info.name: str(info.topic_id) for info in infos if info.topic_id != NO_TOPIC_ID}
    leaders = {Place(*key): cluster.image.leader(key) for key in keys}
    return Logs({Place(*key): (starts[key], ends[key]) for key in keys}, ids, leaders)


async def _find_offsets_at(
    client: Client, times: Mapping[Place, int], read_committed: bool
) -> dict[Place, int]:
    await client.know({place.topic for place in times})
    await _places(client.cluster, (), times)
    wanted = {TopicPartition(*place): time for place, time in times.items()}
    found = await look_up_offsets(client.cluster, wanted, int(read_committed))
    return {Place(*key): each.offset for key, each in found.items()}


async def _matching_topics(cluster: Cluster, pattern: str) -> list[str]:
    """The names of matching topics, without internal ones, sorted."""
    answer = await cluster.call_any(ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": False})
    names = [
        each.name for each in answer.topics if not each.is_internal and each.error_code == ErrorCode.NONE
    ]
    return sorted(name for name in names if fits(pattern, name))


async def _places(cluster: Cluster, topics: Iterable[str], assigned: Iterable[Place] | None) -> list[Place]:
    if assigned is None:
        infos = [await cluster.topic(name) for name in topics]
        return [Place(info.name, each.partition) for info in infos for each in info.partitions]
    places = list(assigned)
    for place in places:
        count = len((await cluster.topic(place.topic)).partitions)
        if place.partition >= count:
            what = f"{place} (the topic has {count} partitions)"
            raise UnknownTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {what}")
    return places


class _RangeReader:
    """The requests for the records of one range. If the broker knows topics by id, each names the id."""

    def __init__(
        self,
        cluster: Cluster,
        offsets: OffsetRange,
        topic_id: str | None,
        fetch_bytes: int,
        read_committed: bool,
    ) -> None:
        self._place = offsets.place
        self._topic_id = None if topic_id is None else UUID(topic_id)
        self._fetch_bytes = fetch_bytes
        self._read_committed = read_committed
        self._cluster = cluster
        self._has_asked_by_name = False

    async def check_topic(self) -> None:
        """If a request named no id: raises OffsetsLostError if another topic has the name now."""
        if self._topic_id is not None and self._has_asked_by_name:
            await repeat(self._cluster, self._cluster.refresh)
            self._require_same_topic()

    def _require_same_topic(self) -> None:
        info = self._cluster.image.topics.get(self._place.topic)
        if self._topic_id is not None and info is not None and info.topic_id != NO_TOPIC_ID:
            require_same_topic(info.name, str(self._topic_id), str(info.topic_id))

    async def fetch(self, offset: int) -> Answer:
        """The records, starting with the batch that holds `offset`. Raises OffsetOutOfRangeError,
        OffsetsLostError if the topic was created again."""
        try:
            return await repeat(self._cluster, lambda: self._ask(offset))
        except OffsetOutOfRangeError as error:
            text = f"{self._place}: offset {offset} is gone or was never written"
            raise OffsetOutOfRangeError(error.code, text) from None

    async def _ask(self, offset: int) -> Answer:
        await self._cluster.topic(self._place.topic)
        connection = await self._cluster.leader_connection(TopicPartition(*self._place))
        at_least = _FETCH_WITH_ISOLATION if self._read_committed else 0
        version = connection.version(ApiKey.FETCH, at_least)
        topic: TopicKey | None = self._topic_id
        if version <= LAST_BY_NAME[ApiKey.FETCH] or topic is None:
            version = min(version, LAST_BY_NAME[ApiKey.FETCH])
            topic = self._place.topic
            if not self._has_asked_by_name:
                self._has_asked_by_name = True
                await self.check_topic()
        try:
            return await self._ask_leader(connection, version, topic, offset)
        except BrokerError as error:
            if error.code in _OTHER_TOPIC:
                await self._cluster.refresh()
                self._require_same_topic()
            raise

    async def _ask_leader(self, connection: Connection, version: int, topic: TopicKey, offset: int) -> Answer:
        partition = FetchPartition(self._place.partition, _NONE, offset, _NONE, _NONE, self._fetch_bytes)
        isolation_level = int(self._read_committed)
        request = FetchRequest(
            _CONSUMER, _MAX_WAIT_MS, 1, self._fetch_bytes, isolation_level, 0, _NONE, [(topic, [partition])]
        )
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def receive(body: memoryview | None, error: ClientError | None) -> None:
            if answer.done():
                return
            try:
                if body is None:
                    raise error or ProtocolError("a connection closed without an error")
                answer.set_result(self._unpack(version, body))
            except (ClientError, ProtocolError) as reason:
                answer.set_exception(reason)

        connection.send(ApiKey.FETCH, version, encode_fetch_request(version, request), receive)
        return await answer

    def _unpack(self, version: int, body: memoryview) -> Answer:
        response = decode_fetch_response(version, body)
        what = f"records of {self._place}"
        _raise_if_refused(response.error_code, what)
        if not response.topics:
            # Apache Kafka answers so where a quota throttles the read, and then reads no request for a while.
            return Answer(b"", _NONE, ())
        if len(response.topics) != 1 or len(response.topics[0][1]) != 1:
            raise ProtocolError(f"{what}: expected one partition in the answer, got {response.topics!r:.200}")
        result = response.topics[0][1][0]
        _raise_if_refused(result.error_code, what)
        records: Any = result.records
        end = result.last_stable_offset if self._read_committed else result.high_watermark
        return Answer(bytes(records or b""), end, result.aborted_transactions or ())


def next_offset(data: bytes, position: int) -> int:
    """The offset after the last whole batch. Raises ProtocolError for bytes without a whole batch."""
    places = batch_positions(data)
    if places:
        return max(position, read_batch_header(data, places[-1]).last_offset + 1)
    if data:
        raise ProtocolError(f"{len(data)} bytes at offset {position} hold no whole record batch")
    return position


def _raise_if_refused(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise read_error(error_code(code), what)
