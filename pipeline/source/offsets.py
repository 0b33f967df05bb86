"""What a read covers: positions and the bounds of logs in, offset ranges out.

Owns the arithmetic of offset ranges, all of it pure, the words for places in logs, and which topics a pattern
means.

Invariants: ranges are half open [start, end), never empty, and those of a partition lie in order without gap.
What would read less than was asked is refused, or named in a list of losses.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple, TypeAlias
from uuid import UUID

EARLIEST = -2
LATEST = -1
# What brokers that know no ids give.
NO_TOPIC_ID = UUID(int=0)


class OptionError(ValueError):
    """An option of the source cannot be followed; the message says which, why, and what would do."""


class OffsetsLostError(RuntimeError):
    """Records that were still to be read are gone from the log."""


class Place(NamedTuple):
    """A topic's partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def check_pattern(option: str, pattern: str) -> None:
    """Raises OptionError for what is no regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(f"{option}: {pattern!r} is not a regular expression ({error})") from None


def fits(pattern: str, topic: str) -> bool:
    """Whether a topic is one that the pattern means: its whole name, as in Kafka's subscribe."""
    return re.fullmatch(pattern, topic) is not None


class OffsetRange(NamedTuple):
    """The records of one partition with start <= offset < end."""

    topic: str
    partition: int
    start: int
    end: int

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
    """The range of each partition in `bounds`, which holds where its log starts and ends; empty ones left
    out.

    Raises OptionError when a position names other partitions than `bounds`, or lies outside the log. Where
    `losses` is given, a start that is gone is appended to it and the range begins where the log does.
    """
    ranges = []
    starts = resolve("startingOffsets", starting, bounds)
    ends = resolve("endingOffsets", ending, bounds)
    for place, (log_start, log_end) in sorted(bounds.items()):
        start, end = starts[place], ends[place]
        if start < log_start and losses is not None:
            losses.append(f"{place} starts at {log_start}, the records from offset {start} are gone")
            start, end = log_start, max(end, log_start)
        if start < log_start:
            raise OptionError(
                f"startingOffsets: {place} starts at {log_start}, offset {start} is gone; start at earliest"
            )
        if end > log_end:
            raise OptionError(f"endingOffsets: {place} ends at {log_end}, offset {end} is not written yet")
        if start > end:
            raise OptionError(f"startingOffsets: {place} would start at {start}, behind its end {end}")
        if start < end:
            ranges.append(OffsetRange(place.topic, place.partition, start, end))
    return ranges


def split_ranges(ranges: Iterable[OffsetRange], min_partitions: int | None) -> list[OffsetRange]:
    """Cut the largest ranges so that there are about `min_partitions` (None: as many as there are).

    Each range gets a share of the pieces by its size, at least one; pieces of a range differ by one record at
    most. As Spark's KafkaOffsetRangeCalculator.
    """
    whole = list(ranges)
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(each.size for each in whole)
    pieces: list[OffsetRange] = []
    for each in whole:
        count = min(max(round(each.size / total * min_partitions), 1), each.size)
        cuts = [each.start + each.size * number // count for number in range(count + 1)]
        pieces += [each._replace(start=start, end=end) for start, end in pairwise(cuts)]
    return pieces


def resolve(option: str, positions: Positions, bounds: Mapping[Place, tuple[int, int]]) -> dict[Place, int]:
    """An offset for each partition in `bounds`. OptionError when `positions` names others."""
    if isinstance(positions, int):
        wanted: Mapping[Place, int] = dict.fromkeys(bounds, positions)
    else:
        wanted = positions
        if wanted.keys() != bounds.keys():
            missing = ", ".join(map(str, sorted(bounds.keys() - wanted.keys()))) or "none"
            strange = ", ".join(map(str, sorted(wanted.keys() - bounds.keys()))) or "none"
            raise OptionError(
                f"{option} must name exactly the partitions that are read: missing {missing},"
                f" strange {strange}"
            )
    edges = {EARLIEST: 0, LATEST: 1}
    return {
        place: bounds[place][edges[position]] if position in edges else position
        for place, position in wanted.items()
    }


def to_json(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """Offsets as Spark's checkpoint holds them, in a fixed order."""
    topics: dict[str, dict[str, int]] = {}
    for place, offset in sorted(offsets.items()):
        topics.setdefault(place.topic, {})[str(place.partition)] = offset
    return topics


class Logs(NamedTuple):
    """The partitions that a read covers: where each log starts and ends, and the ids of their topics.

    A topic whose id nobody knows is not in `topic_ids`.
    """

    bounds: dict[Place, tuple[int, int]]
    topic_ids: dict[str, str]


def lose(what: str, losses: list[str] | None) -> None:
    """Append the loss to `losses`, or raise OffsetsLostError where it is None."""
    if losses is None:
        raise OffsetsLostError(
            f"{what}; set failOnDataLoss=false to go on with what is left, which is then named in the log"
        )
    losses.append(what)
