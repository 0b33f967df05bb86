"""Offsets by time: ListOffsets requests to the leaders.

Owns: the requests and their repetition while leaders change. Invariants: the result has every requested
partition, or an error is raised.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tidelog.client.arguments import whole_number
from tidelog.client.errors import read_error
from tidelog.client.retries import Retries
from tidelog.client.types import OffsetAndTimestamp, topic_partition, topic_partitions
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition
from tidelog.wire.cluster import Cluster
from tidelog.wire.errors import BrokerError, ClientError, broker_error

EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
LATEST: Final = -1
_CONSUMER: Final = -1


async def edge_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], edge: int, isolation_level: int = 0
) -> dict[TopicPartition, int]:
    """The first offset of each log (EARLIEST), its end (LATEST) or another. Raises as `look_up_offsets`."""
    wanted = dict.fromkeys(topic_partitions(partitions), edge)
    found = await look_up_offsets(cluster, wanted, isolation_level)
    return {key: place.offset for key, place in found.items()}


async def look_up_times(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """As `look_up_offsets` for timestamps that an application gives; None if all records are older."""
    if not isinstance(timestamps, Mapping):
        raise TypeError(
            f"timestamps: expected a dict: {{TopicPartition: milliseconds}}, got {timestamps!r:.200}"
        )
    wanted = {key: whole_number(each, "a timestamp") for key, each in timestamps.items()}
    found = await look_up_offsets(cluster, wanted, isolation_level)
    return {key: place if place.offset >= 0 else None for key, place in found.items()}


async def look_up_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int = 0,
    *,
    on_found: Callable[[TopicPartition, OffsetAndTimestamp], None] | None = None,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """For each partition the first offset at or after its timestamp (milliseconds, or EARLIEST or LATEST).

    At isolation level 1 (read_committed) LATEST is the last stable offset. The offset is -1 if all records
    are older. `on_found` is called for each as it is found, while others still wait. Raises
    UnknownTopicError, another BrokerError, or RequestTimeoutError after request_timeout_ms.
    """
    timestamps = {topic_partition(key): timestamp for key, timestamp in timestamps.items()}
    for topic in {key.topic for key in timestamps}:
        await cluster.topic(topic)
    retries = Retries(cluster.config)
    found: dict[TopicPartition, OffsetAndTimestamp] = {}
    while True:
        missing = {key: timestamp for key, timestamp in timestamps.items() if key not in found}
        error = await _ask_leaders(cluster, missing, isolation_level, found)
        if on_found is not None:
            for key in missing.keys() & found.keys():
                on_found(key, found[key])
        if error is None:
            return found
        await retries.wait(error, "the offsets were not found")
        try:
            await cluster.refresh()
        except ClientError as refused:
            if not refused.retriable:
                raise


async def _ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation_level: int,
    found: dict[TopicPartition, OffsetAndTimestamp],
) -> ClientError | None:
    """Ask each leader for its partitions and put the answers into `found`. Returns an error, if any; one that
    is not retriable first."""
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for key, timestamp in wanted.items():
        by_leader.setdefault(cluster.image.leader(key), {})[key] = timestamp
    asked = [_ask_one(cluster, leader, part, isolation_level, found) for leader, part in by_leader.items()]
    errors = [error for error in await asyncio.gather(*asked) if error is not None]
    for error in errors:
        if not error.retriable:
            return error
    return errors[0] if errors else None


async def _ask_one(
    cluster: Cluster,
    leader: int,
    wanted: Mapping[TopicPartition, int],
    isolation_level: int,
    found: dict[TopicPartition, OffsetAndTimestamp],
) -> ClientError | None:
    if leader < 0:
        key = next(iter(wanted))
        info = cluster.image.topics.get(key.topic)
        is_there = info is not None and 0 <= key.partition < len(info.partitions)
        code = ErrorCode.LEADER_NOT_AVAILABLE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        error = broker_error(code, f"offsets of {key.topic}-{key.partition}")
        if not is_there:
            error.retriable = False
        return error
    topics: dict[str, list[DictOf[types.ListOffsetsRequestPartition]]] = {}
    for key, timestamp in wanted.items():
        topics.setdefault(key.topic, []).append(
            {
                "partition_index": key.partition,
                "current_leader_epoch": cluster.image.leader_epoch(key),
                "timestamp": timestamp,
            }
        )
    values: DictOf[types.ListOffsetsRequest] = {
        "replica_id": _CONSUMER,
        "isolation_level": isolation_level,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    try:
        connection = await cluster.connected(leader)
        answer = await connection.call(ApiKey.LIST_OFFSETS, values)
    except ClientError as error:
        return error
    return _read(answer, found)


def _read(
    answer: "types.ListOffsetsResponse", found: dict[TopicPartition, OffsetAndTimestamp]
) -> BrokerError | None:
    error: BrokerError | None = None
    for topic in answer.topics:
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition_index)
            code = error_code(partition.error_code)
            if code is ErrorCode.NONE:
                found[key] = OffsetAndTimestamp(partition.offset, partition.timestamp, partition.leader_epoch)
            else:
                error = read_error(code, f"offsets of {key.topic}-{key.partition}")
    return error
