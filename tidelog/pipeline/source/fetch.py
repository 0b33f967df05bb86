"""Record batches from a broker as they lie in its log, for Spark's tasks and its planner.

Owns how the bytes of an offset range are fetched over the client's connections. The interface is synchronous,
as Spark's workers are: each call runs its own event loop and closes it at the end.

Invariants: bytes come in the order of offsets and cover the range without gaps, except gaps of the log
itself. A fetch that fails with a retriable error is repeated. Nothing is yielded twice.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tidelog.client import ClientError, OffsetOutOfRangeError, TopicPartition, UnknownTopicError
from tidelog.client.asked_apis import ASKED_APIS, LAST_BY_NAME
from tidelog.client.errors import read_error
from tidelog.client.offset_lookup import EARLIEST, LATEST, edge_offsets, look_up_offsets
from tidelog.client.producer.session_lookup import repeat
from tidelog.pipeline.arrow.batches import batch_positions
from tidelog.pipeline.offsets import NO_TOPIC_ID, Logs, OffsetRange, Place, fits, require_same_topic
from tidelog.protocol.errors import ErrorCode, ProtocolError, error_code
from tidelog.protocol.hot import FetchPartition, FetchRequest, decode_fetch_response, encode_fetch_request
from tidelog.protocol.records import read_batch_header
from tidelog.protocol.schema import ApiKey
from tidelog.wire.cluster import Cluster
from tidelog.wire.cluster_config import ClusterConfig

# A little less than a connection's buffer: a larger answer would allocate new memory each time.
FETCH_BYTES = 2 * 1024 * 1024 - 4096
_MAX_WAIT_MS = 500
_FETCH_WITH_ISOLATION = 4
# 30 s (60 times _MAX_WAIT_MS) of waiting for records that the planner has seen.
_MOST_EMPTY_ANSWERS = 60
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
    return asyncio.run(_find_logs(config, topics, assigned, pattern, read_committed))


def find_offsets_at(
    config: ClusterConfig, times: Mapping[Place, int], *, read_committed: bool = False
) -> dict[Place, int]:
    """For each partition the first offset whose timestamp is not before the given one (milliseconds), -1 if
    none lies before the log's end (as in `find_bounds`). Raises ClientError.
    """
    return asyncio.run(_find_offsets_at(config, times, read_committed))


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
    loop = asyncio.new_event_loop()
    reader = _RangeReader(config, offsets, topic_id, fetch_bytes, read_committed)
    try:
        loop.run_until_complete(reader.start())
        position = offsets.start
        fetching = loop.create_task(reader.fetch(position))
        empty_answers = 0
        while True:
            answer = loop.run_until_complete(fetching)
            data = answer.data
            empty_answers = 0 if data else empty_answers + 1
            if empty_answers > _MOST_EMPTY_ANSWERS:
                raise RecordsMissingError(offsets, position, answer.end)
            position = next_offset(data, position)
            is_last = position >= offsets.end or (not data and answer.end >= offsets.end)
            if not is_last:
                fetching = loop.create_task(reader.fetch(position))
                # One turn of the loop sends the request.
                loop.run_until_complete(asyncio.sleep(0))
            elif topic_id is not None:
                # Fetch names no id: the whole range is of this topic if it is still there now.
                loop.run_until_complete(reader.check_topic())
            if data:
                yield answer
            if is_last:
                return
    finally:
        loop.run_until_complete(reader.close())
        loop.close()


async def _find_logs(
    config: ClusterConfig,
    topics: Iterable[str] | None,
    assigned: Iterable[Place] | None,
    pattern: str | None,
    read_committed: bool,
) -> Logs:
    async with Cluster(config, ASKED_APIS) as cluster:
        if pattern is not None:
            topics = await _matching_topics(cluster, pattern)
        places = await _places(cluster, topics, assigned)
        keys = [TopicPartition(*place) for place in places]
        starts, ends = await asyncio.gather(
            *(edge_offsets(cluster, keys, edge, int(read_committed)) for edge in (EARLIEST, LATEST))
        )
        infos = [await cluster.topic(name) for name in {place.topic for place in places}]
        ids = {info.name: str(info.topic_id) for info in infos if info.topic_id != NO_TOPIC_ID}
        leaders = {Place(*key): cluster.image.leader(key) for key in keys}
        return Logs({Place(*key): (starts[key], ends[key]) for key in keys}, ids, leaders)


async def _find_offsets_at(
    config: ClusterConfig, times: Mapping[Place, int], read_committed: bool
) -> dict[Place, int]:
    async with Cluster(config, ASKED_APIS) as cluster:
        await _places(cluster, None, times)
        wanted = {TopicPartition(*place): time for place, time in times.items()}
        found = await look_up_offsets(cluster, wanted, int(read_committed))
        return {Place(*key): each.offset for key, each in found.items()}


async def _matching_topics(cluster: Cluster, pattern: str) -> list[str]:
    """The names of matching topics, without internal ones, sorted."""
    answer = await cluster.call_any(ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": False})
    names = [
        each.name for each in answer.topics if not each.is_internal and each.error_code == ErrorCode.NONE
    ]
    return sorted(name for name in names if fits(pattern, name))


async def _places(
    cluster: Cluster, topics: Iterable[str] | None, assigned: Iterable[Place] | None
) -> list[Place]:
    if assigned is None:
        infos = [await cluster.topic(name) for name in topics or ()]
        return [Place(info.name, each.partition) for info in infos for each in info.partitions]
    places = list(assigned)
    for place in places:
        count = len((await cluster.topic(place.topic)).partitions)
        if place.partition >= count:
            what = f"{place} (the topic has {count} partitions)"
            raise UnknownTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {what}")
    return places


class _RangeReader:
    """The connection for one range, and the requests for its records."""

    def __init__(
        self,
        config: ClusterConfig,
        offsets: OffsetRange,
        topic_id: str | None,
        fetch_bytes: int,
        read_committed: bool,
    ) -> None:
        self._place = offsets.place
        self._topic_id = topic_id
        self._fetch_bytes = fetch_bytes
        self._read_committed = read_committed
        self._cluster = Cluster(config, ASKED_APIS)

    async def start(self) -> None:
        await self._cluster.start()
        await self._cluster.topic(self._place.topic)
        self._require_same_topic()

    async def check_topic(self) -> None:
        """Raises OffsetsLostError if another topic has the name now."""
        await repeat(self._cluster, self._cluster.refresh)
        self._require_same_topic()

    def _require_same_topic(self) -> None:
        info = self._cluster.image.topics.get(self._place.topic)
        if info is not None and info.topic_id != NO_TOPIC_ID:
            require_same_topic(info.name, self._topic_id, str(info.topic_id))

    async def close(self) -> None:
        await self._cluster.close()
        stray = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in stray:
            task.cancel()
        await asyncio.gather(*stray, return_exceptions=True)

    async def fetch(self, offset: int) -> Answer:
        """The records, starting with the batch that holds `offset`. Raises OffsetOutOfRangeError."""
        try:
            return await repeat(self._cluster, lambda: self._ask(offset))
        except OffsetOutOfRangeError as error:
            text = f"{self._place}: offset {offset} is gone or was never written"
            raise OffsetOutOfRangeError(error.code, text) from None

    async def _ask(self, offset: int) -> Answer:
        connection = await self._cluster.leader_connection(TopicPartition(*self._place))
        at_least = _FETCH_WITH_ISOLATION if self._read_committed else 0
        version = connection.version(ApiKey.FETCH, at_least, LAST_BY_NAME[ApiKey.FETCH])
        partition = FetchPartition(self._place.partition, _NONE, offset, _NONE, _NONE, self._fetch_bytes)
        topics = [(self._place.topic, [partition])]
        isolation_level = int(self._read_committed)
        request = FetchRequest(
            _CONSUMER, _MAX_WAIT_MS, 1, self._fetch_bytes, isolation_level, 0, _NONE, topics
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
