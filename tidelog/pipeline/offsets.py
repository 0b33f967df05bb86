"""The offset ranges of a read, computed from the requested positions and the bounds of the logs.

Owns the arithmetic of offset ranges, the names for positions in logs, and which topics a pattern matches.
Pure.

Invariants: ranges are half open [start, end) and never empty. Those of a partition are in order, without
gaps. A read that would return less than was asked for is refused, or the loss is named in a list.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple, TypeAlias
from uuid import UUID

EARLIEST = -2
LATEST = -1
# The id that brokers without topic ids send.
NO_TOPIC_ID = UUID(int=0)


class OptionError(ValueError):
    """An option is invalid. The message says which one, why, and what to do."""


class OffsetsLostError(RuntimeError):
    """Records that were not read yet are gone from the log."""


class Place(NamedTuple):
    """A topic's partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def check_pattern(option: str, pattern: str) -> None:
    """Raises OptionError if `pattern` is not a regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(f"{option}: {pattern!r} is not a regular expression ({error})") from None


def fits(pattern: str, topic: str) -> bool:
    """Whether the pattern matches the topic's whole name, as in Kafka's subscribe."""
    return re.fullmatch(pattern, topic) is not None


class OffsetRange(NamedTuple):
    """The records of one partition with start <= offset < end."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start


Positions: TypeAlias = int | Mapping[Place, int]


def plan_ranges(
    starting: Positions,
    ending: Positions,
    bounds: Mapping[Place, tuple[int, int]],
    losses: list[str] | None = None,
) -> list[OffsetRange]:
    """The range of each partition in `bounds` (start and end of its log), without empty ranges.

    Raises OptionError if a position names other partitions than `bounds`, or lies outside the log. If
    `losses` is given, a deleted start is appended to it, and the range begins at the log's start.
    """
    ranges = []
    starts = resolve("startingOffsets", starting, bounds)
    ends = resolve("endingOffsets", ending, bounds)
    for place, (log_start, log_end) in sorted(bounds.items()):
        start, end = starts[place], ends[place]
        if start < log_start and losses is not None:
            losses.append(f"{place} starts at {log_start}; the records from offset {start} are gone")
            start, end = log_start, max(end, log_start)
        if start < log_start:
            raise OptionError(
                f"startingOffsets: {place} starts at {log_start}, offset {start} is gone; use earliest"
            )
        if end > log_end:
            raise OptionError(f"endingOffsets: {place} ends at {log_end}, offset {end} is not written yet")
        if start > end:
            raise OptionError(f"startingOffsets: the start {start} of {place} is after its end {end}")
        if start < end:
            ranges.append(OffsetRange(place.topic, place.partition, start, end))
    return ranges


def split_ranges(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None = None
) -> list[OffsetRange]:
    """Cut the largest ranges into about `min_partitions` ranges in all (None: no cuts), none of which is
    larger than `max_records`.

    Each range gets a share of the pieces by its size, and at least one. Pieces of a range differ by at most
    one record. As Spark's KafkaOffsetRangeCalculator.
    """
    whole = list(ranges)
    if max_records is not None:
        whole = [piece for each in whole for piece in cut(each, -(-each.size // max_records))]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(each.size for each in whole)
    pieces: list[OffsetRange] = []
    for each in whole:
        count = min(max(round(each.size / total * min_partitions), 1), each.size)
        pieces += cut(each, count)
    return pieces


def group_ranges(
    ranges: Iterable[OffsetRange],
    most_records: int,
    at_least: int | None = None,
    most_ranges: int | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """Neighbouring ranges put together, in their order, as long as a group has up to `most_records` and
    `most_ranges`.

    There are at least `at_least` groups, unless there are fewer ranges. A larger range is a group of its own.
    """
    groups: list[tuple[OffsetRange, ...]] = []
    size = 0
    whole = list(ranges)
    most = min(most_records, sum(each.size for each in whole) // (at_least or 1))
    for number, each in enumerate(whole):
        size += each.size
        needs_group = len(groups) + len(whole) - number <= (at_least or 1)
        has_room = bool(groups) and (most_ranges is None or len(groups[-1]) < most_ranges)
        if has_room and size <= most and not needs_group:
            groups[-1] += (each,)
        else:
            groups.append((each,))
            size = each.size
    return groups


def cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """`count` ranges whose sizes differ by at most one."""
    cuts = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [whole._replace(start=start, end=end) for start, end in pairwise(cuts)]


def for_each(option: str, positions: Positions, places: Iterable[Place]) -> Mapping[Place, int]:
    """The position of each of these partitions. Raises OptionError if `positions` names others."""
    if isinstance(positions, int):
        return dict.fromkeys(places, positions)
    if positions.keys() != (read := set(places)):
        missing = ", ".join(map(str, sorted(read - positions.keys()))) or "none"
        strange = ", ".join(map(str, sorted(positions.keys() - read))) or "none"
        raise OptionError(
            f"{option} must name exactly the partitions that are read: missing {missing}, unknown {strange}"
        )
    return positions


def resolve(option: str, positions: Positions, bounds: Mapping[Place, tuple[int, int]]) -> dict[Place, int]:
    """An offset for each partition in `bounds`. Raises OptionError as `for_each`."""
    edges = {EARLIEST: 0, LATEST: 1}
    return {
        place: bounds[place][edges[position]] if position in edges else position
        for place, position in for_each(option, positions, bounds).items()
    }


def to_json(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """Offsets as Spark's checkpoint holds them, in a fixed order."""
    topics: dict[str, dict[str, int]] = {}
    for place, offset in sorted(offsets.items()):
        topics.setdefault(place.topic, {})[str(place.partition)] = offset
    return topics


class Logs(NamedTuple):
    """The partitions that a read covers: the start and end of each log, the ids of their topics, and the
    brokers that lead them.

    A topic without a known id is not in `topic_ids`. Without a broker, no leader is known.
    """

    bounds: dict[Place, tuple[int, int]]
    topic_ids: dict[str, str]
    leaders: Mapping[Place, int] = {}


def require_same_topic(topic: str, planned_id: str | None, found_id: str | None) -> None:
    """Raises OffsetsLostError if a topic is another than when the read was planned. None: not known."""
    if planned_id is not None and found_id is not None and found_id != planned_id:
        raise OffsetsLostError(
            f"topic {topic} was deleted and created again after the read was planned: start the query again"
        )


def lose(what: str, losses: list[str] | None) -> None:
    """Append the loss to `losses`, or raise OffsetsLostError if `losses` is None."""
    if losses is None:
        raise OffsetsLostError(
            f"{what}; set failOnDataLoss=false to skip lost records, with a warning in the log"
        )
    losses.append(what)
