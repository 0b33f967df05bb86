"""What goes into a partition's log and what comes out of it, as values.

Owns the results of its calls and the pieces of work that it hands to threads.

Invariants: values are immutable; a piece of work touches only what it was given, so that it may run in any
thread while the log is in use; `run` raises OSError and may be called once.
"""

import errno
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.broker.storage.checkpoints import sync_topic_id
from tidelog.broker.storage.disk import FULL, Disk, OpenFile, may_be_repeated
from tidelog.broker.storage.index import IndexFile
from tidelog.broker.storage.producer_table import FrozenTable
from tidelog.broker.storage.snapshot import write_snapshot

SyncEach = Callable[[Callable[[int], None], Iterable[int]], Iterable[None]]
"""Calls a function with each descriptor, as `map` does."""

READ_COMMITTED = 1
"""The isolation level of consumers that read no open and no aborted transactions."""

READ_WRITTEN = 2
"""The level of followers, which get all that is written; no request names it."""


class LogEnds(NamedTuple):
    """The ends of a log at one moment: offsets."""

    end: int
    """After the last record that was written."""
    committed: int
    """After the last one that no crash removes: each replica in sync holds it durably."""
    high_watermark: int
    """After the last one that clients may read: beyond `committed` only if acks.all.durable is false."""
    last_stable: int
    """Before the first record of a transaction that is open."""

    def visible(self, isolation_level: int) -> int:
        """After the last record that a reader of this isolation level may read."""
        if isolation_level == READ_WRITTEN:
            return self.end
        return self.last_stable if isolation_level == READ_COMMITTED else self.high_watermark


class AppendResult(NamedTuple):
    """Where a batch lies; `log_append_time_ms` is -1 when its records keep the producer's timestamps.

    Base offset -1: a duplicate, older than what is remembered, that lies somewhere up to `last_offset`.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class Read(NamedTuple):
    """What to read of a log: whole batches of one segment, from the one that holds `offset`."""

    offset: int
    max_bytes: int
    upper_offset: int
    """All batches lie below it."""
    at_least_one: bool = True
    """The first batch is given even beyond `max_bytes`."""
    nowait: bool = False
    """What cannot be read at once raises ColdRead: repeat it in a thread, without `nowait`."""
    is_sent: bool = False
    """They are only sent, in this step of the loop: with `nowait` they may be mapped (`MappedWindow`)."""


class ReadResult(NamedTuple):
    """Whole batches, and the offset to read from next."""

    records: Sequence[memoryview]
    next_offset: int


class TimestampedOffset(NamedTuple):
    """A record found by time: offset, timestamp in milliseconds, leader epoch in which it was written."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(slots=True)
class FlushWork:
    """Makes everything before `end_offset` durable."""

    end_offset: int
    mark: tuple[int, int, int]
    """Base offset of the last segment, `end_offset`, and the position in that segment where it lies."""
    disk: Disk
    files: list[OpenFile]
    folder: Path | None
    """The partition's folder when names in it changed, else None."""
    before: Sequence[Callable[[], None]] = ()
    lone_fd: int | None = None
    """The file whose fdatasync is all that `run` has to wait for; None where there is more to it."""

    def run(self, each: SyncEach = map) -> None:
        """In any thread, the syncs of the files by `each`. Raises OSError: then nothing of it may be taken as
        durable, ever.

        But where no file could be opened (`is_out_of_handles`) no sync has failed: another flush may follow.
        """
        try:
            self._sync(each)
        finally:
            for file in self.files:
                file.release()

    def attempt(self, each: SyncEach = map) -> OSError | None:
        """`run`, with the error as the answer."""
        try:
            self.run(each)
        except OSError as error:
            return error
        return None

    def after_sync(self, error: OSError | None) -> OSError | None:
        """The fdatasync of `lone_fd` went well, or gave `error`: what `run` would have raised."""
        try:
            if error is None:
                self._check_last_file()
            return error
        except OSError as gone:
            return gone
        finally:
            for file in self.files:
                file.release()

    def _sync(self, each: SyncEach) -> None:
        for step in self.before:
            step()
        if self.folder is not None:
            # First: a start does not know whose records they are in a folder without its topic id.
            sync_topic_id(self.disk, self.folder)
        deque(each(self.disk.fdatasync, [file.fd for file in self.files]), 0)
        self._check_last_file()
        if self.folder is not None:
            self.disk.fsync_directory(self.folder)

    def _check_last_file(self) -> None:
        # The last one grows, so no retention has taken it away.
        if not self.files:
            return
        last, (_, end_offset, expected) = self.files[-1], self.mark
        names, size = self.disk.names_and_size(last.fd)
        if not names:
            raise OSError(errno.ENOENT, f"{last.path} was removed while the broker wrote to it")
        if size < expected:
            raise OSError(
                errno.EIO,
                f"{last.path} became shorter while the broker wrote to it: {size} bytes, offsets up to"
                f" {end_offset} take {expected}",
            )


@dataclass(slots=True)
class CheckpointWork:
    """Makes indexes and names durable up to `recovery_point`, and writes a snapshot when one is due."""

    recovery_point: int
    disk: Disk
    folder: Path
    indexes: list[tuple[IndexFile[Any], OpenFile, bytes, int]] = field(default_factory=list)
    logs: list[OpenFile] = field(default_factory=list)
    """Segments that were made shorter: what lies before the recovery point ends after its last batch."""
    sealed: Sequence[Any] = ()
    """The segments among them that do not grow any more."""
    names: int = 0
    """How many changes of names in the folder become durable; 0 if all are."""
    snapshot: FrozenTable | None = None
    snapshot_offset: int = -1
    snapshot_copies: int = 1
    snapshots_written: int = 0
    snapshot_bytes: int = 0
    """Size of the snapshot once it is written."""
    indexes_durable: bool = False
    is_undone: bool = False
    """Space or a file handle was missing. No sync has failed: the next checkpoint may do it."""

    def release(self) -> None:
        for file in (*self.logs, *(file for _, file, _, _ in self.indexes)):
            file.release()

    def attempt(self) -> OSError | None:
        """`run`, with the error as the answer."""
        try:
            self.run()
        except OSError as error:
            return error
        return None

    def run(self) -> None:
        """In any thread. Raises OSError: the recovery point then stays, nothing else is lost."""
        try:
            for log in self.logs:
                self.disk.fdatasync(log.fd)
            for _, file, data, position in self.indexes:
                if data:
                    self._write(file, data, position)
                self.disk.fdatasync(file.fd)
            if self.names:
                self._sync_names()
            self.indexes_durable = True
        finally:
            self.release()
        if self.snapshot is None:
            return
        for _ in range(self.snapshot_copies):
            self.snapshot_bytes = write_snapshot(
                self.disk, self.folder, self.snapshot_offset, self.snapshot, self.recovery_point
            )
            self.snapshots_written += 1

    def _sync_names(self) -> None:
        try:
            self.disk.fsync_directory(self.folder)
        except OSError as error:
            self.is_undone = may_be_repeated(error)
            raise

    def _write(self, file: OpenFile, data: bytes, position: int) -> None:
        try:
            self.disk.write_all(file.fd, [data], position)
        except OSError as error:
            self.is_undone = error.errno in FULL
            raise
