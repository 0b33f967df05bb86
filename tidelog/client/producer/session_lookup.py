"""Finds out which records of a session a partition holds, from its leader's memory or from the log.

Owns: the requests, and their repetition while leaders change. Invariants: the records found are on the
leader's disk, as far as a broker can be made to wait for that, because skipped records are not sent again.
The log is read only if the leader's memory does not suffice: it does not serve DescribeProducers, forgot the
producer, or knows it under a later epoch than the session. Source: KIP-664 (DescribeProducers), KIP-734 (max
timestamp, for which our broker waits for the disk).
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from tidelog.client.asked_apis import LAST_BY_NAME
from tidelog.client.errors import OffsetOutOfRangeError, SessionError, read_error
from tidelog.client.offset_lookup import EARLIEST, LATEST, look_up_offsets
from tidelog.client.producer.session import Found, SessionPartition, found_in_batches, found_in_entry
from tidelog.client.retries import Retries
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.records import BatchHeader, iter_batches
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition
from tidelog.wire.cluster import FAILURES_BEFORE_WARNING, Cluster
from tidelog.wire.errors import ClientError, RequestTimeoutError, UnsupportedVersionError
from tidelog.wire.events import logger

_T = TypeVar("_T")
_MAX_TIMESTAMP: Final = -3
_FIRST_VERSION_WITH_MAX_TIMESTAMP: Final = 7
_FETCH_BYTES: Final = 4 * 1024 * 1024


class ProducerEntry(NamedTuple):
    """A producer's entry in a leader's memory."""

    producer_epoch: int
    last_sequence: int


async def find_stored(
    cluster: Cluster, key: TopicPartition, producer_id: int, saved: SessionPartition, *, is_recent: bool
) -> Found:
    """The session's records in the partition after `saved`.

    `is_recent`: no broker can have forgotten records stored since then. Raises SessionError if it cannot find
    out, or if records are lost; RequestTimeoutError if no leader answers within request_timeout_ms.
    """
    try:
        entry = await repeat(cluster, lambda: describe_producer(cluster, key, producer_id))
        is_asked = True
    except UnsupportedVersionError:
        entry, is_asked = None, False
    if entry is not None:
        await repeat(cluster, lambda: wait_for_disk(cluster, key))
        if entry.producer_epoch == saved.producer_epoch and entry.last_sequence >= 0:
            return found_in_entry(key, saved, entry.last_sequence)
        if entry.producer_epoch < saved.producer_epoch:
            if not saved.next_sequence:
                # Nothing was stored under the session's epoch so far.
                return Found((), saved.producer_epoch, 0)
            raise SessionError(
                f"{key.topic}-{key.partition} knows producer {producer_id} at epoch {entry.producer_epoch},"
                f" before the session's epoch {saved.producer_epoch}: acknowledged records are lost"
            )
    if entry is None and is_asked and is_recent:
        return found_in_batches(producer_id, saved, (), starts_anew=True)
    is_forgotten = entry is None and (is_asked or not is_recent)
    headers = await _headers(cluster, key, producer_id, saved.end_offset)
    return found_in_batches(producer_id, saved, headers, starts_anew=is_forgotten)


async def describe_producer(cluster: Cluster, key: TopicPartition, producer_id: int) -> ProducerEntry | None:
    """The leader's entry of the producer, None if it has none. No retries; raises UnsupportedVersionError if
    the leader does not serve DescribeProducers."""
    connection = await cluster.leader_connection(key)
    values: DictOf[types.DescribeProducersRequest] = {
        "topics": [{"name": key.topic, "partition_indexes": [key.partition]}]
    }
    answer: types.DescribeProducersResponse = await connection.call(ApiKey.DESCRIBE_PRODUCERS, values)
    for topic in answer.topics:
        for partition in topic.partitions:
            _check(partition.error_code, key)
            for each in partition.active_producers:
                if each.producer_id == producer_id:
                    return ProducerEntry(each.producer_epoch, each.last_sequence)
    return None


async def wait_for_disk(cluster: Cluster, key: TopicPartition) -> None:
    """Wait until the partition's present records are on disk, as far as the leader can be made to wait."""
    connection = await cluster.leader_connection(key)
    if connection.version(ApiKey.LIST_OFFSETS) >= _FIRST_VERSION_WITH_MAX_TIMESTAMP:
        await look_up_offsets(cluster, {key: _MAX_TIMESTAMP})


async def _headers(cluster: Cluster, key: TopicPartition, producer_id: int, offset: int) -> list[BatchHeader]:
    """The headers of the producer's batches from `offset` (-1: the beginning) to the present end."""
    if offset < 0:
        offset = (await look_up_offsets(cluster, {key: EARLIEST}))[key].offset
    end = (await look_up_offsets(cluster, {key: LATEST}))[key].offset
    found: list[BatchHeader] = []
    while offset < end:
        try:
            records = await repeat(cluster, lambda at=offset: fetch_batches(cluster, key, at))  # type: ignore[misc]
        except OffsetOutOfRangeError as error:
            raise SessionError(
                f"{key.topic}-{key.partition} no longer has offset {offset}, where the session was saved."
                " The records stored since then cannot be found"
            ) from error
        before = offset
        for _, header in iter_batches(records):
            offset = header.base_offset + header.last_offset_delta + 1
            if header.producer_id == producer_id:
                found.append(header)
        if offset == before:
            raise SessionError(f"{key.topic}-{key.partition} gives no records at offset {offset}")
    return found


async def fetch_batches(cluster: Cluster, key: TopicPartition, offset: int) -> bytes:
    """Batches from the one that holds `offset` on; the last one may be cut off. No retries."""
    connection = await cluster.leader_connection(key)
    partition = {"partition": key.partition, "fetch_offset": offset, "partition_max_bytes": _FETCH_BYTES}
    values = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": _FETCH_BYTES,
        "session_epoch": -1,
        "topics": [{"topic": key.topic, "partitions": [partition]}],
    }
    version = connection.version(ApiKey.FETCH, at_most=LAST_BY_NAME[ApiKey.FETCH])
    answer = await connection.call(ApiKey.FETCH, values, version=version)
    for topic in answer.responses:
        for result in topic.partitions:
            _check(result.error_code, key)
            return bytes(result.records or b"")
    raise RequestTimeoutError(f"{key.topic}-{key.partition}: the answer to Fetch is empty")


def _check(number: int, key: TopicPartition) -> None:
    code = error_code(number)
    if code is not ErrorCode.NONE:
        raise read_error(code, f"{key.topic}-{key.partition} while a session is resumed")


async def repeat(cluster: Cluster, ask: Callable[[], Awaitable[_T]]) -> _T:
    """Call `ask` until it succeeds, for at most request_timeout_ms. The third failure is logged."""
    retries = Retries(cluster.config)
    while True:
        try:
            return await ask()
        except ClientError as error:
            await retries.wait(error)
            if retries.failures == FAILURES_BEFORE_WARNING:
                limit_ms = cluster.config.request_timeout_ms
                logger.warning("request_repeated", error=error.message, request_timeout_ms=limit_ms)
            cluster.request_refresh()
