"""Finding records by time, and the segments that retention deletes.

Owns the searches over a log's segments. Only a batch that must hold the answer is decoded, and only by
look-ups of consumers, never on the produce or fetch path.

Invariants: answers are exact to the record; the indexes only save reading.

The searches are safe in any thread. Source: Kafka's LogSegment.findOffsetByTimestamp and
UnifiedLog.deletableSegments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from tidelog.broker.storage.holes import joined
from tidelog.broker.storage.integrity import CorruptSegmentError
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.segment import Place, Segment
from tidelog.protocol.records import Record, batch_crc_is_valid, decode_batch, read_batch_header
from tidelog.protocol.types import NO_TIMESTAMP


def _records(segment: Segment, place: Place, start_offset: int) -> Iterator[Record]:
    data = segment.read_bytes(place.position, place.size_bytes)
    if not batch_crc_is_valid(data, read_batch_header(data)):
        raise CorruptSegmentError(f"{segment.path}: the batch at byte {place.position} is damaged")
    for record in decode_batch(data):
        if record.offset >= start_offset:
            yield record


def find_first_at(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record from `start_offset` on that is not older.

    Raises OSError, CorruptSegmentError, ProtocolError, and LogHoleError where it may lie in a hole.
    """
    for segment in joined(segments, start_offset):
        if segment.max_timestamp < timestamp_ms:
            continue
        entry = segment.time_index.floor(timestamp_ms)
        if entry is not None and not segment.time_entry_holds(entry):
            entry = None
        from_relative = max(entry[1] if entry else 0, start_offset - segment.base_offset)
        for place in segment.walk_from_entry(segment.offset_index.floor(from_relative)):
            if place.max_timestamp < timestamp_ms or place.last_offset < start_offset:
                continue
            for record in _records(segment, place, start_offset):
                if record.timestamp >= timestamp_ms:
                    return record.offset, record.timestamp
    return None


def find_max_timestamp(segments: Sequence[Segment], start_offset: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record with the largest timestamp from `start_offset` on.

    Raises as `find_first_at`.
    """
    best: tuple[int, int] | None = None
    for segment in joined(segments, start_offset):
        best_timestamp = NO_TIMESTAMP if best is None else best[1]
        if segment.max_timestamp <= best_timestamp:
            continue
        place = _max_place(segment, start_offset)
        if place is None:
            continue
        found = _later(best, _records(segment, place, start_offset))
        if found is not None and found[1] == place.max_timestamp:
            best = found
        else:
            # Compaction removed that record and left the header: the other records have to be read.
            places = [each for each in segment.walk(0) if each.last_offset >= start_offset]
            places.sort(key=lambda each: (-each.max_timestamp, each.position))
            for place in places:
                if best is not None and best[1] > place.max_timestamp:
                    break
                best = _later(best, _records(segment, place, start_offset))
    return best


def _later(best: tuple[int, int] | None, records: Iterable[Record]) -> tuple[int, int] | None:
    """The latest of `best` and the records, of several the first."""
    for record in records:
        offset, timestamp = (0, NO_TIMESTAMP) if best is None else best
        if record.timestamp > timestamp or (record.timestamp == timestamp >= 0 and record.offset < offset):
            best = record.offset, record.timestamp
    return best


def _max_place(segment: Segment, start_offset: int) -> Place | None:
    """The batch that holds the largest timestamp among those that reach `start_offset`."""
    if segment.base_offset >= start_offset:
        return segment.find(segment.max_timestamp_offset)
    best = None
    entry = segment.offset_index.floor(start_offset - segment.base_offset)
    for place in segment.walk_from_entry(entry):
        if place.last_offset >= start_offset and (best is None or place.max_timestamp > best.max_timestamp):
            best = place
    return best


def segments_to_delete(segments: Sequence[Segment], config: LogConfig, durable_end: int, now_ms: int) -> int:
    """How many segments from the oldest on are past retention.bytes or retention.ms. Raises OSError."""
    if "delete" not in config.cleanup_policy:
        return 0
    excess = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        if not segment.size_bytes or segment.end_offset > durable_end:
            break
        too_much = config.retention_bytes >= 0 and excess >= segment.size_bytes
        too_old = config.retention_ms >= 0 and segment.is_older_than(now_ms - config.retention_ms)
        if not (too_much or too_old):
            break
        excess -= segment.size_bytes
        count += 1
    return count


def latest_of_old_when_written(
    segments: Sequence[Segment], config: LogConfig, durable_end: int, now_ms: int
) -> int | None:
    """The largest timestamp of the records that retention deletes less than retention.ms after they were
    written, because they were older than that already; None if there are none, or a file cannot be read."""
    latest = None
    with suppress(OSError):
        for segment in segments[: segments_to_delete(segments, config, durable_end, now_ms)]:
            timestamp, written_ms = segment.max_timestamp, segment.written_ms
            is_young = now_ms - written_ms < config.retention_ms
            if timestamp >= 0 and is_young and written_ms - timestamp > config.retention_ms:
                latest = timestamp if latest is None else max(latest, timestamp)
    return latest
