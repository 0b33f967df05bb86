"""What a cleaner may clean, which log is the dirtiest, and which segments become one.

The dirty part that may be cleaned follows, up to the segment that must not be touched yet: the last one, one
that is not stable, or one that holds records younger than min.compaction.lag.ms.

Invariants: whole segments are cleaned; those of a group join and become one segment, which starts where the
first of them starts and ends where the last of them ends.

Pure. Source: Kafka's LogCleanerManager.grabFilthiestCompactedLog and Cleaner.groupSegmentsBySize.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from tidelog.broker.storage.log_config import LogConfig

_LARGEST_RELATIVE_OFFSET = 2**31 - 1


class SegmentFacts(Protocol):
    """A segment, as far as it counts here. Timestamps in milliseconds."""

    @property
    def base_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...


SegmentT = TypeVar("SegmentT", bound=SegmentFacts)


class Cleanable(NamedTuple):
    """What of a log may be cleaned now."""

    first_dirty_offset: int
    end_offset: int
    """Where the first segment begins that must not be touched yet."""
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int = 0
    """How long ago max.compaction.lag.ms has passed for the oldest dirty record."""
    start_offset: int = 0
    """Where the log's first segment begins."""

    @property
    def dirty_ratio(self) -> float:
        """The part of what may be touched that was not cleaned before, from 0 to 1."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    def is_due(self, min_cleanable_dirty_ratio: float) -> bool:
        """Whether it is dirty enough, or too old."""
        return self.dirty_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > min_cleanable_dirty_ratio)


def cleanable(
    segments: Sequence[SegmentFacts],
    *,
    first_dirty_offset: int,
    stable_offset: int,
    config: LogConfig,
    now_ms: int,
) -> Cleanable:
    """What of a log with these segments, of which the last one grows, may be cleaned.

    Nothing at or after `stable_offset` is touched.
    """
    first_dirty = max(first_dirty_offset, segments[0].base_offset)
    end_offset = segments[0].base_offset
    clean_bytes = dirty_bytes = 0
    young_ms = now_ms - config.min_compaction_lag_ms
    for segment in segments[:-1]:
        is_young = config.min_compaction_lag_ms > 0 and segment.max_timestamp > young_ms
        if segment.end_offset > stable_offset or is_young:
            break
        end_offset = segment.end_offset
        if end_offset > first_dirty:
            dirty_bytes += segment.size_bytes
        else:
            clean_bytes += segment.size_bytes
    first_dirty = min(first_dirty, end_offset)
    return Cleanable(first_dirty, end_offset, clean_bytes, dirty_bytes, start_offset=segments[0].base_offset)


def overdue_ms(first_timestamps: Iterable[int], config: LogConfig, now_ms: int) -> int:
    """How long ago max.compaction.lag.ms has passed for a log, 0 if it has not.

    `first_timestamps`: those with which its dirty segments begin; below 0 where they are not known.
    """
    oldest = min((each for each in first_timestamps if each >= 0), default=now_ms)
    lag_ms = max(config.max_compaction_lag_ms, config.min_compaction_lag_ms)
    return max(now_ms - lag_ms - oldest, 0)


def groups(
    segments: Sequence[SegmentT], end_offset: int, max_bytes: int, must_be_alone: Callable[[SegmentT], bool]
) -> Iterator[list[SegmentT]]:
    """The segments before `end_offset` in groups that become one segment each, the oldest first.

    The sizes of a group are within `max_bytes` together, and its offsets fit an index.
    """
    group: list[SegmentT] = []
    size, is_closed = 0, False
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        is_alone = must_be_alone(segment)
        fits = (
            not (is_alone or is_closed)
            and size + segment.size_bytes <= max_bytes
            and (not group or _joins(group, segment))
        )
        if group and not fits:
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size_bytes
        is_closed = is_alone
    if group:
        yield group


def _joins(group: Sequence[SegmentFacts], segment: SegmentFacts) -> bool:
    is_next = group[-1].end_offset == segment.base_offset
    return is_next and segment.end_offset - 1 - group[0].base_offset <= _LARGEST_RELATIVE_OFFSET
