"""Opening a partition's log: reads the files, decides where the log ends, rebuilds the producer state.

Up to the recovery point (in the whole log after a clean shutdown) files and indexes were durable, so they are
trusted. Only the end of each file is checked, by the headers after the last index entry. Beyond the recovery
point every batch is read: header, CRC, offset. The log ends before the first wrong batch. What follows that
batch is cut off or deleted. What was reserved for later batches (`preallocate`) is cut
off too, and is no damage.

A file below the recovery point that is missing, empty or cut short was lost after it was durable. What
follows it is still good: it stays, and the log has a hole (see `holes`).

Beyond the recovery point the page cache may return bytes that never reached the disk, so every good batch
there is written again, from the bytes that were checked. The first flush of the log makes it durable.

Invariants: each closed segment joins the next one, or `RecoveryReport` names the hole; the producer state is
that of the newest usable snapshot plus every header after it, which equals a replay of the whole log; nothing
is cut or set aside without being named in `RecoveryReport`; bytes whose loss may matter (valid batches behind
a damaged one) are kept in a `.damaged` file. A follower's batches behind a gap that was not stored yet were
never durable. They are cut off and not kept, because the follower copies them again.

Blocking. Source: Kafka's LogLoader and LogSegment.recover.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tidelog.broker.storage.cleaned_offset import CleanedOffset
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.holes import Hole, holes_between
from tidelog.broker.storage.integrity import CorruptSegmentError, is_unfinished, problem_of
from tidelog.broker.storage.local_segment import DELETED_SUFFIX, INDEX_SUFFIXES, LOG_SUFFIX, LocalSegment
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.open_transactions import OpenTransactions
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.segment_batches import batches_of
from tidelog.broker.storage.snapshot import load_newest, set_aside
from tidelog.broker.storage.swap import CLEANED_SUFFIX, SWAP_SUFFIX, finish_swaps
from tidelog.broker.storage.transaction_index import TRANSACTION_INDEX_SUFFIX
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import BATCH_HEADER_SIZE, BatchHeader, batch_crc_is_valid, read_marker
from tidelog.protocol.types import NO_LEADER_EPOCH, NO_TIMESTAMP

_CHUNK_BYTES = 1 << 20
_VIEWS_PER_WRITE = 256
_ASIDE_BYTES = 1 << 18
"""What is copied at a time of a damaged tail; that may be a whole segment."""
_EVERYTHING = 2**63 - 1
DAMAGED_SUFFIX = ".damaged"
ANY_EPOCH = 2**31 - 1


class Opening(NamedTuple):
    """What a log is opened with."""

    config: LogConfig
    next_producer_id: Callable[[], int]
    now_ms: int
    clean_shutdown: bool
    recovery_point: int
    start_offset: int | None = None
    """The log start that was saved last, None if it is not known: older records stay deleted."""
    same_boot: bool = False
    latest_epoch: int = ANY_EPOCH
    """No leader had a later one."""
    has_copies: bool = False
    """Whether other brokers have replicas."""
    steady_ms: Callable[[], int] | None = None
    """The clock by which producers expire, by default `now_ms` of each call."""


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did; the caller makes a log event of it."""

    clean_shutdown: bool
    recovery_point: int
    end_offset: int = 0
    segments: int = 0
    scanned_bytes: int = 0
    replayed_batches: int = 0
    producers: int = 0
    snapshot_offset: int = -1
    truncated_bytes: int = 0
    truncated_at_offset: int = -1
    truncated_reason: str = ""
    below_recovery_point: bool = False
    """The damage lies where everything was durable before: acknowledged records are lost."""
    kept_aside: list[str] = field(default_factory=list)
    deleted_segments: list[str] = field(default_factory=list)
    rebuilt_indexes: list[str] = field(default_factory=list)
    corrupt_snapshots: list[str] = field(default_factory=list)
    producers_unknown_before: int = -1
    """No good snapshot covers what was deleted before this: producers only of that part are forgotten."""
    unreadable: list[str] = field(default_factory=list)
    """Places in closed segments where no batch can be read any more."""
    holes: list[Hole] = field(default_factory=list)
    """Offsets between start and end of the log that no file holds any more."""
    start_moved: Hole | None = None
    """The offsets from the saved log start to the first file, if a crash may explain the difference."""
    file_problems: list[str] = field(default_factory=list)
    """What was wrong with the small files beside the segments."""

    @property
    def _has_loss(self) -> bool:
        """Whether something was found that neither a plain crash nor a power cut leaves behind."""
        return bool(
            self.corrupt_snapshots
            or self.unreadable
            or self.holes
            or self.producers_unknown_before >= 0
            or self.below_recovery_point
            or self.file_problems
        )

    @property
    def is_torn_tail(self) -> bool:
        """Whether all that was found is an end, beyond the recovery point, that a power cut may leave."""
        return not self.clean_shutdown and not self._has_loss

    @property
    def is_damaged(self) -> bool:
        """Whether something was found that a plain crash does not leave behind."""
        return bool(self._has_loss or self.kept_aside)


class Recovered(NamedTuple):
    segments: list[LocalSegment]
    start_offset: int
    producers: ProducerStates
    cleaned: CleanedOffset
    leader_epochs: list[tuple[int, int]]
    """(epoch, first offset) as the batches that were read show them."""
    report: RecoveryReport
    has_new_names: bool
    """The folder may hold names that no flush has made durable."""
    flushed_end_offset: int
    """All before it was durable when this process began."""


class _Scan(NamedTuple):
    """How far a segment holds: position and offset after the last good batch, and why it ends there."""

    position: int
    end_offset: int
    problem: str
    is_gap: bool
    """The batch there is good, and begins later: the crash came before the gap was stored."""


class _WriteAgain:
    """Contiguous good bytes of a segment that are written again at their position."""

    def __init__(self, segment: LocalSegment, disk: Disk) -> None:
        self._segment = segment
        self._disk = disk
        self._views: list[memoryview] = []
        self._position = 0
        self._size = 0

    def add(self, view: memoryview, position: int) -> None:
        if not self._views:
            self._position = position
        self._views.append(view)
        self._size += len(view)
        if len(self._views) == _VIEWS_PER_WRITE or self._size >= _CHUNK_BYTES:
            self.write()

    def write(self) -> None:
        """Raises OSError: then acknowledged records cannot be made durable, and the log cannot be opened."""
        if self._views:
            self._disk.write_all(self._segment.log.fd, self._views, self._position)
            self._views.clear()
            self._size = 0


class Recovery:
    """Opens the log in one partition folder, cuts what is not whole, and rebuilds the producer state."""

    def __init__(self, folder: Path, disk: Disk, opening: Opening) -> None:
        self._folder = folder
        self._disk = disk
        self._opening = opening
        self._index_interval = opening.config.index_interval_bytes
        self._steady_now_ms = opening.now_ms if opening.steady_ms is None else opening.steady_ms()
        self._trusted = _EVERYTHING if opening.clean_shutdown else opening.recovery_point
        self._segments: list[LocalSegment] = []
        self._have_aborted: set[int] = set()
        """Base offsets of the segments with an index of aborted transactions."""
        self._cleaned = CleanedOffset(disk, folder)
        self.report = RecoveryReport(opening.clean_shutdown, opening.recovery_point)

    def run(self) -> Recovered:
        """Open everything; a folder without a segment gets one at `start_offset`.

        Raises OSError; then call `close` to release what was opened.
        """
        opening = self._opening
        self._disk.make_directory(self._folder)
        if problem := self._cleaned.load():
            self.report.file_problems.append(problem)
        bases = self._log_files()
        is_empty = not bases
        if not bases:
            bases = [opening.start_offset or 0]
        limit = _EVERYTHING
        while True:
            snapshot = load_newest(self._disk, self._folder, limit)
            self.report.corrupt_snapshots += snapshot.set_aside
            try:
                producers = ProducerStates(
                    opening.config.producers, opening.next_producer_id, snapshot.frozen, self._steady_now_ms
                )
            except ValueError as error:
                if snapshot.path is None:
                    raise
                self.report.corrupt_snapshots.append(set_aside(self._disk, snapshot.path, error))
                continue
            self._snapshot_offset = snapshot.offset
            self._aborted = {} if snapshot.frozen is None else snapshot.frozen.aborted
            segments = self._open_segments(bases, snapshot.offset, producers)
            end_offset = segments[-1].end_offset
            if snapshot.offset <= end_offset:
                break
            # It covers batches that the log lost: an older one is used, and the log is read again for it.
            self.close()
            bases = [segment.base_offset for segment in segments]
            limit = end_offset
        segments[-1].transaction_index.keep_before(end_offset)
        if self._without_aborted:
            self._rebuild_aborted(segments)
        self._cleaned.limit(end_offset)
        self.report.end_offset = end_offset
        self.report.below_recovery_point |= end_offset < self.report.recovery_point
        self.report.segments = len(segments)
        self.report.snapshot_offset = snapshot.offset
        self.report.producers = len(producers)
        # A crash may come before the first snapshot that a log without producers needs to lose a segment.
        must_cover = self.report.clean_shutdown or self.report.corrupt_snapshots or snapshot.offset < 0
        if must_cover and max(snapshot.offset, 0) < bases[0]:
            self.report.producers_unknown_before = bases[0]
        start_offset = self._start_of(bases[0], opening.start_offset, end_offset)
        self.report.holes = holes_between(segments, start_offset)
        return Recovered(
            segments,
            min(start_offset, end_offset),
            producers,
            self._cleaned,
            sorted(self._leader_epochs.items()),
            self.report,
            # A clean close has flushed it, unless there was nothing to flush.
            is_empty or not end_offset or not self.report.clean_shutdown,
            min(self._trusted, end_offset),
        )

    def _start_of(self, first_base: int, saved: int | None, end_offset: int) -> int:
        """Where the log begins.

        A crash may happen between the deletion of files and the saving of the new start. What was saved has
        no checksum: if the log was never so long, it would hide records that were not deleted.
        """
        if saved is None:
            return first_base
        if saved > end_offset and not self.report.below_recovery_point:
            self.report.file_problems.append(
                f"the saved log start {saved} is after the log's end {end_offset}; the log begins at"
                f" {first_base}, so records that were deleted may exist again"
            )
            return first_base
        if saved < first_base and not self.report.clean_shutdown:
            self.report.start_moved = Hole(saved, first_base)
            return first_base
        return saved

    def close(self) -> None:
        """Close every file: the log is not opened after all."""
        for segment in self._segments:
            segment.close()

    def _log_files(self) -> list[int]:
        """Base offsets of the segments, ascending. Unlinks what a deletion or a crash left behind."""
        bases = set()
        names = self._disk.list_directory(self._folder)
        if any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
            self.report.file_problems += finish_swaps(self._disk, self._folder)
            names = self._disk.list_directory(self._folder)
        for name in names:
            path = Path(name)
            if path.suffix in (DELETED_SUFFIX, ".tmp"):
                self._disk.unlink(self._folder / name)
            elif path.suffix == LOG_SUFFIX and path.stem.isdigit():
                bases.add(int(path.stem))
        for name in names:
            path = Path(name)
            is_index = path.suffix in INDEX_SUFFIXES and path.stem.isdigit()
            if is_index and int(path.stem) not in bases:
                self._disk.unlink(self._folder / name)
            elif is_index and path.suffix == TRANSACTION_INDEX_SUFFIX:
                self._have_aborted.add(int(path.stem))
        return sorted(bases)

    def _open_segments(
        self, bases: list[int], snapshot_offset: int, producers: ProducerStates
    ) -> list[LocalSegment]:
        replay_from = max(snapshot_offset, bases[0])
        scan_from = min(replay_from, self._trusted)
        first_scanned = max((i for i, base in enumerate(bases) if base <= scan_from), default=0)
        self._replay_from, self._producers = replay_from, producers
        self._without_aborted: list[str] = []
        self._leader_epochs: dict[int, int] = {}
        self.report.replayed_batches = 0
        segments = self._segments = []
        for number, base in enumerate(bases):
            segment = LocalSegment(
                self._disk, self._folder, base, self._opening.now_ms, self._cleaned, is_new=False
            )
            last = number == len(bases) - 1
            if segments and number >= first_scanned and not self._may_follow(base, segments[-1].end_offset):
                segment.close()
                self._drop(bases[number:], f"the segment before it ends at {segments[-1].end_offset}")
                break
            segments.append(segment)
            self._load_aborted(segment)
            if number < first_scanned:
                segment.transaction_index.leave_memory()
                self._open_sealed(segment, bases[number + 1])
                continue
            scan = self._scan(segment, scan_from)
            if scan.problem and not last and scan.end_offset < self._trusted:
                self.report.unreadable.append(
                    f"{segment.path.name} at byte {scan.position}: {scan.problem}; nothing after it is read"
                )
            elif scan.problem:
                keeps = not scan.is_gap
                self._cut(segment, scan, keeps=keeps)
                self._drop(bases[number + 1 :], "the segment before it was cut short", keeps=keeps)
                break
            if not last:
                segment.seal()
        return segments

    def _may_follow(self, base: int, end_offset: int) -> bool:
        """Whether a segment at `base` stays in a log whose segments before it end at `end_offset`."""
        return base == end_offset or (base > end_offset and end_offset < self._trusted)

    def _open_sealed(self, segment: LocalSegment, next_base: int) -> None:
        """Open a segment that was complete and durable: trust it, unless an index is missing."""
        size = self._disk.size(segment.log.fd)
        segment.tail = (size, next_base)
        segment.unverified = (0, size)
        try:
            if segment.load_sealed_indexes(self._index_interval):
                return
            self.report.rebuilt_indexes.append(segment.path.name)
            segment.rebuild_indexes(self._index_interval)
        except CorruptSegmentError as error:
            # It was durable, so it is not cut off: readable batches are served, reads of the rest fail.
            self.report.unreadable.append(str(error))
        segment.seal()

    def _scan(self, segment: LocalSegment, scan_from: int) -> _Scan:
        """Read a segment from the last trusted index entry below `scan_from`; indexes what it reads."""
        size = self._disk.size(segment.log.fd)
        position = self._load_indexes(segment, size, scan_from)
        at_offset = segment.end_offset
        segment.unverified = (0, position)
        again = _WriteAgain(segment, self._disk)
        problem, is_gap = "", False
        for header, view in batches_of(segment, position, size):
            if isinstance(header, str):
                problem = header
                break
            problem = self._problem(header, view, at_offset)
            if problem:
                is_gap = self._is_gap(header, view, at_offset)
                break
            if header.last_offset >= self._trusted:
                again.add(view, position)
            segment.note(
                position, len(view), header.last_offset, header.largest_timestamp, self._index_interval
            )
            if self._may_be_epoch(header, segment):
                self._leader_epochs.setdefault(header.partition_leader_epoch, header.base_offset)
            if header.base_offset >= self._replay_from:
                self._replay(segment, header, view)
            position += len(view)
            at_offset = header.last_offset + 1
            self.report.scanned_bytes += len(view)
        again.write()
        if problem and at_offset >= self._trusted and segment.is_reserved_from(position):
            segment.cut_back()
            problem, is_gap = "", False
        return _Scan(position, at_offset, problem, is_gap)

    def _problem(self, header: BatchHeader, view: memoryview, expected_offset: int) -> str:
        """Why these bytes are not the batch that belongs here, or nothing."""
        latest = max(self._leader_epochs, default=NO_LEADER_EPOCH)
        problem = problem_of(header, view, 0, expected_offset, self._cleaned.offset)
        if not problem and NO_LEADER_EPOCH <= header.partition_leader_epoch < latest:
            return f"leader epoch {header.partition_leader_epoch} after {latest}"
        return problem

    def _is_gap(self, header: BatchHeader, view: memoryview, expected_offset: int) -> bool:
        """Whether a follower may have copied this batch, as the leader sent it, without a flush since."""
        return (
            self._opening.has_copies
            and self._trusted <= expected_offset < header.base_offset
            and not self._problem(header, view, header.base_offset)
        )

    def _may_be_epoch(self, header: BatchHeader, segment: LocalSegment) -> bool:
        """Whether a leader had the epoch of a good batch. Else that field, which the CRC does not cover, is
        damaged, and costs neither this batch nor those after it."""
        epoch = header.partition_leader_epoch
        if NO_LEADER_EPOCH <= epoch <= self._opening.latest_epoch:
            return True
        self.report.file_problems.append(
            f"{segment.path.name} at offset {header.base_offset}: leader epoch {epoch}, the latest is"
            f" {self._opening.latest_epoch}; no record is lost"
        )
        return False

    def _replay(self, segment: LocalSegment, header: BatchHeader, view: memoryview) -> None:
        """Change producers and the segment's aborted transactions as the append of this batch did."""
        if not header.is_control:
            self._producers.apply(header, header.base_offset, self._steady_now_ms)
        elif header.producer_id >= 0:
            # Its CRC is right. A batch that is no marker was stored as it is, and changed nothing.
            with suppress(ProtocolError):
                aborted = self._producers.apply_marker(
                    header, read_marker(view), header.base_offset, self._steady_now_ms
                )
                if aborted is not None:
                    segment.transaction_index.append(aborted)
        self.report.replayed_batches += 1

    def _load_aborted(self, segment: LocalSegment) -> None:
        """Load the aborted transactions that the replay does not find again."""
        index, problem = segment.transaction_index, ""
        if segment.base_offset in self._have_aborted:
            problem = index.load(max(self._replay_from, self._trusted))
        else:
            index.load_nothing()
        found = index.known_before(self._snapshot_offset)
        expected = self._aborted.get(segment.base_offset, (0, 0))
        if not problem and found != expected:
            problem = f"(aborted transactions, CRC) are {found}, and {expected} in the snapshot"
        if problem:
            self._without_aborted.append(f"{segment.path.stem}{TRANSACTION_INDEX_SUFFIX}: {problem}")

    def _rebuild_aborted(self, segments: list[LocalSegment]) -> None:
        """Find all aborted transactions again, because an index of them is damaged: reads the whole log."""
        transactions = OpenTransactions()
        for segment in segments:
            entries = []
            for header, view in batches_of(segment, 0, segment.size_bytes):
                if isinstance(header, str):
                    break
                if not header.is_transactional or header.producer_id < 0:
                    continue
                if not header.is_control:
                    transactions.begin(header.producer_id, header.base_offset)
                    continue
                with suppress(ProtocolError):
                    is_commit = read_marker(view).is_commit
                    ended = transactions.end(header.producer_id, header.base_offset)
                    transactions.settle(header.base_offset + 1)
                    if ended is not None and not is_commit:
                        entries.append(ended)
            segment.transaction_index.replace(entries)
            segment.transaction_index.write_out()
            segment.transaction_index.sync()
        self.report.rebuilt_indexes += self._without_aborted
        self._producers.changes += 1  # The snapshot's counts are those of the lost indexes.

    def _load_indexes(self, segment: LocalSegment, size: int, scan_from: int) -> int:
        """Keep the trusted index entries; returns the position to read from and sets the segment's tail."""
        trusted = min(self._trusted - segment.base_offset, 1 << 31)
        complete = segment.offset_index.load_active(trusted, size)
        complete &= segment.time_index.load_active(_EVERYTHING, trusted)
        is_clean = self._trusted == _EVERYTHING
        entry = segment.offset_index.floor(min(scan_from - segment.base_offset, 1 << 31))
        if entry is not None and (complete or not is_clean):
            try:
                if segment.resume_at(entry):
                    return segment.size_bytes
            except CorruptSegmentError:
                complete = False
        if size and trusted > 0 and (entry is not None or not complete):
            self.report.rebuilt_indexes.append(segment.path.name)
        segment.offset_index.truncate(0)
        segment.time_index.truncate(0)
        segment.tail = (0, segment.base_offset)
        segment.max_timestamp, segment.bytes_since_index = NO_TIMESTAMP, 0
        return 0

    def _cut(self, segment: LocalSegment, scan: _Scan, *, keeps: bool) -> None:
        """End the log before the batch that is wrong; `keeps` what may matter under another name."""
        size = self._disk.size(segment.log.fd)
        self.report.truncated_bytes += size - scan.position
        self.report.truncated_at_offset = scan.end_offset
        self.report.truncated_reason = f"{segment.path.name} at byte {scan.position}: {scan.problem}"
        header = segment.read_bytes(scan.position, min(BATCH_HEADER_SIZE, size - scan.position))
        # Without a power cut, a broker leaves only the beginning of the batch that it was writing.
        is_odd = self._opening.same_boot and not is_unfinished(header, size - scan.position, scan.end_offset)
        is_odd |= scan.end_offset < self.report.recovery_point
        if keeps and (is_odd or _holds_a_batch(segment, scan, size)):
            aside = segment.path.with_name(segment.path.name + DAMAGED_SUFFIX)
            starts = range(scan.position, size, _ASIDE_BYTES)
            self._disk.replace_file(
                aside, (segment.read_bytes(start, min(_ASIDE_BYTES, size - start)) for start in starts)
            )
            self.report.kept_aside.append(aside.name)
        segment.cut_back()

    def _drop(self, bases: list[int], reason: str, *, keeps: bool = True) -> None:
        """Remove segments after the end of the log; `keeps` files that hold anything under another name."""
        for base in bases:
            path = self._folder / f"{base:020d}{LOG_SUFFIX}"
            self.report.deleted_segments.append(f"{path.name}: {reason}")
            size = self._size_of(path)
            self.report.truncated_bytes += size
            if size and keeps:
                aside = path.with_name(path.name + DAMAGED_SUFFIX)
                self._disk.rename(path, aside)
                self.report.kept_aside.append(aside.name)
            else:
                self._disk.unlink(path)
            for suffix in INDEX_SUFFIXES:
                if self._disk.exists(path.with_suffix(suffix)):
                    self._disk.unlink(path.with_suffix(suffix))

    def _size_of(self, path: Path) -> int:
        fd = self._disk.open(path, os.O_RDONLY)
        try:
            return self._disk.size(fd)
        finally:
            self._disk.close(fd)


def _holds_a_batch(segment: LocalSegment, scan: _Scan, size: int) -> bool:
    """Whether a whole valid batch follows a damaged one: then it was not just a torn write."""
    behind = islice(batches_of(segment, scan.position, size), 1, None)
    return any(
        not isinstance(header, str) and header.magic == 2 and batch_crc_is_valid(view, header)
        for header, view in behind
    )
