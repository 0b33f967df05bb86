"""Holes in a log: offsets between its start and its end that no file holds any more.

Owns the definition of a hole: a segment file is missing, empty or cut short, so the next segment begins later
than the one before it ends. Offsets that are missing within a segment are not a hole, because compaction
leaves such gaps.

Invariants: no read and no search silently skips a hole, it raises LogHoleError; a hole below the start of the
log is accepted. So a user accepts the loss with DeleteRecords up to the end of the hole. A batch that may
have been in a hole is neither acknowledged as a duplicate nor stored again after later batches: its producer
gets KAFKA_STORAGE_ERROR, and gives up at its delivery timeout.

Pure.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeVar

from tidelog.broker.storage.integrity import CorruptSegmentError
from tidelog.broker.storage.producer_state import Duplicate, Refusal
from tidelog.protocol.errors import ApiError, ErrorCode


class Hole(NamedTuple):
    """The offsets from `first_offset` on, and before `end_offset`."""

    first_offset: int
    end_offset: int

    def __str__(self) -> str:
        return f"{self.first_offset} to {self.end_offset - 1}"

    def overlaps(self, first_offset: int, last_offset: int) -> bool:
        return first_offset < self.end_offset and last_offset >= self.first_offset


class LogHoleError(CorruptSegmentError):
    """A read or a search reached a hole."""

    def __init__(self, hole: Hole) -> None:
        super().__init__(
            f"the records at offsets {hole} are lost, no segment file holds them; stop the broker and put"
            f" the files back, or delete the records before offset {hole.end_offset} to accept the loss"
        )


class Extent(Protocol):
    """The range of offsets in a file."""

    @property
    def base_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...


SegmentT = TypeVar("SegmentT", bound=Extent)


def holes_between(segments: Sequence[Extent], start_offset: int) -> list[Hole]:
    """The holes of a log that begins at `start_offset`; its segments are in order."""
    holes, reached = [], start_offset
    for segment in segments:
        if segment.base_offset > reached:
            holes.append(Hole(reached, segment.base_offset))
        reached = max(reached, segment.end_offset)
    return holes


def number_of(segments: Sequence[Extent], offset: int) -> int:
    """Which segment may hold `offset`: the last one that does not begin after it, else the first."""
    last = len(segments) - 1
    if segments[last].base_offset <= offset:
        return last  # The most frequent case: readers at the end of the log.
    return max(bisect_right(segments, offset, key=attrgetter("base_offset")) - 1, 0)


def holding(segments: Sequence[SegmentT], offset: int) -> SegmentT:
    """The segment that holds `offset`. Raises LogHoleError if none does."""
    number = number_of(segments, offset)
    segment = segments[number]
    if offset < segment.base_offset:
        raise LogHoleError(Hole(offset, segment.base_offset))
    if offset >= segment.end_offset and number + 1 < len(segments):
        raise LogHoleError(Hole(segment.end_offset, segments[number + 1].base_offset))
    return segment


def joined(segments: Sequence[SegmentT], start_offset: int) -> Iterator[SegmentT]:
    """The segments that reach beyond `start_offset`. Raises LogHoleError if one does not join the last."""
    reached = start_offset
    for segment in segments:
        if segment.base_offset > reached:
            raise LogHoleError(Hole(reached, segment.base_offset))
        if segment.end_offset > start_offset:
            yield segment
        reached = max(reached, segment.end_offset)


def raise_if_lost(verdict: Duplicate | Refusal, holes: Sequence[Hole]) -> None:
    """Raise ApiError for a batch that was stored before, where the log may have lost it since."""
    if isinstance(verdict, Duplicate):
        lost = [hole for hole in holes if hole.overlaps(verdict.base_offset, verdict.last_offset)]
        what = f"it was stored at offsets {verdict.base_offset} to {verdict.last_offset}"
    else:
        # For batches older than the cached ones the position is not known.
        lost = list(holes) if verdict.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER else []
        what = verdict.message
    if lost:
        raise ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{what}, but the log has lost the records at offsets {', '.join(map(str, holes))} since",
        ) from LogHoleError(lost[0])
