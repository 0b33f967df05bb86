"""The next offsets of a stream, computed from its current offsets and the bounds of the logs.

Owns the arithmetic of streaming reads. Pure. Spark keeps offsets in its checkpoint in the form of its Kafka
source, `{"topic": {"0": 23}}` (see `pipeline.offsets.to_json`): each number is the next offset to read. Each
topic is followed by its id, as `"topic:ID": {}`. No topic can have such a name. Spark's Kafka source finds no
partition under it, so it can continue with the same checkpoint.

Invariants: offsets never move past the log's end. A partition that appears while the stream runs is read from
offset 0, so no record is left out. Deleted offsets are a loss: it is raised, or named in a list. A topic that
was deleted and created again is another topic, and is read from offset 0.
"""

import json
from collections.abc import Mapping
from math import ceil, floor
from typing import Any

from tidelog.pipeline.offsets import OffsetRange, Place, lose, to_json

Bounds = Mapping[Place, tuple[int, int]]


def from_json(topics: Mapping[str, Mapping[str, Any]]) -> dict[Place, int]:
    """The inverse of `pipeline.offsets.to_json`."""
    return {
        Place(topic, int(number)): int(offset)
        for topic, partitions in topics.items()
        for number, offset in partitions.items()
    }


def to_checkpoint(offsets: Mapping[Place, int], topic_ids: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Offsets as `to_json`, with the ids of their topics."""
    topics = to_json(offsets)
    return topics | {f"{topic}:{topic_ids[topic]}": {} for topic in topics if topic in topic_ids}


def topic_ids_in(topics: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The ids of the topics in a checkpoint. One that Spark's Kafka source wrote has none."""
    return dict(key.split(":", 1) for key in topics if ":" in key)


def forget_replaced(
    offsets: Mapping[Place, int],
    read_ids: Mapping[str, str],
    ids: Mapping[str, str],
    losses: list[str] | None,
) -> dict[Place, int]:
    """`offsets` without those of topics that have another id in `ids` than in `read_ids`.

    Each such topic is appended to `losses`, or raises OffsetsLostError if `losses` is None.
    """
    replaced = {topic for topic, known in read_ids.items() if ids.get(topic, known) != known}
    for topic in sorted(replaced):
        lose(f"topic {topic} was deleted and created again; the stream read the earlier one", losses)
    return {place: offset for place, offset in offsets.items() if place.topic not in replaced}


def reported_offsets(progress: Mapping[str, Any] | None, field: str) -> dict[Place, int] | None:
    """The offsets that a query's `lastProgress` gives in `field` ("endOffset", "latestOffset").

    None if Spark does not know them: before the first batch, and (as the text "null") for a batch that a
    restart repeats.
    """
    if progress is None or not (text := progress["sources"][0].get(field)):
        return None
    topics = json.loads(text)
    return None if topics is None else from_json(topics)


def offsets_behind(progress: Mapping[str, Any] | None) -> dict[Place, int] | None:
    """By partition the number of offsets that a stream has not read, by its `lastProgress`.

    None if Spark does not know it.
    """
    reached = reported_offsets(progress, "endOffset")
    newest = reported_offsets(progress, "latestOffset")
    if reached is None or newest is None:
        return None
    return {place: max(0, offset - reached.get(place, 0)) for place, offset in newest.items()}


def offsets_behind_latest(progress: Mapping[str, Any] | None) -> dict[str, float]:
    """The metrics of Spark's Kafka source, by its names; empty if Spark does not know them.

    Spark 4.3 asks no source in Python for metrics, so they are computed from the query's `lastProgress`.
    """
    if not (behind := offsets_behind(progress)):
        return {}
    return {
        "minOffsetsBehindLatest": min(behind.values()),
        "maxOffsetsBehindLatest": max(behind.values()),
        "avgOffsetsBehindLatest": sum(behind.values()) / len(behind),
    }


def next_offsets(
    start: Mapping[Place, int], bounds: Bounds, max_rows: int | None, losses: list[str] | None
) -> dict[Place, int]:
    """The end of a micro-batch that begins at `start` and holds about `max_rows` offsets.

    Each partition gets a share of `max_rows` in proportion to its unread offsets, and at least one offset, as
    in Spark's Kafka source. Losses are appended to `losses`, or raise OffsetsLostError if it is None.
    """
    for place in sorted(start.keys() - bounds.keys()):
        lose(f"{place} is gone; the stream read it up to offset {start[place]}", losses)
    begins = {}
    for place, (log_start, log_end) in bounds.items():
        begin = start.get(place, 0)
        if begin > log_end:
            lose(f"{place} ends at offset {log_end}; the stream read it up to {begin}", losses)
        begins[place] = min(max(begin, log_start), log_end)
    waiting = {place: bounds[place][1] - begin for place, begin in begins.items()}
    total = sum(waiting.values())
    if max_rows is None or total <= max_rows:
        return {place: log_end for place, (_, log_end) in bounds.items()}
    return {place: begins[place] + _share(count, total, max_rows) for place, count in waiting.items()}


def waiting_offsets(start: Mapping[Place, int], bounds: Bounds) -> int:
    """How many offsets can be read from `start` on."""
    return sum(max(0, end - max(begin, start.get(place, 0))) for place, (begin, end) in bounds.items())


def batch_ranges(
    start: Mapping[Place, int], end: Mapping[Place, int], bounds: Bounds, losses: list[str] | None
) -> list[OffsetRange]:
    """The ranges of the micro-batch from `start` to `end`, without empty ones.

    Losses are appended to `losses`, or raise OffsetsLostError if it is None.
    """
    ranges = []
    for place, stop in sorted(end.items()):
        begin = start.get(place, 0)
        if begin >= stop:
            continue
        if place not in bounds:
            lose(f"{place} is gone; offsets {begin} to {stop - 1} were not read yet", losses)
            continue
        log_start, log_end = bounds[place]
        if begin < log_start:
            gone = min(log_start, stop) - 1
            lose(f"{place} starts at offset {log_start}; offsets {begin} to {gone} are gone", losses)
            begin = log_start
        if stop > log_end:
            lose(f"{place} ends at offset {log_end}; it had offsets up to {stop - 1} before", losses)
            stop = log_end
        if begin < stop:
            ranges.append(OffsetRange(place.topic, place.partition, begin, stop))
    return ranges


def _share(count: int, total: int, max_rows: int) -> int:
    share = max_rows * count / total
    return min(ceil(share) if share < 1 else floor(share), count)
