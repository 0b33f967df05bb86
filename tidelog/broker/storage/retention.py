"""Which segments of a log are deleted by size and by age, on the disk and in remote storage.

Safe in any thread. Source: Kafka's UnifiedLog.deletableSegments.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from tidelog.broker.storage.local_segment import LocalSegment
from tidelog.broker.storage.log_config import LogConfig


class AgingSegment(Protocol):
    """A segment as retention sees it. A log's age is that of its records, see `is_older_than`."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    def is_older_than(self, moment_ms: int) -> bool: ...


def segments_to_delete(
    segments: Sequence[AgingSegment],
    config: LogConfig,
    deletable_end: int,
    now_ms: int,
    *,
    newer_bytes: int = 0,
) -> int:
    """How many segments from the oldest on are past retention.bytes or retention.ms. Raises OSError.

    `newer_bytes`: the size of the log after `segments`.
    """
    if "delete" not in config.cleanup_policy:
        return 0
    excess = sum(segment.size_bytes for segment in segments) + newer_bytes - config.retention_bytes
    count = 0
    for segment in segments:
        if not segment.size_bytes or segment.end_offset > deletable_end:
            break
        too_much = config.retention_bytes >= 0 and excess >= segment.size_bytes
        too_old = config.retention_ms >= 0 and segment.is_older_than(now_ms - config.retention_ms)
        if not (too_much or too_old):
            break
        excess -= segment.size_bytes
        count += 1
    return count


def latest_of_old_when_written(
    segments: Sequence[LocalSegment], config: LogConfig, deletable_end: int, now_ms: int
) -> int | None:
    """The largest timestamp of the records that retention deletes less than retention.ms after they were
    written, because they were older than that already; None if there are none, or a file cannot be read."""
    latest = None
    with suppress(OSError):
        for segment in segments[: segments_to_delete(segments, config, deletable_end, now_ms)]:
            timestamp, written_ms = segment.max_timestamp, segment.written_ms
            is_young = now_ms - written_ms < config.retention_ms
            if timestamp >= 0 and is_young and written_ms - timestamp > config.retention_ms:
                latest = timestamp if latest is None else max(latest, timestamp)
    return latest
