"""The broker's log cleaner: finds the dirtiest compacted log and cleans it, one at a time.

Owns the timer, the choice between logs, and which logs cannot be cleaned. Reading and writing run in a
thread, within log.cleaner.io.max.bytes.per.second; the swaps of files run in a thread while no other disk
work does. The loop itself only compares numbers and replaces a list of segments.

Invariants: at most one clean runs; a log that was closed, deleted or cut meanwhile, or lost segments, is left
for a later clean; a log whose clean failed is not tried again before a restart, unless space or handles were
lacking; its reads and writes continue. A swap that failed halfway takes its partition offline.

Event loop only. Source: Kafka's LogCleaner, LogCleanerManager.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from uuid import UUID

import structlog

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.observability.cleaner_counts import CleanerCounts
from tidelog.broker.replicas.partitions import Partitions
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.replica_log import all_flushed
from tidelog.broker.storage.compaction.cleaner import CleanStats, CleanStoppedError, LogClean, Pacing
from tidelog.broker.storage.compaction.selection import Cleanable, overdue_ms
from tidelog.broker.storage.disk import Disk, advice_on, may_be_repeated
from tidelog.broker.storage.local_segment import LocalSegment
from tidelog.broker.storage.producer_table import last_offsets_of, producer_ids_of
from tidelog.broker.storage.swap import HalfSwappedError, discard
from tidelog.broker.tasks import is_set_within

LOGS_PER_TURN = 50
_NEVER_MS = 2**63 - 1
_FAILED_ADVICE = (
    "the log is not cleaned again before a restart and grows until then; its reads and writes continue. "
    "Check the disk; `tidelog log verify` shows whether anything is damaged"
)
_RETRIED_ADVICE = "free space on the disk; the broker tries again, and the log grows until then"
logger = structlog.get_logger(__name__)


class _LogChangedError(Exception):
    """The log was closed, deleted or cut since the clean began, or no snapshot could be written for it."""


@dataclass(eq=False)
class LogCleaner:
    """Cleans the compacted logs of one broker, the dirtiest first."""

    _partitions: Partitions
    _clock_ms: Callable[[], int]
    _config: Callable[[], BrokerConfig]
    _counts: CleanerCounts
    _disk: Disk
    _is_stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _stopping: Event = field(default_factory=Event, init=False)
    _uncleanable: set[tuple[UUID, int]] = field(default_factory=set, init=False)
    _interrupted: set[tuple[UUID, int]] = field(default_factory=set, init=False)
    """Logs that changed during their last clean: others go first, or one could keep them all waiting."""
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def start(self) -> None:
        """Begin to clean, unless log.cleaner.enable is false."""
        if self._config().log_cleaner_enable:
            self._task = asyncio.get_running_loop().create_task(self._repeat())

    async def stop(self) -> None:
        """End a clean that runs: what was not swapped in is removed."""
        self._stopping.set()
        self._is_stopping.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def _repeat(self) -> None:
        while not self._is_stopping.is_set():
            try:
                has_cleaned = await self.clean_dirtiest()
            except Exception as error:
                has_cleaned = False
                logger.error("log_cleaner_failed", error=repr(error), advice="the broker tries again")
            if not has_cleaned:
                await is_set_within(self._is_stopping, self._config().log_cleaner_backoff_ms / 1000)

    async def clean_dirtiest(self) -> bool:
        """Clean the log that is dirtiest, if one is dirty enough; whether there was one."""
        async with self._busy:
            chosen = await self._choose()
            if chosen is None:
                return False
            replica, found = chosen
            return await self._clean(replica, found)

    async def _choose(self) -> tuple[Replica, Cleanable] | None:
        now_ms = self._clock_ms()
        best: tuple[Replica, Cleanable] | None = None
        highest = (False, 0.0)
        percent = delay_ms = uncleanable_bytes = 0
        for number, replica in enumerate(list(self._partitions.replicas.values())):
            if number % LOGS_PER_TURN == LOGS_PER_TURN - 1:
                await asyncio.sleep(0)
            config = replica.log.config
            if "compact" not in config.cleanup_policy or not replica.is_running:
                continue
            found = replica.log.compaction.cleanable(config, replica.ends.last_stable, now_ms)
            if _key(replica) in self._uncleanable:
                uncleanable_bytes += found.dirty_bytes
                continue
            if config.max_compaction_lag_ms < _NEVER_MS and found.dirty_bytes:
                try:
                    times = await asyncio.to_thread(replica.log.compaction.first_timestamps, found)
                except OSError as error:
                    self._report_failure(replica, found, error)
                    continue
                found = found._replace(overdue_ms=overdue_ms(times, config, now_ms))
            percent = max(percent, int(100 * found.dirty_ratio))
            delay_ms = max(delay_ms, found.overdue_ms)
            rank = (_key(replica) not in self._interrupted, found.dirty_ratio)
            if found.is_due(config.min_cleanable_dirty_ratio) and rank > highest:
                best, highest = (replica, found), rank
        counts = self._counts
        counts.dirty_percent, counts.compaction_delay_seconds = percent, delay_ms // 1000
        counts.uncleanable_partitions, counts.uncleanable_bytes = len(self._uncleanable), uncleanable_bytes
        return best

    async def _clean(self, replica: Replica, found: Cleanable) -> bool:
        """Whether the log is as clean as it can be now; it may fail, and is reported then."""
        self._interrupted.add(_key(replica))
        try:
            stats = await self._cleaned(replica, found)
        except (CleanStoppedError, _LogChangedError):
            return False
        except HalfSwappedError as error:
            replica.fail(error)
            return False
        except Exception as error:
            self._report_failure(replica, found, error)
            return False
        self._interrupted.discard(_key(replica))
        self._counts.cleaned(
            stats.bytes_read, stats.bytes_before, stats.bytes_after, stats.seconds, stats.map_utilization
        )
        _report(replica, stats)
        return True

    async def _cleaned(self, replica: Replica, found: Cleanable) -> CleanStats:
        log, config = replica.log, self._config()
        async with self._partitions.disk_work:
            await self._cover(replica, found)
        frozen = log.producers.freeze()
        try:
            last_offsets = await asyncio.to_thread(last_offsets_of, frozen)
            producer_ids = await asyncio.to_thread(producer_ids_of, frozen)
        finally:
            log.producers.thaw()
        task = log.compaction.begin(
            log.config,
            found,
            replica.ends.last_stable,
            self._clock_ms(),
            config.log_cleaner_dedupe_buffer_size,
        )
        pacing = Pacing(config.log_cleaner_io_max_bytes_per_second, self._stopping)
        clean = LogClean(task, pacing, last_offsets, producer_ids)
        await asyncio.to_thread(clean.build_map)
        for group in clean.groups():
            present = log.compaction.present(group)
            new = await asyncio.to_thread(clean.write, present) if present else None
            if new is not None:
                await self._swap(replica, present, new)
        async with self._partitions.disk_work:
            self._check_is_open(replica)
            await asyncio.to_thread(log.compaction.save_first_dirty, clean.stats.end_offset)
            if log.compaction.needs_snapshot():
                await self._partitions.checkpoint(log)
        return clean.stats

    async def _cover(self, replica: Replica, found: Cleanable) -> None:
        """Write the snapshots that the clean needs. Raises _LogChangedError where that is not possible."""
        self._check_is_open(replica)
        compaction = replica.log.compaction
        if not compaction.is_covered(found):
            await self._partitions.checkpoint(replica.log)
            await all_flushed([replica])
            self._check_is_open(replica)
            if not compaction.is_covered(found):
                raise _LogChangedError

    def _is_open(self, replica: Replica) -> bool:
        key = replica.topic, replica.partition
        is_running = self._partitions.replicas.get(key) is replica and replica.is_running
        return is_running and self._partitions.logs.logs.get(key) is replica.log

    def _check_is_open(self, replica: Replica) -> None:
        """Raises _LogChangedError."""
        if not self._is_open(replica):
            raise _LogChangedError

    async def _swap(self, replica: Replica, group: list[LocalSegment], new: LocalSegment) -> None:
        """Put `new` in the place of the group. Raises OSError, HalfSwappedError, _LogChangedError."""
        log = replica.log
        async with self._partitions.disk_work:
            try:
                self._check_is_open(replica)
                if not log.compaction.begin_swap(group):
                    raise _LogChangedError
            except _LogChangedError:
                await asyncio.to_thread(discard, self._disk, new)
                raise
            swapped = None
            try:
                await asyncio.to_thread(log.compaction.swap, group, new)
                swapped = new
            finally:
                log.compaction.finish_swap(group, swapped)
            await asyncio.to_thread(self._unlink, log.compaction.take_deleted_files())

    def _unlink(self, paths: list[Path]) -> None:
        for path in paths:
            with suppress(OSError):  # The next start removes it.
                self._disk.unlink(path)

    def _report_failure(self, replica: Replica, found: Cleanable, error: Exception) -> None:
        if not self._is_open(replica) or replica.log.compaction.has_lost_segments(found):
            return  # Its files went away while they were read. The next clean reads those that are left.
        is_retried = may_be_repeated(error)
        if not is_retried:
            self._uncleanable.add(_key(replica))
        logger.error(
            "log_clean_failed",
            topic=replica.topic,
            partition=replica.partition,
            error=str(error) or repr(error),
            advice=advice_on(error, _RETRIED_ADVICE if is_retried else _FAILED_ADVICE),
        )


def _key(replica: Replica) -> tuple[UUID, int]:
    return replica.topic_id, replica.partition


def _report(replica: Replica, stats: CleanStats) -> None:
    logger.info(
        "log_cleaned",
        topic=replica.topic,
        partition=replica.partition,
        from_offset=stats.first_dirty_offset,
        end_offset=stats.end_offset,
        keys=stats.map_keys,
        bytes_before=stats.bytes_before,
        bytes_after=stats.bytes_after,
        segments_before=stats.segments_before,
        segments_after=stats.segments_after,
        seconds=round(stats.seconds, 3),
    )
