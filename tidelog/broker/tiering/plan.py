"""What is copied to remote storage and what is deleted there, as rules over a manifest and a local log.

Invariants: a segment is copied only when nothing in it can change: it is closed, and lies behind the
committed end and the last stable offset; segments are deleted from the oldest on.

Pure. Source: Kafka's RemoteLogManager (candidateLogSegments, cleanupExpiredRemoteLogSegments).
"""

from collections.abc import Sequence

from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.log_types import LogEnds
from tidelog.broker.storage.retention import AgingSegment, segments_to_delete
from tidelog.protocol.types import NO_LEADER_EPOCH
from tidelog.remote_log.manifest import Manifest

_LOCAL_RETENTION = -1


def copyable_end(ends: LogEnds) -> int:
    """Behind it nothing changes any more."""
    return min(ends.committed, ends.last_stable)


def start_after_retention(manifest: Manifest, config: LogConfig, newer_bytes: int, now_ms: int) -> int:
    """Where the log begins once retention.ms and retention.bytes have deleted the oldest segments.
    `newer_bytes` is the size of what is not in remote storage yet."""
    segments = manifest.segments
    count = segments_to_delete(segments, config, manifest.end_offset, now_ms, newer_bytes=newer_bytes)
    return segments[count - 1].end_offset if count else manifest.start_offset


def may_be_copied(segment: AgingSegment, newer_bytes: int, config: LogConfig, now_ms: int) -> bool:
    """Whether remote.copy.lag.ms or remote.copy.lag.bytes lets a closed segment be copied. `newer_bytes` is
    the size of the log after it. Raises OSError.

    Source: Kafka's TopicConfig, REMOTE_COPY_LAG_MS_DOC.
    """
    local = config.of_local_segments
    lag_ms, lag_bytes = config.remote_copy_lag_ms, config.remote_copy_lag_bytes
    if lag_ms == _LOCAL_RETENTION:
        lag_ms = local.retention_ms
    if lag_bytes == _LOCAL_RETENTION:
        lag_bytes = local.retention_bytes
    is_old = lag_ms == 0 or (lag_ms > 0 and segment.is_older_than(now_ms - lag_ms + 1))
    return is_old or 0 <= lag_bytes <= newer_bytes


def agreed_end(
    manifest: Manifest, epochs: Sequence[tuple[int, int]], start_offset: int, end_offset: int
) -> int:
    """Up to which offset the manifest describes the same log as the local one, which has these leader epochs,
    begins at `start_offset` and ends at `end_offset`. That is all of it, unless an unclean election lost
    records that had been copied."""
    end = min(manifest.end_offset, end_offset)
    begins = {start_offset, *(first_offset for _, first_offset in (*manifest.epochs, *epochs))}
    for offset in sorted(begins):
        if start_offset <= offset < end and _epoch_at(manifest.epochs, offset) != _epoch_at(epochs, offset):
            return offset
    return end


def _epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> int:
    return max((epoch for epoch, first_offset in epochs if first_offset <= offset), default=NO_LEADER_EPOCH)
