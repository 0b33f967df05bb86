"""Which rows of a source partition a destination partition holds, read from its log.

Owns the header that names a record's source, and the search for the last such record.

Invariants: the answer is on the leader's disk. A position is found by the session's producer id. If the
session is new or was lost, it is found by the header of any record, so rows that an earlier session stored
are known too. The search ends at the session's saved position or at the log's start. If the leader forgot the
producer, the log must confirm the saved position. Source: KIP-664 (DescribeProducers).
"""

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.client import OffsetOutOfRangeError, TopicPartition, UnsupportedVersionError
from tidelog.client.offset_lookup import EARLIEST, LATEST, edge_offsets
from tidelog.client.producer.session_lookup import describe_producer, fetch_batches, repeat, wait_for_disk
from tidelog.pipeline.arrow.arrays import octets
from tidelog.pipeline.mirror.session_folder import MirrorError, StoredPlace
from tidelog.pipeline.offsets import Place
from tidelog.protocol.records import BatchHeader, decode_batch, increment_sequence, iter_batches
from tidelog.protocol.sequences import sequence_distance
from tidelog.protocol.types import NO_PRODUCER_EPOCH
from tidelog.wire.cluster import Cluster

SOURCE_HEADER = "tidelog.source"
_FIRST_REACH = 1
_LONGEST_REACH = 1_000_000
_HALF_RING = 2**30


class Tail(NamedTuple):
    """The position of a source partition in a destination partition.

    `place` is None if it has no record there. It has epoch -1 if another producer stored the record, also in
    the session until our own producer sends there. The next record lies at `end_offset` or after it.
    """

    place: StoredPlace | None
    end_offset: int


def source_headers(source: Place, offsets: Any) -> Any:
    """The header values for rows of one source partition: `TOPIC-PARTITION@OFFSET`."""
    numbers = offsets.cast(pa.string()).cast(pa.binary())
    return pc.binary_join_element_wise(octets(f"{source}@".encode()), numbers, octets(b""))


def parse_source(content: bytes | None) -> tuple[Place, int] | None:
    """The source partition and offset that a header names, None if a mirror did not write it."""
    where, at, offset = (content or b"").decode(errors="replace").rpartition("@")
    topic, dash, partition = where.rpartition("-")
    if not (at and dash and topic and partition.isdecimal() and offset.isdecimal()):
        return None
    return Place(topic, int(partition)), int(offset)


async def find_tail(
    cluster: Cluster, key: TopicPartition, source: Place, producer_id: int, known: StoredPlace | None
) -> Tail:
    """The position of `source` in `key`. `known` is the position that the session saved.

    Raises MirrorError if the log lost records that the session knows, ClientError if it cannot be read.
    """
    try:
        entry = await repeat(cluster, lambda: describe_producer(cluster, key, producer_id))
    except UnsupportedVersionError:
        entry = None
    if entry is not None:
        await repeat(cluster, lambda: wait_for_disk(cluster, key))
        stands = entry.producer_epoch, increment_sequence(entry.last_sequence, 1)
        if known is not None and stands == known[:2]:
            return Tail(known, known.end_offset)
        if known is not None and _is_behind(stands, known):
            raise _lost(key, source, f"its producer is at {stands}, before it was at {known[:2]}")
    end = (await edge_offsets(cluster, [key], LATEST))[key]
    first = (await edge_offsets(cluster, [key], EARLIEST))[key]
    if known is not None:
        if end < known.end_offset:
            raise _lost(key, source, f"it ends at offset {end}, before it reached offset {known.end_offset}")
        if entry is not None:
            first = max(first, known.end_offset)
    is_ours = entry is not None or (known is not None and known.producer_epoch != NO_PRODUCER_EPOCH)
    found = await _search(cluster, _Sought(key, source, producer_id, not is_ours), first, end)
    if entry is None and known is not None:
        # Only the log can confirm the saved position, unless retention deleted the records.
        position = -1 if found is None else found.position
        if position < known.position and (found is not None or not first):
            raise _lost(key, source, f"it holds them up to {position}, before up to {known.position}")
    return Tail(found or known, end)


async def find_last(
    cluster: Cluster, key: TopicPartition, source: Place, producer_id: int | None, first: int = 0
) -> StoredPlace | None:
    """The last record of `source` in `key` from offset `first` on, of any producer. Its epoch is -1 if it is
    not of this producer. Raises MirrorError, ClientError."""
    await cluster.topic(key.topic)
    first = max(first, (await edge_offsets(cluster, [key], EARLIEST))[key])
    end = (await edge_offsets(cluster, [key], LATEST))[key]
    # No record has the producer id -2. Records without a producer id have -1.
    ours = -2 if producer_id is None else producer_id
    return await _search(cluster, _Sought(key, source, ours, True), first, end)


def _is_behind(stands: tuple[int, int], known: StoredPlace) -> bool:
    """Whether a producer is behind the position that the session saved."""
    epoch, next_sequence = stands
    if epoch != known.producer_epoch:
        # If nothing was sent under an epoch, the broker still knows the previous one.
        return epoch < known.producer_epoch and known.next_sequence > 0
    return sequence_distance(known.next_sequence, next_sequence) >= _HALF_RING


def _lost(key: TopicPartition, source: Place, what: str) -> MirrorError:
    return MirrorError(
        f"{key.topic}-{key.partition} lost records of {source}, or is another topic: {what}. Mirror it again"
        " with a new checkpointLocation"
    )


class _Sought(NamedTuple):
    """Records of `source` in `key`, by our producer or, `of_anyone`, also by others."""

    key: TopicPartition
    source: Place
    producer_id: int
    of_anyone: bool


async def _search(cluster: Cluster, sought: _Sought, first: int, end: int) -> StoredPlace | None:
    """The last match between the two offsets. The search goes back from the end in growing ranges."""
    key = sought.key
    reach, upper = _FIRST_REACH, end
    while upper > first:
        lower = max(first, upper - reach)
        found = None
        offset = lower
        while offset < upper:
            data = await _fetch(cluster, key, offset)
            before = offset
            for position, header in iter_batches(data):
                offset = header.last_offset + 1
                found = _match(data, position, header, sought) or found
            if offset == before:
                raise MirrorError(f"{key.topic}-{key.partition} returns no records at offset {offset}")
        if found is not None:
            return found
        upper, reach = lower, min(8 * reach, _LONGEST_REACH)
    return None


async def _fetch(cluster: Cluster, key: TopicPartition, offset: int) -> bytes:
    try:
        return await repeat(cluster, lambda: fetch_batches(cluster, key, offset))
    except OffsetOutOfRangeError as error:
        raise MirrorError(
            f"{key.topic}-{key.partition} lost offset {offset} while the mirror searched it for its last"
            " record: start again"
        ) from error


def _match(data: bytes, position: int, header: BatchHeader, sought: _Sought) -> StoredPlace | None:
    """The position after the batch's last record of the source. In a batch of our producer all records are
    of the source; other batches may hold records of several."""
    is_ours = header.producer_id == sought.producer_id
    if header.is_control or not header.record_count or not (is_ours or sought.of_anyone):
        return None
    for record in reversed(decode_batch(data, position)):
        texts = [content for name, content in record.headers if name == SOURCE_HEADER]
        named = parse_source(texts[-1]) if texts else None
        if named is not None and named[0] == sought.source:
            break
        if is_ours:
            raise MirrorError(
                f"offset {record.offset} of {sought.key.topic}-{sought.key.partition} was written under"
                f" producer {header.producer_id}, which belongs to {sought.source}, but its header does not"
                " name that source: another program used the producer id"
            )
    else:
        return None
    if not is_ours:
        return StoredPlace(NO_PRODUCER_EPOCH, 0, record.offset + 1, named[1])
    following = increment_sequence(header.last_sequence, 1)
    return StoredPlace(header.producer_epoch, following, record.offset + 1, named[1])
