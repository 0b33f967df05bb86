"""Does what a copy holds come from the topic that is to be mirrored, and if it was stored since the last run,
was it stored by this mirror?

Owns the question that a session asks before it reads a topic for the first time whose copy is there already.
The header of a copied record names topic, partition and offset, so that rows that an earlier session stored
are known; it does not tell a topic from one of the same name on another cluster, or from one that was deleted
and made anew: their first records would pass for stored, and be left out.

And the question of each run: whoever goes back to an older checkpoint, after a mirror with another one went
on, would store again what that one stored, for its tasks believe their own producers.

Invariants: refused is only what cannot be an earlier copy: the last record in it lies behind the topic's end,
or differs in its time and its value from the topic's record at that offset. Nothing is written.
"""

import asyncio
from collections.abc import Mapping

from tidelog.client.cluster import Cluster
from tidelog.client.cluster_config import ClusterConfig
from tidelog.client.errors import OffsetOutOfRangeError, UnknownTopicError
from tidelog.client.offset_lookup import EARLIEST, LATEST, edge_offsets
from tidelog.client.producer_session_lookup import fetch_batches, repeat
from tidelog.client.types import TopicPartition
from tidelog.pipeline.mirror.session_folder import MirrorError, MirrorSession, StoredPlace
from tidelog.pipeline.mirror.tail import find_last
from tidelog.pipeline.source.offsets import Place
from tidelog.protocol.records import Record, TimestampType, decode_batch, iter_batches
from tidelog.protocol.types import NO_PRODUCER_EPOCH


async def check_origins(
    source_cluster: ClusterConfig,
    target_cluster: ClusterConfig,
    copies: Mapping[str, tuple[str, int]],
    *,
    is_projected: bool,
) -> None:
    """For each topic its copy, and how many partitions both have at least. With `is_projected` values may
    differ. Raises MirrorError for a copy of another topic, ClientError."""
    if not copies:
        return
    async with Cluster(source_cluster) as source, Cluster(target_cluster) as target:
        for topic, (copy, count) in copies.items():
            await source.topic(topic)
            for partition in range(count):
                await _check(source, target, Place(topic, partition), copy, is_projected=is_projected)


async def check_rivals(session: MirrorSession, target_cluster: ClusterConfig) -> None:
    """Raises MirrorError where another mirror went on since the session's last batch, ClientError."""
    stood = [
        (source, key, facts.producer_id, place)
        for source, facts in session.facts(None).sources.items()
        for key, place in facts.places.items()
        if place.producer_epoch != NO_PRODUCER_EPOCH
    ]
    if not stood:
        return
    async with Cluster(target_cluster) as target:
        asked = (_stored_since(target, *each) for each in stood)
        found = await asyncio.gather(*asked)
    for (source, key, _, place), last in zip(stood, found, strict=True):
        if last is not None and last.producer_epoch == NO_PRODUCER_EPOCH and last.position > place.position:
            raise MirrorError(
                f"{key.topic}-{key.partition} holds records of {source} up to offset {last.position} that"
                f" another mirror stored after this session had come to {place.position}: go on with that"
                " one's checkpoint, or with a new one, which finds and skips what is stored"
            )


async def _stored_since(
    target: Cluster, source: Place, key: TopicPartition, producer_id: int, place: StoredPlace
) -> StoredPlace | None:
    try:
        return await find_last(target, key, source, producer_id, place.end_offset)
    except UnknownTopicError:
        # A copy that this run does not write to: the others are there.
        return None


async def _check(source: Cluster, target: Cluster, place: Place, copy: str, *, is_projected: bool) -> None:
    key, original = TopicPartition(copy, place.partition), TopicPartition(*place)
    stored = await find_last(target, key, place, None)
    if stored is None:
        return
    last = stored.position
    end = (await edge_offsets(source, [original], LATEST))[original]
    if last >= end:
        raise _another(place, copy, f"goes up to its offset {last}, and it ends at {end}")
    if is_projected or last < (await edge_offsets(source, [original], EARLIEST))[original]:
        return
    ours, theirs = (
        await _record(source, original, last),
        await _record(target, key, stored.end_offset - 1),
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
