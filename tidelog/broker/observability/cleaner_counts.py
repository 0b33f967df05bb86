"""The numbers of the log cleaner under the names that the common JMX exporter rules give Kafka's MBeans.

Owns the counts of one broker. Written on the event loop's thread only; prometheus_client is imported by the
first scrape. Source: kafka.log:type=LogCleaner and type=LogCleanerManager.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.broker.observability.series import Metric, counter, gauge

_CLEANER = "kafka_log_logcleaner"
_MANAGER = "kafka_log_logcleanermanager"


@dataclass(slots=True)
class CleanerCounts:
    """Numbers since the start, and those of the last look at all logs."""

    cleans: int = 0
    bytes_read: int = 0
    bytes_removed: int = 0
    seconds: float = 0.0
    last_clean_seconds: float = 0.0
    recopy_percent: int = 0
    buffer_utilization_percent: int = 0
    dirty_percent: int = 0
    compaction_delay_seconds: int = 0
    uncleanable_partitions: int = 0
    uncleanable_bytes: int = 0

    def cleaned(
        self, bytes_read: int, bytes_before: int, bytes_after: int, seconds: float, utilization: float
    ) -> None:
        """One clean is done. `utilization`: the part of the map that was used."""
        self.cleans += 1
        self.bytes_read += bytes_read
        self.bytes_removed += bytes_before - bytes_after
        self.seconds += seconds
        self.last_clean_seconds = seconds
        self.recopy_percent = 100 * bytes_after // max(bytes_before, 1)
        self.buffer_utilization_percent = int(100 * utilization)

    def collect(self) -> Iterator[Metric]:
        """For prometheus_client: every series as it is now."""
        dirty = "Part of the dirtiest log that is new since its last compaction, in percent."
        yield gauge(f"{_MANAGER}_max_dirty_percent", dirty, self.dirty_percent)
        failed = "Partitions whose compaction failed. They are not compacted again before a restart."
        yield gauge(f"{_MANAGER}_uncleanable_partitions", failed, self.uncleanable_partitions)
        waiting = "Bytes in them that wait for it."
        yield gauge(f"{_MANAGER}_uncleanable_bytes", waiting, self.uncleanable_bytes)
        delay = "How long a log has waited for compaction after its max.compaction.lag.ms."
        yield gauge(f"{_CLEANER}_max_compaction_delay_secs", delay, self.compaction_delay_seconds)
        yield gauge(f"{_CLEANER}_max_clean_time_secs", "Time of the last clean.", self.last_clean_seconds)
        left = "Size of the log after the last clean, in percent of its size before."
        yield gauge(f"{_CLEANER}_cleaner_recopy_percent", left, self.recopy_percent)
        used = "Part of the map of keys that the last clean used, in percent."
        yield gauge(f"{_CLEANER}_max_buffer_utilization_percent", used, self.buffer_utilization_percent)
        yield counter("tidelog_log_cleaner_cleans", "Cleans of compacted logs.", self.cleans)
        yield counter("tidelog_log_cleaner_read_bytes", "Bytes that the cleaner read.", self.bytes_read)
        removed = "Bytes that compaction removed."
        yield counter("tidelog_log_cleaner_removed_bytes", removed, self.bytes_removed)
        yield counter("tidelog_log_cleaner_seconds", "Time that cleans took.", self.seconds)
