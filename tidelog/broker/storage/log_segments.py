"""The segments of one log, in order, and what of them is durable.

Owns the chain of segments, the rolling from one to the next, and which files a flush and a checkpoint have
to sync.

Invariants: segments ascend and join but for holes; the last one (`active`) alone grows; the tuple of segments
is replaced, never changed, so that a reader in a thread keeps what it began with; a file is closed only when
its last user is done.

Only `segments` may be used in another thread than the loop's.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog.broker.storage.checkpoints import sync_topic_id
from tidelog.broker.storage.cleaned_offset import CleanedOffset
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.holes import holding, number_of
from tidelog.broker.storage.local_segment import LocalSegment
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.log_types import CheckpointWork, FlushWork
from tidelog.protocol.records import BatchHeader
from tidelog.protocol.types import Buffer


class LogSegments:
    """All segments of a partition, at least one."""

    def __init__(
        self,
        folder: Path,
        disk: Disk,
        segments: Sequence[LocalSegment],
        cleaned: CleanedOffset,
        *,
        has_new_names: bool,
        flushed_end_offset: int,
    ) -> None:
        self.segments = tuple(segments)
        self.active = self.segments[-1]
        self.flushed_end_offset = flushed_end_offset
        self._first_offset = self.segments[0].base_offset
        self._folder = folder
        self._disk = disk
        self._cleaned = cleaned
        if flushed_end_offset == self.active.end_offset:
            self.active.flushed_tail = self.active.tail
        self._unsynced_indexes = [s for s in self.segments[:-1] if s.end_offset > flushed_end_offset]
        self._names, self._names_durable = int(has_new_names), 0
        """Counts the changes of names in the folder, and those of them that are durable."""
        """The folder's names, or its topic id, may not be durable yet."""
        self._is_swapping = False

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def append(
        self,
        buffers: Sequence[Buffer],
        size: int,
        header: BatchHeader,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
    ) -> bool:
        """Write a batch, in a new segment when it is time for one; returns whether it was. Raises OSError."""
        segment = self.active
        _, _, _, _, _, _, last_offset_delta, _, max_timestamp, _, _, _, _ = header
        last_offset = base_offset + last_offset_delta
        rolled = not segment.takes(size, max_timestamp, last_offset, config, now_ms)
        if rolled:
            segment = self.roll(now_ms)
        if config.preallocate:
            segment.reserve(size)
        segment.append(buffers, size, header, last_offset, config.index_interval_bytes)
        return rolled

    def roll(self, now_ms: int) -> LocalSegment:
        """Begin a new segment after the last one. Raises OSError; then nothing changed."""
        old = self.active
        if len(self.segments) == 1 and self.flushed_end_offset == self._first_offset:
            # Before the first flush a power cut may keep the name of the second segment alone. Recovery could
            # not distinguish that from a deletion, and the log would begin later.
            self._disk.fsync_directory(self._folder)
        segment = LocalSegment(self._disk, self._folder, old.end_offset, now_ms, self._cleaned, is_new=True)
        try:
            old.seal()
        except OSError:
            segment.close()
            self._disk.unlink(segment.path)
            raise
        self.has_new_names = True
        self._unsynced_indexes.append(old)
        self.segments = (*self.segments, segment)
        self.active = segment
        return segment

    @property
    def has_new_names(self) -> bool:
        """Whether a name in the folder may not be durable."""
        return self._names_durable < self._names

    @has_new_names.setter
    def has_new_names(self, has_new_names: bool) -> None:
        self._names += 1
        if not has_new_names:
            self._names_durable = self._names

    def aborted_known(self) -> dict[int, tuple[int, int]]:
        """Base offset of a segment -> count and CRC-32C of its aborted transactions, without those that have
        none."""
        return {
            segment.base_offset: (segment.transaction_index.count, segment.transaction_index.crc)
            for segment in self.segments
            if segment.transaction_index.count
        }

    def check_batch_at(self, offset: int, sent: BatchHeader) -> None:
        """Raise CorruptSegmentError or LogHoleError unless `sent` begins at `offset`, whole; OSError."""
        holding(self.segments, offset).check_batch_at(offset, sent)

    def begin_flush(self, before: Sequence[Callable[[], None]]) -> FlushWork:
        """Everything written so far; `before` is done first, in the same thread."""
        active = self.active
        segments: Sequence[LocalSegment] = (active,)
        if self.flushed_end_offset < active.base_offset:
            segments = self.segments[number_of(self.segments, self.flushed_end_offset) :]
        folder = self._folder if self.has_new_names else None
        self.has_new_names = False
        files = [segment.log for segment in segments if segment.log.acquire()]
        size, end_offset = active.tail
        mark = (active.base_offset, end_offset, size)
        lone_fd = files[0].fd if len(files) == 1 and folder is None and not before else None
        return FlushWork(end_offset, mark, self._disk, files, folder, before, lone_fd)

    def flush_undone(self, work: FlushWork) -> None:
        """Nothing of `work` counts as done: the next flush has to do it."""
        self.has_new_names |= work.folder is not None

    def begin_checkpoint(self) -> CheckpointWork:
        """The indexes of every segment that changed since the last checkpoint. Raises OSError; then nothing
        has begun."""
        work = CheckpointWork(self.flushed_end_offset, self._disk, self._folder)
        try:
            for segment in (*self._unsynced_indexes, self.active):
                for index in segment.indexes:
                    file = index.acquire() if index.count or index is not segment.transaction_index else None
                    if file is not None:
                        work.indexes.append((index, file, *index.pending()))
                if segment.has_shrunk and segment.log.acquire():
                    work.logs.append(segment.log)
        except OSError:
            work.release()
            raise
        work.sealed, self._unsynced_indexes = self._unsynced_indexes, []
        work.names = self._names if self.has_new_names else 0
        return work

    def checkpoint_undone(self, work: CheckpointWork) -> None:
        """The next checkpoint has to do all of `work`."""
        kept = [segment for segment in work.sealed if segment in self.segments]
        self._unsynced_indexes = [*kept, *self._unsynced_indexes]

    def finish_checkpoint(self, work: CheckpointWork) -> None:
        for index, _, data, position in work.indexes:
            index.note_written(position + len(data))
            index.rest()
        self._names_durable = max(self._names_durable, work.names)

    def drop(self, count: int, deleted: list[Path]) -> None:
        """Take the first `count` segments out, by renaming; adds the files to unlink to `deleted`.

        Raises OSError; then it may be called again for the rest.
        """
        if self._is_swapping:
            return  # Later: a thread renames files.
        for segment in self.segments[:count]:
            deleted += segment.rename_to_deleted()
            self.segments = self.segments[1:]
            self._unsynced_indexes = [each for each in self._unsynced_indexes if each is not segment]
            segment.close()

    def begin_swap(self, old: Sequence[LocalSegment]) -> bool:
        """Keep these consecutive segments until `finish_swap`; False if they are not in the log any more."""
        first = next((at for at, segment in enumerate(self.segments) if segment is old[0]), 0)
        self._is_swapping = self.segments[first : first + len(old)] == tuple(old)
        return self._is_swapping

    def finish_swap(self, old: Sequence[LocalSegment], new: LocalSegment | None) -> None:
        """`new` has taken the place of the old ones on the disk; None: it has not."""
        self._is_swapping = False
        if new is None:
            return
        first = self.segments.index(old[0])
        self.segments = (*self.segments[:first], new, *self.segments[first + len(old) :])
        self._unsynced_indexes = [each for each in self._unsynced_indexes if each not in old]
        for segment in old:
            segment.close()

    def sync_logs(self, from_offset: int) -> None:
        """Make durable whose the logs are, the logs and their names, from `from_offset` on; OSError."""
        sync_topic_id(self._disk, self._folder)
        for segment in self._reaching(from_offset):
            self._disk.fdatasync(segment.log.fd)
        self._disk.fsync_directory(self._folder)
        self.has_new_names = False

    def sync_indexes(self, from_offset: int) -> None:
        """Make indexes durable where they reach beyond `from_offset`, their names apart, and the sizes of
        their logs. Raises OSError."""
        self.active.index_time()
        self.active.release()
        for segment in self._reaching(from_offset):
            if segment.has_shrunk:
                self._disk.fdatasync(segment.log.fd)
            for index in segment.indexes:
                index.write_out()
                index.sync()
                index.rest()
        self.has_new_names = True

    def sync_aborted(self, from_offset: int) -> None:
        """Make the aborted transactions durable that a snapshot is to cover. Raises OSError."""
        for segment in self._reaching(from_offset):
            segment.transaction_index.write_out()
            segment.transaction_index.sync()
            segment.transaction_index.rest()

    def sync_names(self) -> None:
        """Make every name in the folder durable. Raises OSError."""
        self._disk.fsync_directory(self._folder)
        self.has_new_names = False

    def _reaching(self, from_offset: int) -> list[LocalSegment]:
        return [s for s in self.segments if s.end_offset >= from_offset or s is self.active]

    def write_indexes(self) -> None:
        """Make the index files of the active segment hold all that they can. Raises OSError."""
        self.active.index_time()
        for index in self.active.indexes:
            index.write_out()
            index.rest()

    def close(self) -> None:
        for segment in self.segments:
            segment.close()
