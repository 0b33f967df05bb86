"""Does what a copy holds come from the topic that is to be mirrored, or from another one of its name?

Owns the question that a session asks before it reads a topic for the first time whose copy is there already.
The header of a copied record names topic, partition and offset, so that rows that an earlier session stored
are known; it does not tell a topic from one of the same name on another cluster, or from one that was deleted
and made anew: their first records would pass for stored, and be left out.

Invariants: refused is only what cannot be an earlier copy: the last record in it lies behind the topic's end,
or differs in its time and its value from the topic's record at that offset. Nothing is written.
Called by `pipeline.jobs.mirror_topics`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from client.cluster import Cluster, ClusterConfig
from client.errors import OffsetOutOfRangeError
from client.offset_lookup import EARLIEST, LATEST, edge_offsets
from client.session_lookup import fetch_batches, repeat
from client.types import TopicPartition
from pipeline.mirror_session import MirrorError
from pipeline.mirror_tail import find_tail
from pipeline.offsets import Place
from protocol.records import Record, TimestampType, decode_batch, iter_batches

_CLIENT_ID = "tidelog-mirror"
# No producer has this id, and no record that was written without one either.
_NOBODY = -2


async def check_origins(
    source_servers: str, target_servers: str, copies: Mapping[str, tuple[str, int]], *, is_projected: bool
) -> None:
    """For each topic its copy, and how many partitions both have at least. With `is_projected` values may
    differ. Raises MirrorError for a copy of another topic, ClientError."""
    if not copies:
        return
    async with _cluster(source_servers) as source, _cluster(target_servers) as target:
        for topic, (copy, count) in copies.items():
            await source.topic(topic)
            await target.topic(copy)
            for partition in range(count):
                await _check(source, target, Place(topic, partition), copy, is_projected=is_projected)


async def _check(source: Cluster, target: Cluster, place: Place, copy: str, *, is_projected: bool) -> None:
    key, original = TopicPartition(copy, place.partition), TopicPartition(*place)
    tail = await find_tail(target, key, place, _NOBODY, None)
    if tail.place is None:
        return
    last = tail.place.position
    end = (await edge_offsets(source, [original], LATEST))[original]
    if last >= end:
        raise _another(place, copy, f"goes up to its offset {last}, and it ends at {end}")
    if is_projected or last < (await edge_offsets(source, [original], EARLIEST))[original]:
        return
    ours, theirs = (
        await _record(source, original, last),
        await _record(target, key, tail.place.end_offset - 1),
    )
    if ours is None or theirs is None or theirs.timestamp_type is not TimestampType.CREATE_TIME:
        return
    if ours.value != theirs.value and ours.timestamp != theirs.timestamp:
        raise _another(place, copy, f"holds another record as its offset {last}")


async def _record(cluster: Cluster, key: TopicPartition, offset: int) -> Record | None:
    """The record at this offset, None where the log has none there any more."""
    try:
        data = await repeat(cluster, lambda: fetch_batches(cluster, key, offset))
    except OffsetOutOfRangeError:
        return None
    for position, header in iter_batches(data):
        if header.last_offset >= offset:
            found = () if header.is_control else decode_batch(data, position)
            return next((record for record in found if record.offset == offset), None)
    return None


def _another(place: Place, copy: str, what: str) -> MirrorError:
    return MirrorError(
        f"{copy}-{place.partition} holds records of another {place}: it {what}. That was a topic of the same"
        " name, on another cluster or deleted since, and records of this one would pass for stored: mirror it"
        " to another name"
    )


@asynccontextmanager
async def _cluster(bootstrap_servers: str) -> AsyncIterator[Cluster]:
    cluster = Cluster(ClusterConfig(bootstrap_servers=bootstrap_servers, client_id=_CLIENT_ID))
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.close()
