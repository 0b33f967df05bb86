"""Checks that a copy's records come from the topic to be mirrored, and that no other mirror added records.

Owns two checks. The first is made before a session reads a topic for the first time and its copy exists
already. The header of a copied record names topic, partition and offset, so rows of an earlier session are
known. But it does not distinguish the topic from one of the same name on another cluster, or from one that
was deleted and created again: their first records would be taken for stored, and left out.

The second is made by each run. If another mirror continued with another checkpoint, a run with the older
checkpoint would store its rows again, because its tasks rely on their own producers.

Invariants: only a copy that cannot be an earlier copy is refused: its last record comes after the topic's
end, or differs in timestamp and value from the topic's record at that offset. Nothing is written.
"""

import asyncio
from collections.abc import Mapping

from tidelog.client import OffsetOutOfRangeError, TopicPartition, UnknownTopicError
from tidelog.client.asked_apis import ASKED_APIS
from tidelog.client.offset_lookup import EARLIEST, LATEST, edge_offsets
from tidelog.client.producer.session_lookup import fetch_batches, repeat
from tidelog.pipeline.mirror.session_folder import MirrorError, MirrorSession, StoredPlace
from tidelog.pipeline.mirror.tail import find_last
from tidelog.pipeline.offsets import Place
from tidelog.protocol.records import Record, TimestampType, decode_batch, iter_batches
from tidelog.protocol.types import NO_PRODUCER_EPOCH
from tidelog.wire.cluster import Cluster
from tidelog.wire.cluster_config import ClusterConfig


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
    async with Cluster(source_cluster, ASKED_APIS) as source, Cluster(target_cluster, ASKED_APIS) as target:
        for topic, (copy, count) in copies.items():
            await source.topic(topic)
            for partition in range(count):
                await _check(source, target, Place(topic, partition), copy, is_projected=is_projected)


async def check_rivals(session: MirrorSession, target_cluster: ClusterConfig) -> None:
    """Raises MirrorError if another mirror continued after the session's last batch, ClientError."""
    stood = [
        (source, key, facts.producer_id, place)
        for source, facts in session.facts(None).sources.items()
        for key, place in facts.places.items()
        if place.producer_epoch != NO_PRODUCER_EPOCH
    ]
    if not stood:
        return
    async with Cluster(target_cluster, ASKED_APIS) as target:
        asked = (_stored_since(target, *each) for each in stood)
        found = await asyncio.gather(*asked)
    for (source, key, _, place), last in zip(stood, found, strict=True):
        if last is not None and last.producer_epoch == NO_PRODUCER_EPOCH and last.position > place.position:
            raise MirrorError(
                f"{key.topic}-{key.partition} holds records of {source} up to offset {last.position} that"
                f" another mirror stored after this session reached offset {place.position}: continue with"
                " that mirror's checkpoint, or with a new one, which skips the stored rows"
            )


async def _stored_since(
    target: Cluster, source: Place, key: TopicPartition, producer_id: int, place: StoredPlace
) -> StoredPlace | None:
    try:
        return await find_last(target, key, source, producer_id, place.end_offset)
    except UnknownTopicError:
        # A copy that this run does not write to: the others exist.
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
    ours, theirs = (await _record(source, original, last), await _record(target, key, stored.end_offset - 1))
    if ours is None or theirs is None or theirs.timestamp_type is not TimestampType.CREATE_TIME:
        return
    if ours.value != theirs.value and ours.timestamp != theirs.timestamp:
        raise _another(place, copy, f"holds another record as its offset {last}")


async def _record(cluster: Cluster, key: TopicPartition, offset: int) -> Record | None:
    """The record at this offset, None if the log no longer has one."""
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
        " name, on another cluster or deleted since. Records of this topic would be left out: mirror it to"
        " another name"
    )
