"""Finding records by time.

Owns the searches over a log's segments.

Invariants: answers are exact to the record; the indexes only save reading.

Safe in any thread. Source: Kafka's LogSegment.findOffsetByTimestamp.
"""

from collections.abc import Iterable, Iterator, Sequence

from tidelog.broker.storage.holes import joined
from tidelog.broker.storage.segment import Place, Segment
from tidelog.protocol.records import Record, decode_batch
from tidelog.protocol.types import NO_TIMESTAMP


def _records(segment: Segment, place: Place, start_offset: int) -> Iterator[Record]:
    for record in decode_batch(segment.read_batch(place)):
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
        for place in segment.batches(start_offset, timestamp_ms):
            if place.max_timestamp < timestamp_ms:
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
            for place in sorted(segment.batches(start_offset), key=lambda each: -each.max_timestamp):
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
        return next(segment.batches(segment.max_timestamp_offset), None)
    return max(segment.batches(start_offset), key=lambda place: place.max_timestamp, default=None)
