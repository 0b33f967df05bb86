"""A segment of a partition's log in files: `%020d.log` with its indexes.

Owns the positions of batches in the file.

Invariants: batches are whole and contiguous from position 0 to `size_bytes`, where the file ends, or after
which it holds only zeros (`reserve`); the batches' offsets are contiguous too, except for the gaps that
`CleanedOffset` allows; only the last segment of a log grows. Batches that this
process has neither written nor read are checked before a reader gets them, so bytes that a disk changed are
not served. The leader epoch alone cannot be checked: the CRC does not cover it, and no other place has it.

Reads are safe in any thread, the rest belongs to the loop.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from tidelog.broker.storage.cleaned_offset import CleanedOffset
from tidelog.broker.storage.disk import LEAST_MAPPED_BYTES, Disk, OpenFile
from tidelog.broker.storage.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from tidelog.broker.storage.integrity import RESERVED_BYTES, CorruptSegmentError, is_reserved
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.segment_reader import SegmentReader
from tidelog.broker.storage.transaction_index import TRANSACTION_INDEX_SUFFIX, TransactionIndex
from tidelog.protocol.records import (
    LOG_OVERHEAD,
    BatchHeader,
    largest_timestamp,
    pack_prefix,
    read_batch_header,
)
from tidelog.protocol.types import NO_TIMESTAMP, Buffer

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
DELETED_SUFFIX = ".deleted"
PREFIX_SIZE = 16
"""What a log writes itself of a batch: the first bytes, up to the leader epoch."""
_MAX_RELATIVE_OFFSET = 2**31 - 1
_INDEX_NEXT = 1 << 31
_UNKNOWN_END = 1 << 62


class LocalSegment(SegmentReader):
    """Open files of one segment. Implements `Segment`."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        base_offset: int,
        created_ms: int,
        cleaned: CleanedOffset,
        *,
        is_new: bool,
        suffix: str = "",
    ) -> None:
        """`suffix` follows the names of files that are not part of the log yet: see `rename_to`."""
        self.base_offset = base_offset
        self.tail = (0, base_offset)
        self.flushed_tail = (0, base_offset)
        self.unverified = (0, 0)
        self.created_ms = created_ms
        self.first_timestamp: int | None = None
        """Largest timestamp of the first batch, for rolling by age; None while unknown."""
        self.max_timestamp: int = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        """Last offset of the first batch that holds the largest timestamp."""
        self._has_noted_untimed = False
        self._has_untimed: bool | None = None
        """Whether a batch has no timestamps; None until that was looked up."""
        self.bytes_since_index = 0
        self._reserved_end = 0
        self.has_shrunk = False
        """Its file was made shorter, which may not be durable."""
        self.path = folder / f"{base_offset:020d}{LOG_SUFFIX}"
        self._disk = disk
        self._cleaned = cleaned
        self._suffix = suffix
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if is_new else 0)
        path, index_path, time_index_path = self._paths(suffix)
        self.log = OpenFile(disk, path, disk.open(path, flags))
        self.offset_index = SparseIndex(disk, index_path, OFFSET_ENTRY)
        self.time_index = SparseIndex(disk, time_index_path, TIME_ENTRY)
        self.transaction_index = TransactionIndex(disk, self.path)

    def _paths(self, suffix: str) -> list[Path]:
        """Of the log and the two indexes."""
        paths = [self.path.with_suffix(each) for each in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        return [path.with_name(path.name + suffix) for path in paths]

    @property
    def paths(self) -> list[Path]:
        """Of the log and the two indexes, as they are named now."""
        return self._paths(self._suffix)

    def rename_to(self, suffix: str) -> None:
        """Give its files another suffix, the log's own name last. Raises OSError; some have it then."""
        for old, new in reversed(list(zip(self.paths, self._paths(suffix), strict=True))):
            self._disk.rename(old, new)
        self._suffix = suffix
        _, self.offset_index.path, self.time_index.path = self._paths(suffix)

    @property
    def gaps_end_offset(self) -> int:
        return self._cleaned.offset

    def takes(
        self, size: int, timestamp: int, last_offset: int, config: LogConfig, now_ms: int, batches: int = 1
    ) -> bool:
        """Whether a batch belongs in this segment, not in a new one. The reasons for a new one are Kafka's:
        size, age, a full index, an offset too far from the base.

        Of several batches: the size of all, the largest timestamp and the last offset.
        """
        filled, index_bytes = self.tail[0], config.segment_index_bytes
        first_timestamp = self.first_timestamp
        # As `_age_ms`, mostly without its call.
        if first_timestamp is None or first_timestamp < 0 or timestamp < 0:
            age_ms = self._age_ms(now_ms, timestamp) if filled else 0
        else:
            age_ms = timestamp - first_timestamp
        return not filled or (
            filled + size <= config.segment_bytes
            and age_ms <= config.segment_ms - (config.segment_jitter_ms and self._jitter_ms(config))
            # One entry may follow for each batch, and one more when the segment is sealed.
            and (self.offset_index.count + batches + 1) * OFFSET_ENTRY.size <= index_bytes
            and (self.time_index.count + batches + 1) * TIME_ENTRY.size <= index_bytes
            and last_offset - self.base_offset <= _MAX_RELATIVE_OFFSET
        )

    def _jitter_ms(self, config: LogConfig) -> int:
        """This segment's part of segment.jitter.ms: as good as random, and the same after a restart."""
        return crc32(bytes(self.path)) % min(config.segment_jitter_ms, config.segment_ms)

    def reserve(self, size: int) -> None:
        """Make the file longer than the next `size` bytes, by zeros that take no space on the disk.

        On most file systems with a journal, a sync of small appends then stores no new length: a third of
        its time. Source: Kafka's FileRecords.open with `preallocate`, which reserves a whole segment.
        """
        end = self.tail[0] + size
        if end > self._reserved_end:
            reserved_end = (end // RESERVED_BYTES + 1) * RESERVED_BYTES
            with suppress(OSError):  # Whether there is space for the batch, its write shows.
                self._disk.truncate(self.log.fd, reserved_end)
                self._reserved_end = reserved_end

    @property
    def is_reserved(self) -> bool:
        """Whether zeros follow the last batch."""
        return self._reserved_end > self.size_bytes

    def release(self) -> None:
        """End the file after its last batch; the time of the last write stays. Raises OSError."""
        if self.is_reserved:
            written_ms = self.written_ms
            self.cut_back()
            self._disk.set_modified_ms(self.path, written_ms)

    def append(
        self, buffers: Sequence[Buffer], size: int, header: BatchHeader, last_offset: int, index_interval: int
    ) -> None:
        """Write one batch at the end. Raises OSError; then bytes may be written but nothing else changed."""
        position = self.tail[0]
        disk, fd = self._disk, self.log.fd
        written = disk.writev(fd, buffers, position)
        if written != size:
            disk.write_all(fd, [memoryview(b"".join(buffers))[written:]], position + written)
        _, _, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, _ = header
        latest = max_timestamp
        if not 0 <= base_timestamp <= max_timestamp:
            latest = largest_timestamp(attributes, base_timestamp, max_timestamp)
        self.note(position, size, last_offset, latest, index_interval)

    def append_run(
        self,
        batches: Sequence[Buffer],
        headers: Sequence[BatchHeader],
        base_offset: int,
        leader_epoch: int,
        config: LogConfig,
        now_ms: int,
    ) -> int:
        """Write as many of `batches` as there are `headers`, each of one record that has a timestamp, at the
        end; how many bytes, 0 where not all of them belong in this segment. Raises OSError as `append`."""
        position = self.tail[0]
        buffers: list[Buffer] = []
        timestamps = [header.max_timestamp for header in headers]
        latest, end_offset = max(timestamps), base_offset + len(headers)
        total = 0
        for offset, batch in zip(range(base_offset, end_offset), batches, strict=False):
            size = len(batch)
            buffers += pack_prefix(offset, size - LOG_OVERHEAD, leader_epoch), batch[PREFIX_SIZE:]
            total += size
        if not position or not self.takes(total, latest, end_offset - 1, config, now_ms, len(headers)):
            return 0
        if config.preallocate:
            self.reserve(total)
        disk, fd = self._disk, self.log.fd
        written = disk.writev(fd, buffers, position)
        if written != total:
            disk.write_all(fd, [memoryview(b"".join(buffers))[written:]], position + written)
        if self.bytes_since_index + total > config.index_interval_bytes:
            for offset, header in enumerate(headers, base_offset):
                size = header.batch_length + LOG_OVERHEAD
                self.note(position, size, offset, header.max_timestamp, config.index_interval_bytes)
                position += size
            return total
        # As `note` for each, where none is indexed.
        if latest > self.max_timestamp:
            self.max_timestamp = latest
            self.max_timestamp_offset = base_offset + timestamps.index(latest)
        self.bytes_since_index += total
        self.tail = (position + total, end_offset)
        return total

    def note(
        self, position: int, size: int, last_offset: int, max_timestamp: int, index_interval: int
    ) -> None:
        """Account for a batch that the file holds at its end. Indexes as Kafka does it."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
            self._has_noted_untimed = self._has_untimed = False
        if max_timestamp < 0:
            self._has_noted_untimed = True
        if self.bytes_since_index > index_interval:
            self.offset_index.append(last_offset - self.base_offset, position)
            self.index_time()
            self.bytes_since_index = 0
        self.bytes_since_index += size
        self.tail = (position + size, last_offset + 1)

    def index_time(self) -> None:
        """Enter the largest timestamp so far, if it grew since the last entry."""
        last = self.time_index.last()
        if self.max_timestamp > (last[0] if last else NO_TIMESTAMP):
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    @property
    def indexes(self) -> tuple[TransactionIndex, SparseIndex, SparseIndex]:
        """In the order in which they become durable: an entry of the last is trusted to have those of the
        others beside it."""
        return self.transaction_index, self.time_index, self.offset_index

    @property
    def has_whole_indexes(self) -> bool:
        """Whether its index files hold all entries, the last one with the largest timestamp."""
        last = self.time_index.last()
        is_timed = self.max_timestamp <= (last[0] if last else NO_TIMESTAMP)
        return is_timed and all(index.is_written for index in self.indexes)

    def _age_ms(self, now_ms: int, timestamp: int) -> int:
        """How long it has been filling, as Kafka counts: by its batches' timestamps if they have any."""
        if self.first_timestamp is None:
            self.first_timestamp = NO_TIMESTAMP
            with suppress(CorruptSegmentError):  # Damage there keeps no later batch from being written.
                self.first_timestamp = next(self.walk(0)).max_timestamp
        first_timestamp = self.first_timestamp
        if first_timestamp >= 0 and timestamp >= 0:
            return timestamp - first_timestamp
        return now_ms - self.created_ms

    def seal(self) -> None:
        """The segment stops growing: its indexes are written out and leave memory. Raises OSError; then it
        continues as before."""
        self.release()
        self.index_time()
        for index in self.indexes:
            index.write_out_whole()
        for index in self.indexes:
            index.leave_memory()

    def is_older_than(self, moment_ms: int) -> bool:
        """Whether all timestamps lie before `moment_ms`, and so does the last write where a batch has none.

        May read all headers, the first time. Raises OSError.
        """
        if self.max_timestamp >= moment_ms:
            return False
        return self.written_ms < moment_ms or not self._holds_untimed()

    @property
    def latest_ms(self) -> int:
        """The age of the segment: it is older than every moment after this one. Reads as `is_older_than`."""
        return max(self.max_timestamp, self.written_ms) if self._holds_untimed() else self.max_timestamp

    @property
    def written_ms(self) -> int:
        """When the last batch was written. Raises OSError."""
        return self._disk.modified_ms(self.path)

    def _holds_untimed(self) -> bool:
        """Whether a batch has no timestamps, or may have none because it is damaged."""
        if self._has_untimed is None and not self._has_noted_untimed:
            self._has_untimed = True
            with suppress(CorruptSegmentError):
                self._has_untimed = any(place.max_timestamp < 0 for place in self.walk(0))
        return self._has_noted_untimed or bool(self._has_untimed)

    def cut_back(self) -> None:
        """Cut off what comes after the last batch: zeros, or what a failed write left. Raises OSError."""
        self._disk.truncate(self.log.fd, self.size_bytes)
        self._reserved_end, self.has_shrunk = 0, True

    def is_reserved_from(self, position: int) -> bool:
        """Whether batches end there, in a file that a crash left longer. Raises OSError."""
        return is_reserved(position, self._disk.size(self.log.fd), self.read_bytes)

    def read_bytes(self, position: int, size: int, *, nowait: bool = False) -> memoryview:
        return self.log.read(size, position, nowait=nowait)

    def map_bytes(self, position: int, size: int) -> memoryview | None:
        return self.log.mapped(size, position) if size >= LEAST_MAPPED_BYTES else None

    def check_batch_at(self, offset: int, sent: BatchHeader) -> None:
        """Raise CorruptSegmentError unless the batch at `offset` exists, is whole, and matches `sent`.

        If the log was cleaned, the batch or some of its records may be missing. Raises OSError.
        """
        first, end = self.unverified
        if first >= end:
            return
        is_cleaned = offset < self._cleaned.offset
        place = self.find(offset)
        if place is None or place.base_offset != offset:
            if is_cleaned:
                return
            raise CorruptSegmentError(f"{self.path}: no batch begins at offset {offset}")
        if first <= place.position < end:
            data = self.read_bytes(place.position, place.size_bytes)
            self._verified(data, place.position, offset)
            stored = read_batch_header(data)
            if is_cleaned and stored.producer_id < 0 and not stored.record_count:
                return  # Only the end of a file is kept.
            # Producer id, epoch, sequence, count: the file may be another log's.
            if stored[9:12] != sent[9:12] or (stored[12] != sent[12] and not is_cleaned):
                raise CorruptSegmentError(
                    f"{self.path}: offset {offset} holds sequence {stored.base_sequence} of producer"
                    f" {stored.producer_id}"
                )

    def load_sealed_indexes(self, index_interval: int) -> bool:
        """Load the index files of a closed segment, and from them its end and its largest timestamp.

        False when they cannot be right. Raises CorruptSegmentError.
        """
        if not (self.offset_index.load_sealed() and self.time_index.load_sealed()):
            return False
        last = self.offset_index.last()
        if last is not None and (last[1] >= self.size_bytes or self.base_offset + last[0] >= self.end_offset):
            return False
        if not (self.load_end(index_interval) and self.load_max_timestamp()):
            return False
        return self.time_index.count > 0 or self.max_timestamp < 0

    def load_max_timestamp(self) -> bool:
        """Find the largest timestamp by the last entry of the time index and the batches that follow it.

        False when that entry is wrong. Raises CorruptSegmentError.
        """
        entry = self.time_index.last()
        after = None
        if entry is not None:
            self.max_timestamp, self.max_timestamp_offset = entry[0], self.base_offset + entry[1]
            if not self.time_entry_holds(entry):
                return False
            after = self.offset_index.floor(entry[1])
        for place in self.walk_from_entry(after):
            if place.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = place.max_timestamp, place.last_offset
        return True

    def load_end(self, index_interval: int) -> bool:
        """Find the end of the last batch, reading from the last index entry, never beyond the tail's.

        False if headers are wrong, or where a batch must have an entry and there is none.
        """
        end, last = (0, self.base_offset), self.offset_index.last()
        try:
            for place in self.walk_from_entry(last):
                if last is None and place.position > index_interval:
                    return False
                end = (place.end, place.last_offset + 1)
        except CorruptSegmentError:
            return False
        self.tail = end
        return True

    def rebuild_indexes(self, index_interval: int) -> None:
        """Write both indexes again from the headers, and end after the last good batch.

        Raises CorruptSegmentError if the file does not end there.
        """
        self.offset_index.truncate(0)
        self.time_index.truncate(0)
        self.max_timestamp, self.bytes_since_index = NO_TIMESTAMP, 0
        end = (0, self.base_offset)
        try:
            for place in self.walk(0):
                self.note(
                    place.position, place.size_bytes, place.last_offset, place.max_timestamp, index_interval
                )
                end = self.tail
        finally:
            self.tail = end

    def resume_at(self, entry: tuple[int, int]) -> bool:
        """Take `entry` of the offset index as the last one; False when the batch there contradicts it.

        Forgets the entries after it. What follows the batch's start has to be read and `note`d again.
        """
        relative_offset, position = entry
        self.tail = (self._disk.size(self.log.fd), _UNKNOWN_END)
        try:
            place = next(self.walk(position))
        except (CorruptSegmentError, StopIteration):
            return False
        if place.last_offset != self.base_offset + relative_offset:
            return False
        self.offset_index.keep_below(relative_offset, 0)
        self.time_index.keep_below(relative_offset, 1)
        self.tail = (position, place.base_offset)
        if not self.load_max_timestamp():
            return False
        # The entry just forgotten comes back when its batch is noted again.
        self.bytes_since_index = _INDEX_NEXT
        return True

    def close(self) -> None:
        with suppress(OSError):  # The next start does it.
            self.release()
        self.log.close()
        for index in self.indexes:
            index.close()

    def _deleted_names(self) -> list[tuple[Path, Path]]:
        """Of each file its name, and its name with Kafka's suffix of deleted files."""
        paths = [self.path.with_suffix(suffix) for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES)]
        return [(path, path.with_name(path.name + DELETED_SUFFIX)) for path in paths]

    def rename_to_deleted(self) -> list[Path]:
        """Take the files out of the log; returns what to unlink. Raises OSError; then call it again."""
        names = self._deleted_names()
        for path, deleted in names:
            if self._disk.exists(path):
                self._disk.rename(path, deleted)
        return [deleted for _, deleted in names if self._disk.exists(deleted)]

    def rename_from_deleted(self) -> None:
        """Undo `rename_to_deleted`, also if that failed. Raises OSError."""
        for path, deleted in self._deleted_names():
            if self._disk.exists(deleted) and not self._disk.exists(path):
                self._disk.rename(deleted, path)
