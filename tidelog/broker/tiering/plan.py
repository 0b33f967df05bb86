"""What is copied to remote storage and what is deleted there, as rules over a manifest and a local log.

Invariants: a segment is copied only when nothing in it can change: it is closed, and lies behind the
committed end and the last stable offset; segments are deleted from the oldest on.

Pure. Source: Kafka's RemoteLogManager (candidateLogSegments, cleanupExpiredRemoteLogSegments).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.log_types import LogEnds
from tidelog.protocol.types import NO_LEADER_EPOCH
from tidelog.remote_log.manifest import Manifest


def copyable_end(ends: LogEnds) -> int:
    """Behind it nothing changes any more."""
    return min(ends.committed, ends.last_stable)


def start_after_retention(manifest: Manifest, config: LogConfig, newer_bytes: int, now_ms: int) -> int:
    """Where the log begins once retention.ms and retention.bytes have deleted the oldest segments.
    `newer_bytes` is the size of what is not in remote storage yet."""
    excess = manifest.size_bytes + newer_bytes - config.retention_bytes
    start = manifest.start_offset
    for each in manifest.segments:
        too_much = config.retention_bytes >= 0 and excess >= each.size_bytes
        last_ms = each.max_timestamp if each.max_timestamp >= 0 else each.written_ms
        too_old = config.retention_ms >= 0 and last_ms < now_ms - config.retention_ms
        if not (too_much or too_old):
            break
        excess -= each.size_bytes
        start = each.end_offset
    return start


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
