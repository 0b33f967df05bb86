"""Checks one segment: it must be a chain of whole batches, each with the offset that follows.

Owns the pass over a `.log` file and its two index checks. Bytes that are not a batch are reported once. The
pass continues at the next batch that the offset index names and its bytes confirm. What a crash leaves at the
end of a log (a batch that was never durable, with nothing sound after it) is a warning.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.file_reader import Broken, FileReader, FoundBatch, batch_at, begins_batch
from tidelog.broker.storage.index import OFFSET_ENTRY
from tidelog.broker.storage.integrity import is_unfinished, may_follow
from tidelog.broker.storage.local_segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from tidelog.broker.storage.verification.findings import Findings, Severity
from tidelog.broker.storage.verification.indexes import OffsetIndexCheck, TimeIndexCheck
from tidelog.protocol.records import BATCH_HEADER_SIZE, BatchHeader
from tidelog.protocol.types import NO_LEADER_EPOCH, NO_TIMESTAMP

_TRIED_ENTRIES = 1000


@dataclass(slots=True)
class Walk:
    """How far the log of one partition has been read, over all its segments."""

    next_offset: int
    cleaned_offset: int
    """Up to here compaction may have taken batches, and records of batches."""
    leader_epochs: dict[int, int] = field(default_factory=dict)
    """Epoch -> offset of its first batch in the log."""
    latest_epoch: int = NO_LEADER_EPOCH
    is_whole: bool = True
    """No batch so far was lost or unreadable."""
    has_gaps: bool = False
    """Compaction has taken a batch."""
    batches: int = 0
    records: int = 0


class SegmentPlace(NamedTuple):
    """A segment file and what is known of it: `trusted` is the offset below which all was durable,
    `covered_to` the offset where the next segment begins, None for the last one."""

    path: Path
    name: str
    trusted: int
    covered_to: int | None
    index_interval: int
    is_same_boot: bool
    """The machine did not stop since a broker wrote here: then nothing that was written can be lost."""

    @property
    def is_closed(self) -> bool:
        """Whether its files were written to their ends, durably: by a roll, or by a clean shutdown."""
        end = 2**62 if self.covered_to is None else self.covered_to
        return end <= self.trusted


class SegmentCheck:
    """Checks the batches and the indexes of one segment."""

    def __init__(
        self,
        disk: Disk,
        place: SegmentPlace,
        findings: Findings,
        on_batch: Callable[[str, FoundBatch], None],
        progress: Callable[[int], None],
    ) -> None:
        self._disk = disk
        self._place = place
        self._name = place.name
        self._base_offset = int(place.path.name.partition(".")[0])
        self._findings = findings
        self._on_batch = on_batch
        self._progress = progress
        self._offsets: OffsetIndexCheck | None = None
        self._times: TimeIndexCheck | None = None
        self._largest_timestamp: int = NO_TIMESTAMP
        self._largest_batch = 0

    def run(self, walk: Walk) -> None:
        """Check the segment from `walk.next_offset` on. Raises OSError."""
        with ExitStack() as files:
            reader = files.enter_context(FileReader(self._disk, self._place.path))
            severity = Severity.DAMAGE if self._place.is_closed else Severity.WARNING
            index = self._open_index(files, INDEX_SUFFIX, severity, reader.size)
            if index is not None:
                self._offsets = OffsetIndexCheck(*index, self._base_offset, self._findings, severity)
            index = self._open_index(files, TIME_INDEX_SUFFIX, severity, reader.size)
            if index is not None:
                self._times = TimeIndexCheck(*index, self._base_offset, self._findings, severity)
            self._walk(reader, walk)

    def _open_index(
        self, files: ExitStack, suffix: str, severity: Severity, segment_bytes: int
    ) -> tuple[FileReader, str] | None:
        path = self._place.path.with_suffix(suffix)
        if self._place.path.suffix != LOG_SUFFIX:
            return None  # A swap that a crash left: the next start makes its indexes.
        name = self._name.removesuffix(LOG_SUFFIX) + suffix
        if self._disk.exists(path):
            return files.enter_context(FileReader(self._disk, path)), name
        if segment_bytes and (self._place.is_closed or self._place.covered_to is not None):
            self._findings.add(
                severity, name, "the file is missing; the next start of a broker makes it again"
            )
        return None

    def _walk(self, reader: FileReader, walk: Walk) -> None:
        position = 0
        while position < reader.size and not self._is_end(reader, position, walk):
            found = batch_at(reader, position)
            if isinstance(found, FoundBatch):
                following = self._batch(reader, found, walk)
            else:
                following = self._broken(reader, found, walk)
            self._progress((reader.size if following is None else following) - position)
            if following is None:
                return
            position = following
        if self._offsets is not None:
            interval = self._place.index_interval if self._place.is_closed else None
            self._offsets.finish(position, self._largest_batch, interval)
        if self._times is not None:
            is_complete = self._place.is_closed
            self._times.finish(walk.next_offset, self._largest_timestamp, is_complete=is_complete)

    def _is_end(self, reader: FileReader, position: int, walk: Walk) -> bool:
        """Whether batches end there, and the rest was reserved for later ones."""
        place = self._place
        expected = place.trusted if place.covered_to is None else place.covered_to
        return not place.is_closed and walk.next_offset >= expected and reader.is_reserved_from(position)

    def _batch(self, reader: FileReader, batch: FoundBatch, walk: Walk) -> int | None:
        """Check a batch and add it to `walk`; returns where the next one begins, None if that is unknown."""
        header, expected = batch.header, walk.next_offset
        crc_is_right = batch.crc == header.crc
        if not crc_is_right and not begins_batch(
            reader, batch.end, header.last_offset + 1, walk.cleaned_offset
        ):
            problem = f"expected a batch with CRC {header.crc:08x}, got CRC {batch.crc:08x}"
            return self._broken(reader, Broken(batch.position, problem), walk)
        walk.batches += 1
        walk.next_offset = max(header.last_offset, header.base_offset) + 1
        follows = may_follow(header.base_offset, expected, walk.cleaned_offset)
        walk.is_whole = walk.is_whole and crc_is_right and follows
        walk.has_gaps = walk.has_gaps or (follows and header.base_offset > expected)
        if not crc_is_right:
            is_torn = batch.end == reader.size and self._may_be_torn(reader, batch.position, expected)
            self._findings.add(
                Severity.WARNING if is_torn else Severity.DAMAGE,
                self._name,
                f"the CRC of the batch of offsets {header.base_offset}..{header.last_offset} is wrong",
                position=batch.position,
                expected=f"{header.crc:08x}",
                found=f"{batch.crc:08x}",
            )
        self._check_header(batch, expected, walk)
        if crc_is_right:
            walk.records += max(header.record_count, 0)
            self._on_batch(self._name, batch)
        if self._offsets is not None:
            self._offsets.batch(batch)
        if self._times is not None:
            self._times.batch(batch, self._largest_timestamp)
        self._largest_timestamp = max(self._largest_timestamp, header.largest_timestamp)
        self._largest_batch = max(self._largest_batch, header.size_bytes)
        return batch.end

    def _check_header(self, batch: FoundBatch, next_offset: int, walk: Walk) -> None:
        header = batch.header
        epoch = header.partition_leader_epoch
        for problem, is_right, expected, found in (
            (
                "the base offset does not follow",
                may_follow(header.base_offset, next_offset, walk.cleaned_offset),
                next_offset,
                header.base_offset,
            ),
            (
                "the number of records is not that of the offsets",
                _may_hold(header, walk.cleaned_offset),
                header.last_offset_delta + 1,
                header.record_count,
            ),
            ("the leader epoch went back", epoch >= walk.latest_epoch, f"{walk.latest_epoch} or more", epoch),
        ):
            if not is_right:
                self._findings.damage(
                    self._name, problem, position=batch.position, expected=expected, found=found
                )
        if epoch > walk.latest_epoch:
            walk.latest_epoch = epoch
            walk.leader_epochs[epoch] = header.base_offset

    def _may_be_torn(self, reader: FileReader, position: int, offset: int) -> bool:
        """Whether a crash may have left the last bytes, from `position` on, where `offset` belongs."""
        if self._place.covered_to is not None or offset < self._place.trusted:
            return False
        tail = reader.at(position, min(reader.size - position, BATCH_HEADER_SIZE))
        return not self._place.is_same_boot or is_unfinished(tail, reader.size - position, offset)

    def _broken(self, reader: FileReader, broken: Broken, walk: Walk) -> int | None:
        """Report bytes that are no batch; returns where the next batch begins, None if there is none."""
        walk.is_whole = False
        following = self._resume(reader, broken.position)
        expected = f"the batch of offset {walk.next_offset}"
        if following is None:
            rest = reader.size - broken.position
            if self._may_be_torn(reader, broken.position, walk.next_offset):
                self._findings.warning(
                    self._name,
                    f"{broken.problem}; never durable: a broker cuts off these {rest} bytes when it starts",
                    position=broken.position,
                )
            else:
                problem = f"{broken.problem}; nothing says where the next batch begins, {rest} bytes are lost"
                self._findings.damage(self._name, problem, position=broken.position, expected=expected)
            return None
        self._findings.damage(
            self._name,
            f"{broken.problem}; the next batch that can be read begins at byte {following.position}",
            position=broken.position,
            expected=expected,
        )
        walk.next_offset = following.header.base_offset
        return following.position

    def _resume(self, reader: FileReader, position: int) -> FoundBatch | None:
        """The next batch after `position` that the offset index names and its bytes confirm."""
        path = self._place.path.with_suffix(INDEX_SUFFIX)
        if not self._disk.exists(path):
            return None
        tried = 0
        with FileReader(self._disk, path) as index:
            for _, (relative, candidate) in index.entries(OFFSET_ENTRY):
                if not position < candidate < reader.size:
                    continue
                found = batch_at(reader, candidate)
                if (
                    isinstance(found, FoundBatch)
                    and found.crc == found.header.crc
                    and found.header.last_offset == self._base_offset + relative
                ):
                    return found
                tried += 1
                if tried == _TRIED_ENTRIES:
                    break
        return None


def _may_hold(header: BatchHeader, cleaned_offset: int) -> bool:
    """Whether the number of records fits the offsets: each has one, unless compaction took some."""
    is_whole = header.record_count == header.last_offset_delta + 1
    was_cleaned = header.last_offset < cleaned_offset and 0 <= header.record_count <= header.last_offset_delta
    return header.last_offset_delta >= 0 and (is_whole or was_cleaned)
