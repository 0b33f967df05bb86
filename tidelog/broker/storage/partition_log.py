"""One partition's log: append, flush, delete; `readable_log` has what is read of it.

Owns the segments, the producer state that belongs to them and the offsets `start <= flushed <= end`.

Invariants:
- `append` is one synchronous step: check, assign offsets, write, apply. When it raises, the log, its
  indexes and the producer state are as before. A write that failed is cut off again. When that fails too,
  the log is failed and accepts no more batches;
- producer state is never ahead of the log, and retention never changes it;
- `flushed_end_offset` moves only by `finish_flush` of work that ran without error;
- leader epochs never go back, and no segment is inserted between two others.

When one of these is broken (`invariants`), the partition goes offline. The next start reads the files again.

Everything belongs to the event loop's thread, except `read` with `nowait=False`, the look-ups by time, and
`run` of the pieces of work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from tidelog.broker.storage.batch_inspection import Effort
from tidelog.broker.storage.batch_rules import CLIENT, AppendOrigin, Permit, checked_header, may_not_begin
from tidelog.broker.storage.compaction.compactable import Compactable
from tidelog.broker.storage.disk import FULL, Disk, is_out_of_handles
from tidelog.broker.storage.holes import Hole, holding, raise_if_lost
from tidelog.broker.storage.invariants import broken_ends, check_leader_epoch, check_producers, check_segments
from tidelog.broker.storage.leader_epochs import LeaderEpochs
from tidelog.broker.storage.local_segment import PREFIX_SIZE, LocalSegment
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.log_segments import LogSegments
from tidelog.broker.storage.log_types import AppendResult, CheckpointWork, FlushWork, Read, ReadResult
from tidelog.broker.storage.own_batches import admit_for_producer, follow
from tidelog.broker.storage.producer_state import APPEND, Append, Begin, Duplicate, Verdict
from tidelog.broker.storage.producer_table import ProducerEntry
from tidelog.broker.storage.readable_log import ReadableLog
from tidelog.broker.storage.recompression import Inspected, admitted, header_to_store
from tidelog.broker.storage.recovery import Opening, Recovered, Recovery
from tidelog.broker.storage.retention import latest_of_old_when_written, segments_to_delete
from tidelog.broker.storage.segment import Place
from tidelog.broker.storage.single_record_batches import single_record_headers
from tidelog.broker.storage.upkeep import Upkeep
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import (
    LOG_OVERHEAD,
    BatchHeader,
    EndTransactionMarker,
    pack_prefix,
    read_batch_header,
    with_log_append_time,
    with_max_timestamp,
)
from tidelog.protocol.records.header import TRANSACTIONAL_BIT
from tidelog.protocol.types import NO_OFFSET, NO_TIMESTAMP, Buffer

__all__ = ["AppendOrigin", "AppendResult", "FlushWork", "LogConfig", "PartitionLog", "Read", "ReadResult"]


class PartitionLog(ReadableLog):
    """Made by `open`; closed by `close`."""

    _segments: LogSegments

    def __init__(
        self,
        folder: Path,
        topic: str,
        partition: int,
        config: LogConfig,
        disk: Disk,
        recovered: Recovered,
        steady_ms: Callable[[], int] | None = None,
    ) -> None:
        self.folder = folder
        self.disk = disk
        self.topic = topic
        self.partition = partition
        self.config = config
        self.producers = recovered.producers
        self.transactions = self.producers.transactions
        self.recovery = recovered.report
        moved = recovered.report.start_moved
        self._doubtful = [] if moved is None else [moved]
        """Offsets below the start that were deleted or lost. It is not known which."""
        self.failure = None
        self._steady_ms = steady_ms
        self._segments = LogSegments(
            folder,
            disk,
            recovered.segments,
            recovered.cleaned,
            has_new_names=recovered.has_new_names,
            flushed_end_offset=recovered.flushed_end_offset,
        )
        self._positions = {}
        self._cleaned = recovered.cleaned
        self.end_offset = self._segments.active.end_offset
        self.start_offset = recovered.start_offset
        self.flushed_end_offset = max(self.start_offset, self._segments.flushed_end_offset)
        """Everything before it is durable."""
        self.committed_end: int | None = None
        """Retention deletes nothing from here on, if it is given: other brokers may lack it."""
        self.copied_end_offset = 0
        """Where remote.storage.enable is set, retention deletes nothing from here on: it is nowhere else."""
        self._upkeep = Upkeep(folder, disk, self._segments, self.producers, recovered.report.snapshot_offset)
        self.compaction = Compactable(folder, disk, self._segments, self._upkeep, self._cleaned)
        self._epochs = LeaderEpochs(disk, folder)
        if problem := self._epochs.load(recovered.leader_epochs, self.end_offset):
            self.recovery.file_problems.append(problem)

    @classmethod
    def open(cls, folder: Path, topic: str, partition: int, disk: Disk, opening: Opening) -> PartitionLog:
        """Open or create the log in `folder`; `recovery` reports what was found. Blocking; raises OSError.

        What was read back after an unclean shutdown is durable after the first flush.
        """
        recovery = Recovery(folder, disk, opening)
        try:
            log = cls(folder, topic, partition, opening.config, disk, recovery.run(), opening.steady_ms)
            log._upkeep.start(log.recovery)
            return log
        except BaseException:
            recovery.close()
            raise

    @property
    def recovery_point(self) -> int:
        """Up to here log and indexes are durable; a start after a crash reads only what lies beyond."""
        return self._upkeep.recovery_point

    @property
    def bytes_since_checkpoint(self) -> int:
        """About how many bytes lie beyond the recovery point."""
        return self._upkeep.bytes_since_checkpoint

    @property
    def appended_bytes(self) -> int:
        """How many bytes were written since the start."""
        return self._upkeep.appended_bytes

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments.segments)

    @property
    def holes(self) -> list[Hole]:
        """Offsets that the log lost and that were not deleted since."""
        start_offset = self.start_offset
        return [hole for hole in self.recovery.holes if hole.end_offset > start_offset]

    def reconfigure(self, config: LogConfig) -> None:
        self.config = config
        self.producers.rules = config.producers

    def append(
        self,
        batch: Buffer,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = CLIENT,
        inspected: Inspected | ApiError | Effort | None = None,
        permit: Permit = may_not_begin,
    ) -> AppendResult:
        """Store the one batch in `batch`, or recognise it.

        `inspected` is the result of `inspect_to_store` for a client's batch, or a limited effort for it: then
        this raises TooMuchError too, before anything changed. `permit` is called where a client's batch
        begins a transaction. Raises ApiError with the code that the producer is to get; then nothing was
        stored. A full disk gives KAFKA_STORAGE_ERROR and the log continues; with `failure` set it is offline.
        """
        if self.failure is not None:
            raise self._failed()
        config = self.config
        header = checked_header(batch, config, origin)
        _, _, _, _, _, attributes, last_offset_delta, _, max_timestamp, producer_id, _, _, _ = header
        base_offset, marker, latest, to_store = self.end_offset, None, max_timestamp, batch
        idempotent = producer_id >= 0
        if origin is CLIENT:
            latest, to_store = admitted(batch, header, config, now_ms, inspected)
            if idempotent or attributes & TRANSACTIONAL_BIT:
                verdict = self.producers.check(header)
                if verdict is not APPEND and (stored := self._stored_before(verdict, header, permit)):
                    return stored
            if to_store is not batch:
                batch, header = to_store, header_to_store(to_store, config)
        else:
            base_offset, leader_epoch, marker = self._admit_own(batch, header, origin, leader_epoch)
        log_append_time_ms: int = NO_TIMESTAMP
        if config.message_timestamp_type != "CreateTime" and origin is not AppendOrigin.LEADER:
            log_append_time_ms = now_ms
            batch = with_log_append_time(batch, now_ms)
            header = read_batch_header(batch)
        elif max_timestamp != latest:
            batch = with_max_timestamp(batch, latest)
            header = read_batch_header(batch)
        last_offset, size = base_offset + last_offset_delta, len(batch)
        prefix = pack_prefix(base_offset, size - LOG_OVERHEAD, leader_epoch)
        buffers = (prefix, memoryview(batch)[PREFIX_SIZE:])
        try:
            is_new_epoch = leader_epoch != self._epochs.latest
            if is_new_epoch:
                check_leader_epoch(self._epochs.latest, leader_epoch)
            if self._segments.append(buffers, size, header, base_offset, config, now_ms):
                self._upkeep.snapshot_due = True
            self.end_offset = last_offset + 1
            if is_new_epoch:
                self._epochs.note(leader_epoch, base_offset)
            if marker is not None or attributes & TRANSACTIONAL_BIT:
                self._apply_transactional(header, marker, base_offset, self._producers_ms(now_ms))
            elif idempotent:
                self.producers.apply(header, base_offset, self._steady_ms() if self._steady_ms else now_ms)
        except OSError as error:
            raise self._undo(error) from error
        except Exception as error:
            raise self._broken(error) from error
        self._upkeep.appended_bytes += size
        # Past the constructor, which takes twice as long.
        row = base_offset, last_offset, log_append_time_ms, self.log_start_offset, False
        return tuple.__new__(AppendResult, row)

    def append_run(self, batches: Sequence[Buffer], leader_epoch: int, now_ms: int) -> AppendResult | None:
        """Store those of a client's batches, from the first on, that are plain and follow each other, with
        one write: as many as the result has offsets. None if `append` has to judge the first.

        Raises ApiError as `append`; then nothing was stored.
        """
        if self.failure is not None or leader_epoch != self._epochs.latest:
            return None
        headers = single_record_headers(batches, self.config, now_ms)
        if not headers or headers[0].attributes:
            return None
        base_offset, is_idempotent = self.end_offset, headers[0].producer_id >= 0
        if is_idempotent and self.producers.check(headers[0]) is not APPEND:
            return None
        try:
            size = self._segments.active.append_run(
                batches, headers, base_offset, leader_epoch, self.config, now_ms
            )
            if not size:
                return None
            self.end_offset = end_offset = base_offset + len(headers)
            if is_idempotent:
                self.producers.apply_run(headers, base_offset, self._producers_ms(now_ms))
        except OSError as error:
            raise self._undo(error) from error
        except Exception as error:
            raise self._broken(error) from error
        self._upkeep.appended_bytes += size
        row = base_offset, end_offset - 1, NO_TIMESTAMP, self.log_start_offset, False
        return tuple.__new__(AppendResult, row)

    def _broken(self, error: Exception) -> ApiError:
        """A write that may be wrong, or is not allowed: the log accepts no more batches."""
        self.mark_failed(error)
        return self._failed()

    def _check_ends(self) -> None:
        """Raises InvariantError."""
        _, last_file_end = self._segments.active.tail
        start, flushed_end, end = self.start_offset, self.flushed_end_offset, self.end_offset
        if not start <= flushed_end <= end == last_file_end:
            raise broken_ends(start, flushed_end, end, last_file_end)

    def _admit_own(
        self, batch: Buffer, header: BatchHeader, origin: AppendOrigin, leader_epoch: int
    ) -> tuple[int, int, EndTransactionMarker | None]:
        """Base offset and leader epoch of a batch that no client sent, and what it says as a marker, if it is
        one. Raises ApiError."""
        base_offset = self.end_offset
        if origin is AppendOrigin.LEADER:
            name = f"{self.topic}-{self.partition}"
            base_offset, leader_epoch = follow(header, name, base_offset, self._epochs, self._cleaned)
        marker = None
        if header.producer_id >= 0:
            marker = admit_for_producer(batch, header, origin, self.producers)
        return base_offset, leader_epoch, marker

    def _apply_transactional(
        self, header: BatchHeader, marker: EndTransactionMarker | None, base_offset: int, ms: int
    ) -> None:
        if marker is None:
            self.producers.apply(header, base_offset, ms)
            self.transactions.locate(base_offset, self._upkeep.appended_bytes)
        elif (aborted := self.producers.apply_marker(header, marker, base_offset, ms)) is not None:
            self._segments.active.transaction_index.append(aborted)

    def _stored_before(self, verdict: Verdict, sent: BatchHeader, permit: Permit) -> AppendResult | None:
        """Where the log holds a batch that a producer sent again; None if it begins a transaction, and may.

        Raises ApiError for any other batch.
        """
        if isinstance(verdict, Append | Begin):
            permit(sent)
            return None
        raise_if_lost(verdict, self.holes)
        try:
            raise_if_lost(verdict, self._doubtful)
        except ApiError as error:
            if self.remote is not None and self.remote.start_offset is None:
                what = "remote storage has not answered yet, and may have what is missing here"
                raise ApiError(error.code, what) from TimeoutError(what)
            raise
        if isinstance(verdict, Duplicate):
            self._check_is_there(verdict, sent)
            return AppendResult(*verdict, self.log_start_offset, True)
        if verdict.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return AppendResult(NO_OFFSET, self.end_offset - 1, NO_TIMESTAMP, self.log_start_offset, True)
        raise ApiError(verdict.code, verdict.message)

    def _check_is_there(self, stored: Duplicate, sent: BatchHeader) -> None:
        """A batch is acknowledged again only while the log holds it, or after it was deleted on request.

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        if stored.base_offset < self.start_offset:
            return
        try:
            self._segments.check_batch_at(stored.base_offset, sent)
        except OSError as error:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.topic}-{self.partition}: it was stored at offsets {stored.base_offset} to"
                f" {stored.last_offset}, where it cannot be read any more: {error}",
            ) from error

    def _producers_ms(self, now_ms: int) -> int:
        return now_ms if self._steady_ms is None else self._steady_ms()

    def idle_ms(self, entry: ProducerEntry, now_ms: int) -> int:
        """How long ago a producer wrote, by the clock by which producers expire."""
        return self.producers.idle_ms(entry, self._producers_ms(now_ms))

    def set_next_sequence(self, producer_id: int, epoch: int, next_sequence: int, now_ms: int) -> None:
        """For tests of clients: see `ProducerStates.set_next_sequence`. The log is not touched."""
        self.producers.set_next_sequence(producer_id, epoch, next_sequence, self._producers_ms(now_ms))

    def _undo(self, error: OSError) -> ApiError:
        """A write failed: cut off what it left. After a lack of disk space or handles the log continues."""
        try:
            self._segments.active.cut_back()
        except OSError as second:
            second.__context__ = error
            self.mark_failed(second)
        if error.errno not in FULL and not is_out_of_handles(error):
            self.mark_failed(error)
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.partition} could not be written: {error}"
        )

    def mark_failed(self, error: BaseException) -> None:
        """Accept and serve nothing more: the disk is not reliable."""
        if self.failure is None:
            self.failure = error

    def cache_epochs(self, entries: list[tuple[int, int]]) -> None:
        """The leader's next batch lies behind a gap, in which these epochs began: (epoch, first offset)."""
        self._epochs.foretell(entries)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the last one is empty. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        if self.failure is not None:
            raise self._failed()
        if self._segments.active.size_bytes:
            try:
                self._segments.roll(now_ms)
            except OSError as error:
                raise self._undo(error) from error
            self._upkeep.snapshot_due = True

    def begin_flush(self) -> FlushWork | None:
        """All that is not durable yet, or None. Only one flush at a time: finish it before the next one.

        Raises InvariantError.
        """
        if self.failure is not None or self.end_offset == self.flushed_end_offset:
            return None
        self._check_ends()
        before: list[Callable[[], None]] = []
        if self._epochs.is_dirty:
            before.append(partial(self._epochs.save_if_room, list(self._epochs.entries)))
            self._epochs.is_dirty, self._segments.has_new_names = False, True
        if self._cleaned.is_dirty:
            before.append(partial(self._cleaned.save, self._cleaned.offset))
            self._cleaned.is_dirty = False
        return self._segments.begin_flush(before)

    def finish_flush(self, work: FlushWork) -> None:
        """`work.run` returned: what it covered is durable.

        If it raised, call `mark_failed` instead, or `flush_undone` where no file could be opened. Raises
        InvariantError.
        """
        self.flushed_end_offset = max(self.flushed_end_offset, work.end_offset)
        self._check_ends()
        segments = self._segments
        if work.end_offset > segments.flushed_end_offset:
            segments.flushed_end_offset = work.end_offset
            base_offset, end_offset, size = work.mark
            # Of a segment that was sealed meanwhile, the next flush reaches the end.
            if segments.active.base_offset == base_offset:
                segments.active.flushed_tail = (size, end_offset)

    def flush_undone(self, work: FlushWork) -> None:
        """`work.run` found no file handle: nothing has failed, and the next flush does all of it."""
        self._segments.flush_undone(work)
        self._epochs.is_dirty |= bool(work.before)
        self._cleaned.is_dirty |= bool(work.before)

    def begin_checkpoint(self) -> CheckpointWork | None:
        """Indexes, and a snapshot when one is due; None when there is nothing to do or one is in progress.

        `run` it in a thread, then `finish_checkpoint`, whether it raised or not. Raises OSError if an
        index cannot be opened, and InvariantError; then nothing has begun.
        """
        if self.failure is not None:
            return None
        self._check_ends()
        check_producers(next(self.producers.latest(), None), self.transactions, self.end_offset)
        check_segments(self._segments.segments, self.start_offset, self.recovery.holes)
        return self._upkeep.begin(self.end_offset)

    def finish_checkpoint(self, work: CheckpointWork, error: OSError | None = None) -> None:
        """Take over what `work` achieved. An error is not fatal: recovery will have more to read."""
        self._upkeep.finish(work, error)
        if self.failure is None:
            with suppress(OSError):
                self._upkeep.drop_before(self.start_offset, is_full=error is not None and error.errno in FULL)

    def take_snapshot(self) -> None:
        """Write the producer state as of the end of the log, now. Raises OSError."""
        self._upkeep.take_snapshot(self.end_offset)

    def delete_records_before(self, offset: int) -> int:
        """Move the start of the log to `offset` and return the new start. Raises ApiError."""
        if self.failure is not None:
            raise self._failed()
        if not 0 <= offset <= self.flushed_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic}-{self.partition}: {offset} is not within 0 and {self.flushed_end_offset}",
            )
        self.start_offset = max(self.start_offset, offset)
        self.none_is_lost_before(offset)
        # No reader sees the records any more; files that cannot be removed now wait for the next retention.
        with suppress(OSError):
            self._upkeep.drop_before(self.start_offset)
        return self.start_offset

    def none_is_lost_before(self, offset: int) -> None:
        """What is missing here before `offset` was deleted, or is in remote storage."""
        self._doubtful = [hole for hole in self._doubtful if hole.end_offset > offset]

    def look_up_ages(self, now_ms: int) -> int | None:
        """Read what `apply_retention` needs of old segments, which may take long; in any thread. Returns what
        `latest_of_old_when_written` does."""
        if self._keeps_until_copied:
            return None  # What leaves the disk is not deleted yet.
        segments, deletable_end = self._segments.segments, self._deletable_end
        return latest_of_old_when_written(segments, self.config, deletable_end, now_ms)

    @property
    def _deletable_end(self) -> int:
        committed, end = self.committed_end, self.flushed_end_offset
        if self._keeps_until_copied:
            end = min(end, self.copied_end_offset)
        return end if committed is None else min(committed, end)

    @property
    def _keeps_until_copied(self) -> bool:
        """Whether local segments stay until their copy counts. If nothing more is copied, they stay while
        older records are in remote storage."""
        if not self.config.remote_storage_enable:
            return False
        remote_start = None if self.remote is None else self.remote.start_offset
        has_older = remote_start is None or remote_start < self.end_offset
        return has_older or not self.config.remote_log_copy_disable

    def copyable(self, from_offset: int, end_offset: int) -> LocalSegment | None:
        """The first closed segment that reaches beyond `from_offset`, if it ends by `end_offset`."""
        for segment in self._segments.segments[:-1]:
            if segment.end_offset > from_offset:
                return segment if segment.end_offset <= end_offset else None
        return None

    def batch_at(self, offset: int) -> Place | None:
        """Where the batch that holds `offset` is; None if it is not here, or damaged. In any thread."""
        with suppress(OSError):
            segments = self._segments.segments
            if segments[0].base_offset <= offset < self.end_offset:
                return holding(segments, offset).find(offset)
        return None

    def aborted_across(self, segment: LocalSegment) -> bytes:
        """Entries of the aborted transactions with records in a closed segment or before it, whose markers
        come after it; each of those has ended. In any thread; raises OSError."""
        found: list[bytes] = []
        for later in self._segments.segments:
            index = later.transaction_index
            if later.base_offset < segment.end_offset:
                continue
            for entry in map(index.at, range(index.count)):
                _, _, first_offset, _, last_stable = entry
                if first_offset < segment.end_offset:
                    found.append(index.entry.pack(*entry))
                if last_stable >= segment.end_offset:
                    return b"".join(found)
        return b"".join(found)

    def closed_beyond(self, offset: int) -> tuple[int, int]:
        """How many closed segments reach beyond `offset`, and their size."""
        closed = [each for each in self._segments.segments[:-1] if each.end_offset > offset]
        return len(closed), sum(each.size_bytes for each in closed)

    def bytes_beyond(self, offset: int) -> int:
        """Size of the segments that reach beyond `offset`."""
        segments = self._segments.segments
        return sum(segment.size_bytes for segment in segments if segment.end_offset > offset)

    @property
    def epochs(self) -> LeaderEpochs:
        return self._epochs

    def apply_retention(self, now_ms: int) -> int:
        """Delete old segments by size and age; returns how many records were deleted.

        Producers stay. Files are removed once a snapshot covers their producers. Raises ApiError, OSError.
        """
        if self.failure is not None:
            return 0
        segments = self._segments.segments
        count = segments_to_delete(segments, self.config.of_local_segments, self._deletable_end, now_ms)
        if count == len(segments):
            try:
                self.roll(now_ms)
            except ApiError:
                if self.failure is not None or count == 1:
                    raise
                count -= 1  # No space for a new one: delete the older ones first.
        before = self.start_offset
        if count:
            self.start_offset = max(before, segments[count - 1].end_offset)
        self._upkeep.drop_before(self.start_offset)
        return self.start_offset - before

    def take_deleted_files(self) -> list[Path]:
        """Files that are no longer in the log. Unlink them in any thread: that may take long."""
        return self._upkeep.take_deleted_files()

    def drop_segments(self) -> bool:
        """Remove some files that retention left; True when another step can remove more. Raises OSError."""
        return self.failure is None and self._upkeep.drop_before(self.start_offset)

    @property
    def is_settled(self) -> bool:
        """Whether a clean close has nothing to write, because the files already hold everything."""
        if not (self.end_offset or len(self.producers) or self.recovery.is_damaged):
            return True  # It never held anything.
        return not self._cleaned.is_dirty and self._upkeep.is_settled(self._epochs, self.end_offset)

    def make_durable(self) -> None:
        """Flush, write indexes and a snapshot. Raises OSError; then only `close` may follow."""
        if self.failure is not None:
            raise OSError(f"{self.topic}-{self.partition} is offline: {self.failure}")
        if self._cleaned.is_dirty:
            self._cleaned.is_dirty = False
            self._cleaned.save(self._cleaned.offset)
        if not self.is_settled:
            self._upkeep.make_durable(self._epochs, self.recovery_point, self.end_offset)

    def close(self, clean: bool) -> bool:
        """Flush, write indexes and a snapshot, close the files. Blocking; no work may be under way.

        Returns whether the next start may trust the files: never after a failure.
        """
        try:
            if not clean or self.failure is not None:
                return False
            self.make_durable()
            return True
        except OSError as error:
            self.mark_failed(error)
            return False
        finally:
            self._segments.close()
