"""All partition logs under one data folder.

Owns the folder: its lock, the marker of a clean shutdown, the two offset checkpoints, and the list of the
partitions in it. Reports what recovery found as log events.

Invariants:
- one process holds the folder (flock; the kernel releases it when the process ends);
- the clean-shutdown marker is removed, durably, before anything is appended. It is written again only when
  every log was flushed, with its indexes and snapshot;
- a recovery point in the checkpoint is never ahead of what is durable;
- a log whose files could not be opened or changed for lack of space or file handles may be opened again in
  this process. After any other error, and after a failed sync, only the next start opens it.

`open_all`, `create_many`, `delete`, `purge`, `write_checkpoints` and `close` block on the disk:
while the loop serves requests, call them in a thread (only one at a time of those that create or remove). The
periodic work belongs to the loop.
"""

import errno
import json
import logging
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import structlog

from tidelog.broker.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CheckpointError,
    TopicPartition,
    is_same_boot,
    note_boot,
    read_leader_epochs,
)
from tidelog.broker.storage.disk import (
    Disk,
    HandleLimitError,
    advice_on,
    is_out_of_handles,
    may_be_repeated,
    repeated_advice_on,
)
from tidelog.broker.storage.folders import (
    Folders,
    ForeignFolderError,
    FoundPartition,
    MadeFolder,
    NewPartitions,
)
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.log_types import CheckpointWork
from tidelog.broker.storage.offset_checkpoints import OffsetCheckpoints
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.broker.storage.producers_before import producers_before
from tidelog.broker.storage.recovery import ANY_EPOCH, Opening, RecoveryReport
from tidelog.broker.storage.snapshot import decode_snapshot, snapshots, write_snapshot
from tidelog.broker.storage.truncation import apply_cut, empty_folder, find_cut
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.types import NO_LEADER_EPOCH

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_HANDLES_PER_CLOSED_SEGMENT = 3
"""Its log and its indexes. The last segment of a log holds its indexes in memory."""
_SPARE_HANDLES = 32
"""Handles that must stay free for connections, flushes and the store after partitions were made."""
_DAMAGE_ADVICE = (
    "check the disk; the log ends before the damage, what was cut off is in the files named in kept_aside, "
    "damaged snapshots are kept as .corrupt"
)
_POWER_CUT_ADVICE = (
    "nothing to do after a power cut: only data that was not durable is lost, so nothing that was "
    "acknowledged with acks=all, unless acks.all.durable is false; kept_aside names the files with the "
    "bytes. If there was no power cut, check the disk"
)
_TAIL_ADVICE = (
    "nothing to do: the process ended while it wrote a batch, which was not acknowledged, or before what a "
    "follower copied was durable, which it copies again"
)
_HOLE_ADVICE = (
    "files of this log are missing or too short: stop the broker and put them back from a copy, or accept "
    "the loss by DeleteRecords up to the offset after each hole; until then reads in a hole are answered "
    "with CORRUPT_MESSAGE, all other records are served"
)
_FORGOTTEN_ADVICE = (
    "; no snapshot has the producers before offset {}: a repeated batch of theirs would be stored "
    "twice, so restart producers that may still send one"
)
_START_ADVICE = (
    "nothing to do if retention or DeleteRecords had just deleted these records when the broker ended; else "
    "files were removed: put them back while the broker is stopped"
)
_OPEN_ADVICE = "check the disk that holds the data folder, then restart the broker"
_FOREIGN_ADVICE = (
    "nothing in the folder was changed; stop the broker, then move the folder away if it is another topic's, "
    "or remove its partition.metadata if its records are this topic's, and start again"
)
_NOT_CLEAN_ADVICE = (
    "nothing that was acknowledged is lost, and the next start reads the logs to their ends; check the disk "
    "and its space before"
)
_SYNCED_AT_ONCE = 16
"""Logs that are flushed, or closed, at the same time: a disk does many syncs in about the time of one."""
_FOLDER_ADVICE = "it is empty now; if its folder was moved, stop the broker, put it back, start again"
logger = structlog.get_logger(__name__)


class DataFolderError(Exception):
    """The data folder cannot be used. The message says why and what to do."""


class OldRecords(NamedTuple):
    """Records that were deleted soon after they were written, because their timestamps are old."""

    topic: str
    records: int
    """How many records of the partition were deleted in all."""
    latest_timestamp_ms: int
    retention_ms: int


class LogManager:
    """Opens, makes and removes the logs of one data folder."""

    def __init__(
        self,
        data_dir: Path,
        *,
        next_producer_id: Callable[[], int],
        disk: Disk | None = None,
        steady_ms: Callable[[], int] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.lacking: set[TopicPartition] = set()
        """Partitions whose logs are not open for lack of space or file handles: `open_all` may open them."""
        self.was_clean = False
        """Whether the last process shut down cleanly, and no log was given up since."""
        self._disk = disk or Disk()
        self._folders = Folders(data_dir, self._disk)
        self._next_producer_id = next_producer_id
        self._steady_ms = steady_ms
        self._old_when_written: dict[TopicPartition, int] = {}
        self._lock_fd = -1
        self._checkpoints = OffsetCheckpoints(self._disk, data_dir)
        self._doomed: deque[Path] = deque()
        """Files of no log any more that wait for `purge`."""
        self._unopened = False
        self._is_same_boot = False
        """The machine has not started again since the last process: what it wrote cannot have been lost."""

    def lock(self) -> None:
        """Take the folder for this process and read its checkpoints. Raises DataFolderError, OSError."""
        self._disk.make_directory(self.data_dir)
        path = self.data_dir / LOCK_FILE
        self._lock_fd = self._disk.open(path)
        if not self._disk.lock(self._lock_fd):
            self._disk.close(self._lock_fd)
            self._lock_fd = -1
            raise DataFolderError(
                f"another broker is using {self.data_dir}; stop it, or choose another folder with --data-dir"
            )
        try:
            self._read_folder()
        except BaseException:
            self._disk.close(self._lock_fd)
            self._lock_fd = -1
            raise

    def _read_folder(self) -> None:
        marker = self.data_dir / CLEAN_SHUTDOWN
        has_marker = self._disk.exists(marker)
        is_new = not self._checkpoints.exist() and not self.found_partitions()
        self._is_same_boot = is_same_boot(self._disk, self.data_dir)
        if is_new:
            note_boot(self._disk, self.data_dir)
        are_known = self._checkpoints.load(must_exist=has_marker and not is_new)
        self.was_clean = are_known and (has_marker or is_new)
        # Last: a start that fails before leaves the folder as it was.
        if has_marker:
            self._disk.unlink(marker)
            self._disk.fsync_directory(self.data_dir)

    def found_partitions(self) -> list[FoundPartition]:
        """The partitions that have a folder here, whether open or not."""
        return self._folders.found()

    def holds_nothing(self, found: FoundPartition) -> bool:
        """Whether no record was ever in the folder of a partition that is not open. Raises OSError."""
        return self._folders.holds_nothing((found.topic, found.partition))

    def latest_epoch(self, found: FoundPartition) -> int:
        """The leader epoch of the last record of a partition that is not open, or a later one where its file
        is damaged. Raises OSError."""
        folder = self._folders.path((found.topic, found.partition))
        try:
            epochs = read_leader_epochs(self._disk, folder / LEADER_EPOCHS)
        except CheckpointError:
            return ANY_EPOCH
        return epochs[-1][0] if epochs else NO_LEADER_EPOCH

    def remove(self, found: Iterable[FoundPartition]) -> None:
        """Remove folders of partitions that are not open. Raises OSError."""
        self._remove([(each.topic, each.partition) for each in found])

    def open_all(
        self,
        partitions: Iterable[tuple[str, UUID, int, LogConfig]],
        now_ms: int,
        latest_epochs: Mapping[TopicPartition, int] | None = None,
        copied: Container[TopicPartition] = (),
    ) -> dict[TopicPartition, PartitionLog]:
        """Open or create the logs of (topic, topic id, partition, config); their latest leader epochs beside,
        and which of them other brokers have replicas of.

        A log that cannot be opened is reported and missing in the result; the others are opened. Raises
        OSError if the process has too few file handles.
        """
        opened: list[PartitionLog] = []
        failed: list[tuple[TopicPartition, OSError]] = []
        found: dict[TopicPartition, tuple[MadeFolder, LogConfig]] = {}
        for topic, topic_id, partition, config in partitions:
            key = (topic, partition)
            if key not in self.logs:
                try:
                    found[key] = self._folder(key, topic_id), config
                except OSError as error:
                    failed.append((key, error))
        new = [key for key, (folder, _) in found.items() if folder.is_new]
        try:
            if new:
                self._folders.sync()  # Their names are durable before they are used.
                self._begin_anew(new)
        except OSError as error:
            failed += [(key, error) for key in new]
            self._take_back(new)  # Another attempt would not make their names durable.
            found = {key: each for key, each in found.items() if not each[0].is_new}
        for key, (folder, config) in found.items():
            try:
                log = self.logs[key] = self._open(
                    key,
                    folder.path,
                    config,
                    now_ms,
                    is_clean=folder.is_new or self.was_clean,
                    latest_epoch=(latest_epochs or {}).get(key, ANY_EPOCH),
                    has_copies=key in copied,
                )
                self._report(log)
                opened.append(log)
            except OSError as error:
                failed.append((key, error))
                if is_out_of_handles(error):
                    break
        failed += self._flush(opened)
        # Their files were not checked to the end, so the next start must not trust them.
        self._unopened |= bool(failed)
        self.lacking -= self.logs.keys()
        known = self.lacking.copy()
        for key, failure in failed:
            if is_out_of_handles(failure):
                # These logs are not damaged, and the next ones would find no handle either.
                in_doubt = {each for each, error in failed if not may_be_repeated(error)}
                self.lacking |= (found.keys() | {each for each, _ in failed}) - self.logs.keys() - in_doubt
                raise failure
            if may_be_repeated(failure):
                self.lacking.add(key)
            else:
                self.lacking.discard(key)
            if key in known & self.lacking:
                continue
            topic, partition = key
            is_foreign = isinstance(failure, ForeignFolderError)
            logger.error(
                "partition_offline",
                topic=topic,
                partition=partition,
                error=str(failure),
                advice=_FOREIGN_ADVICE if is_foreign else repeated_advice_on(failure, _OPEN_ADVICE),
            )
        if any(log.recovery.below_recovery_point for log in self.logs.values()):
            # Else the next crash would take what is appended below the old point for durable.
            with suppress(OSError):
                self.write_checkpoints()
        if not self._is_same_boot:
            note_boot(self._disk, self.data_dir)
        return self.logs

    def _flush(self, logs: Iterable[PartitionLog]) -> list[tuple[TopicPartition, OSError]]:
        """Make durable what recovery read back, of all logs at once. Closes and returns those where that
        fails, with the error."""
        works = [(log, work) for log in logs if (work := log.begin_flush()) is not None]
        failed: list[tuple[TopicPartition, OSError]] = []
        with ThreadPoolExecutor(_SYNCED_AT_ONCE, thread_name_prefix="flushing") as threads:
            # A log of many files gets all threads, and what is written is written in one order.
            outcomes = [
                work.attempt(threads.map)
                if work.before or len(work.files) > _SYNCED_AT_ONCE
                else threads.submit(work.attempt)
                for _, work in works
            ]
            for (log, work), outcome in zip(works, outcomes, strict=True):
                error = outcome.result() if isinstance(outcome, Future) else outcome
                if error is None:
                    log.finish_flush(work)
                    continue
                key = (log.topic, log.partition)
                self._unopened = True
                self.logs.pop(key).close(clean=False)
                failed.append((key, error))
        return failed

    def _folder(self, key: TopicPartition, topic_id: UUID) -> MadeFolder:
        """The folder of a partition, made if there is none. Raises OSError."""
        folder = self._folders.open(key, topic_id)
        if folder.is_new and (lost := self._checkpoints.recovery_point(key)):
            what = {"topic": key[0], "partition": key[1], "records_before": lost}
            logger.error("partition_folder_missing", **what, advice=_FOLDER_ADVICE)
        return folder

    def create_many(self, wanted: Sequence[NewPartitions], now_ms: int) -> list[list[PartitionLog] | OSError]:
        """Make new partitions of topics, with one sync for all of their names.

        Those of one topic are made all or none: its logs, or the error. Their folders, ids and logs are
        durable with what is first written to each.
        """
        outcomes: list[list[PartitionLog] | OSError] = [[] for _ in wanted]
        begun: dict[int, list[MadeFolder]] = {}
        handles = 0
        for index, new in enumerate(wanted):
            handles += len(new.partitions)
            try:
                self._require_handles(handles)
                begun[index] = [self._folders.make(key, new.topic_id) for key in new.keys]
            except OSError as error:
                handles -= len(new.partitions)
                outcomes[index] = again(error)
        try:
            self._folders.sync()
            are_new = [
                key
                for index, folders in begun.items()
                for key, folder in zip(wanted[index].keys, folders, strict=True)
                if folder.is_new
            ]
            self._begin_anew(are_new)
        except OSError as error:
            outcomes = [again(error)] * len(wanted)
            begun = {}
        for index, folders in begun.items():
            outcomes[index] = self._opened(wanted[index], folders, now_ms)
        failed = [new for new, outcome in zip(wanted, outcomes, strict=True) if isinstance(outcome, OSError)]
        if failed:
            self._take_back([key for new in failed for key in new.keys])
        return outcomes

    def _opened(
        self, new: NewPartitions, folders: Sequence[MadeFolder], now_ms: int
    ) -> list[PartitionLog] | OSError:
        made: list[PartitionLog] = []
        try:
            for key, folder in zip(new.keys, folders, strict=True):
                is_clean = folder.is_new or self.was_clean
                made.append(self._open(key, folder.path, new.config, now_ms, is_clean=is_clean))
        except OSError as error:
            for log in made:
                log.close(clean=False)
            return again(error)
        self.logs.update(zip(new.keys, made, strict=True))
        return made

    def _take_back(self, keys: Sequence[TopicPartition]) -> None:
        try:
            self._remove(keys)
            self.purge()
        except OSError as error:
            logger.warning(
                "partition_folders_left",
                error=str(error),
                advice="partitions that could not be created left folders; the next start removes them",
            )

    def _require_handles(self, partitions: int) -> None:
        """Raise OSError if too few handles are free, HandleLimitError if there never will be enough."""
        needed = partitions + _SPARE_HANDLES
        limit, free = self._disk.handle_limit(), self._disk.free_handles()
        if needed <= free:
            return
        held = sum(
            1 + _HANDLES_PER_CLOSED_SEGMENT * (log.segment_count - 1) for log in list(self.logs.values())
        )
        if held + needed > limit:
            raise HandleLimitError(
                errno.EMFILE,
                f"{partitions} partitions need {needed} file handles, the open logs {held}, this "
                f"process may have {limit}; raise its limit (ulimit -n)",
            )
        raise OSError(
            errno.EMFILE, f"{partitions} partitions need {needed} file handles, {free} are free just now"
        )

    def _open(
        self,
        key: TopicPartition,
        folder: Path,
        config: LogConfig,
        now_ms: int,
        *,
        is_clean: bool,
        latest_epoch: int = ANY_EPOCH,
        has_copies: bool = False,
    ) -> PartitionLog:
        opening = Opening(
            config,
            self._next_producer_id,
            now_ms,
            is_clean,
            self._checkpoints.recovery_point(key),
            self._checkpoints.start_offset(key),
            self._is_same_boot,
            latest_epoch,
            has_copies,
            self._steady_ms,
        )
        return PartitionLog.open(folder, *key, self._disk, opening)

    def _begin_anew(self, keys: Sequence[TopicPartition]) -> None:
        """Make sure that new logs get no state of older logs of the same names, not even after a crash."""
        if self._checkpoints.forget(keys):
            self.write_checkpoints()

    def _report(self, log: PartitionLog) -> None:
        report = log.recovery
        if report.start_moved is not None:
            logger.warning(
                "log_start_moved",
                topic=log.topic,
                partition=log.partition,
                saved_start_offset=report.start_moved.first_offset,
                start_offset=report.start_moved.end_offset,
                advice=_START_ADVICE,
            )
        if report.is_damaged:
            is_power_cut = report.is_torn_tail and not self._is_same_boot
            advice = _HOLE_ADVICE if report.holes else _POWER_CUT_ADVICE if is_power_cut else _DAMAGE_ADVICE
            if report.producers_unknown_before >= 0:
                advice += _FORGOTTEN_ADVICE.format(report.producers_unknown_before)
            logger.log(
                logging.WARNING if is_power_cut else logging.ERROR,
                "log_tail_truncated" if is_power_cut else "log_damage_found",
                topic=log.topic,
                **_found(report) | {"holes": [str(hole) for hole in report.holes]},
                partition=log.partition,
                advice=advice,
            )
        elif not report.clean_shutdown or report.rebuilt_indexes:
            found = _found(report)
            # After a clean shutdown, indexes that have to be rebuilt are missing or damaged.
            if report.truncated_bytes:
                found["advice"] = _TAIL_ADVICE
            level = logging.WARNING if report.clean_shutdown or report.truncated_bytes else logging.INFO
            logger.log(level, "log_recovered", topic=log.topic, partition=log.partition, **found)

    def truncate_to(self, topic: str, partition: int, offset: int, now_ms: int) -> PartitionLog:
        """Take a log back so that it ends at `offset`, or before the batch that holds it: batches, indexes,
        leader epochs and producer state together. Returns the log that replaces the earlier one.

        Blocking; no work on the log may be under way. Raises ApiError for an offset that it does not hold,
        and OSError: see `_open_unchanged`; then a log is found that ends there or later.
        """
        key = (topic, partition)
        log = self.logs[key]
        if not log.start_offset <= offset <= log.end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{topic}-{partition} holds offsets {log.start_offset} to {log.end_offset}, it cannot end at"
                f" {offset}",
            )
        del self.logs[key]
        self._checkpoints.note(key, log.recovery_point, log.start_offset)
        try:
            try:
                log.make_durable()
            finally:
                log.close(clean=False)
            cut = find_cut(self._disk, log.folder, offset)
            self._checkpoints.note(key, min(log.recovery_point, cut.end_offset), log.start_offset)
            self.write_checkpoints()
            apply_cut(self._disk, cut)
            if cut.first_offset and not snapshots(self._disk, log.folder):
                # Nothing else shows deleted batches.
                frozen = producers_before(log.producers.view(), cut.first_offset)
                write_snapshot(self._disk, log.folder, cut.first_offset, frozen)
            shorter = self._open(key, log.folder, log.config, now_ms, is_clean=True)
        except OSError as error:
            self._open_unchanged(log, error, now_ms)
            raise
        self.logs[key] = shorter
        return shorter

    def start_over(self, topic: str, partition: int, snapshot: bytes, now_ms: int) -> PartitionLog:
        """Empty a log and let it begin where a leader's snapshot of its producers ends, with those. Returns
        the log that replaces the earlier one.

        Blocking; no work on the log may be under way. Raises ValueError for a snapshot that is damaged, then
        nothing has changed, and OSError: see `_open_unchanged`; then the log that was wanted is found, or one
        that has to start over.
        """
        offset, frozen = decode_snapshot(snapshot)
        key = (topic, partition)
        log = self.logs.pop(key)
        log.close(clean=False)
        try:
            self._begin_anew([key])
            empty_folder(self._disk, log.folder)
            write_snapshot(self._disk, log.folder, offset, frozen)
            # Not before the snapshot exists: an empty log at offset 0 is one that has to start over.
            self._checkpoints.note(key, 0, offset)
            self.write_checkpoints()
            empty = self._open(key, log.folder, log.config, now_ms, is_clean=True)
        except OSError as error:
            self._open_unchanged(log, error, now_ms)
            raise
        self.logs[key] = empty
        return empty

    def _open_unchanged(self, closed: PartitionLog, error: OSError, now_ms: int) -> None:
        """Open a log as it is after a change of its files failed. If anything is in doubt, or that fails as
        well, the partition is offline: until `open_all` if it is `lacking`, else until the next start."""
        key = closed.topic, closed.partition
        self.was_clean, self._unopened = False, True
        if closed.failure is not None or not may_be_repeated(error):
            return
        failed = [error]
        try:
            log = self._open(key, closed.folder, closed.config, now_ms, is_clean=False, has_copies=True)
            self.logs[key] = log
            failed = [failure for _, failure in self._flush([log])]
            if not failed and closed.start_offset <= log.flushed_end_offset:
                log.delete_records_before(closed.start_offset)
        except OSError as again_failed:
            failed = [again_failed]
        if failed and may_be_repeated(failed[0]):
            self.lacking.add(key)

    def delete(self, keys: Sequence[TopicPartition]) -> None:
        """Close logs without work under way, and remove their folders with one sync of all names. Raises
        OSError: then folders may be left."""
        self.lacking.difference_update(keys)
        for key in keys:
            log = self.logs.pop(key, None)
            if log is not None:
                log.close(clean=False)
        try:
            self._remove(keys)
        except OSError:
            if any(map(self._folders.exists, keys)):
                # A partition that is assigned here again gets its folder, which may hold what was never
                # durable.
                self.was_clean, self._unopened = False, True
            raise

    def _remove(self, keys: Sequence[TopicPartition]) -> None:
        if self._checkpoints.forget(keys):
            # Else a partition that comes back after a crash would look like one that has lost its folder.
            with suppress(OSError):
                self.write_checkpoints()
        for key in keys:
            if self._folders.exists(key):
                self._folders.set_aside(self._folders.path(key))
        self._folders.sync()

    def purge(self) -> int:
        """Unlink the files of deleted segments and partitions; returns how many. In any thread."""
        gone = 0
        while self._doomed:
            gone += self._removed(self._disk.unlink, self._doomed.popleft())
        for folder in self._folders.doomed():
            for name in self._disk.list_directory(folder):
                gone += self._removed(self._disk.unlink, folder / name)
            self._removed(self._disk.remove_directory, folder)
        return gone

    @staticmethod
    def _removed(remove: Callable[[Path], None], path: Path) -> bool:
        try:
            remove(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            advice = "remove it by hand; the broker tries again"
            logger.warning("deleted_file_left", path=str(path), error=str(error), advice=advice)
            return False
        return True

    def look_up_ages(self, now_ms: int) -> None:
        """What `run_retention` will have to read of old segments, in any thread."""
        self._old_when_written = {
            key: latest
            for key, log in list(self.logs.items())
            if (latest := log.look_up_ages(now_ms)) is not None
        }

    def run_retention(self, now_ms: int) -> Iterator[OldRecords | None]:
        """Delete old segments of all logs, one log per step. A log that fails is reported and left.

        Yields the records among them that were old when they were written, as `look_up_ages` found them.
        """
        for key, log in list(self.logs.items()):
            try:
                records = log.apply_retention(now_ms)
            except (OSError, ApiError) as error:
                self._retention_failed(log, error)
                continue
            if records:
                tiered = log.config.remote_storage_enable
                logger.info(
                    "local_segments_deleted" if tiered else "records_expired",
                    topic=log.topic,
                    partition=log.partition,
                    records=records,
                    start_offset=log.start_offset,
                )
            self._doomed += log.take_deleted_files()
            latest = self._old_when_written.pop(key, None)
            if records and latest is not None:
                yield OldRecords(log.topic, records, latest, log.config.retention_ms)
            else:
                yield None

    def drop_segments(self, log: PartitionLog) -> Iterator[None]:
        """Remove the files of a log's deleted segments, some in each step."""
        more = True
        while more:
            try:
                more = log.drop_segments()
            except OSError as error:
                self._retention_failed(log, error)
                more = False
            self._doomed += log.take_deleted_files()
            yield

    def _retention_failed(self, log: PartitionLog, error: Exception) -> None:
        advice = "check the disk that holds the data folder; the broker tries again"
        logger.error(
            "retention_failed",
            topic=log.topic,
            partition=log.partition,
            error=str(error),
            advice=advice_on(error.__cause__ or error, advice),
        )

    def expire_producers(self, now_ms: int) -> Iterator[int]:
        """Forget idle producers of all logs; a step forgets some thousands at most and yields the number."""
        for log in list(self.logs.values()):
            while count := log.producers.expire(now_ms):
                yield count

    @property
    def producer_id_count(self) -> int:
        return sum(len(log.producers) for log in list(self.logs.values()))

    def finish_checkpoint(self, log: PartitionLog, work: CheckpointWork, error: OSError | None) -> None:
        """Take over what `work` of `log` achieved; some time later `write_checkpoints` makes it count."""
        log.finish_checkpoint(work, error)
        self._doomed += log.take_deleted_files()
        if error is not None:
            self.report_checkpoint_failed(log, error)

    def report_checkpoint_failed(self, log: PartitionLog, error: OSError) -> None:
        advice = "check the disk and its space; nothing is lost, a crash costs more reading"
        logger.error(
            "checkpoint_failed",
            topic=log.topic,
            partition=log.partition,
            error=str(error),
            advice=advice_on(error, advice),
        )

    def write_checkpoints(self) -> None:
        """Write both offset checkpoints if they changed. Raises OSError."""
        logs = list(self.logs.items())
        self._checkpoints.write(
            {key: log.recovery_point for key, log in logs}, {key: log.start_offset for key, log in logs}
        )

    def close(self, *, clean: bool = True) -> bool:
        """Close every log and release the folder; returns whether all of it was clean. Blocking.

        With `clean` false nothing is written: the next start finds what a crash would have left.
        """
        problem = self._close_logs(clean)
        is_clean = clean and problem is None and not self._unopened
        if self._lock_fd >= 0:
            try:
                if clean:
                    self.write_checkpoints()
                if is_clean:
                    marker = json.dumps({"version": 0}).encode()
                    self._disk.replace_file(self.data_dir / CLEAN_SHUTDOWN, [marker])
            except OSError as error:
                is_clean, problem = False, problem or error
            self._disk.close(self._lock_fd)
            self._lock_fd = -1
        if clean and problem is not None:
            logger.error(
                "shutdown_not_clean", error=str(problem), advice=advice_on(problem, _NOT_CLEAN_ADVICE)
            )
        self.logs.clear()
        return is_clean

    def _close_logs(self, clean: bool) -> BaseException | None:
        """Close all logs, in parallel where they wait for the disk; why one is not clean, or None."""
        logs = list(self.logs.values())
        settled = [log for log in logs if not clean or log.is_settled]
        others = [log for log in logs if clean and not log.is_settled]
        for log in settled:
            log.close(clean)
        with ThreadPoolExecutor(_SYNCED_AT_ONCE, thread_name_prefix="closing") as threads:
            list(threads.map(lambda log: log.close(clean), others))
        return next((log.failure for log in logs if log.failure is not None), None)


def _found(report: RecoveryReport) -> dict[str, Any]:
    """Thousands of partitions may report: only what was found."""
    return {name: value for name, value in asdict(report).items() if value not in ("", [], None, -1)}


__all__ = ["PARTITION_METADATA", "DataFolderError", "FoundPartition", "LogManager", "NewPartitions"]
