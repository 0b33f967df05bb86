"""A data folder's segment files as a source, without a broker.

Owns which files hold a partition's log, and how offset ranges are cut into pieces: each piece is in one
segment file, begins at a batch, and is the work of one Spark task. Read-only. The folder of a running broker
can be read if the broker gives the ends: nothing after them is read. Driver and executors must see the files
under the same path.

Invariants: the pieces of a range cover it once, in order. A file that is missing, or ends before what was
planned, is an error or a named loss, never a shorter answer. Each file holds all that its log has between its
first offset and that of the next file.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tidelog.pipeline.offsets import OffsetRange, Place, lose
from tidelog.pipeline.segments.data_folders import Segment, find_segments
from tidelog.pipeline.segments.segment_files import SegmentFile
from tidelog.protocol.errors import ProtocolError

PIECE_BYTES = 32 * 1024 * 1024


class Piece(NamedTuple):
    """What one task reads: `offsets`, which lay in this file when the read was planned."""

    path: str
    offsets: OffsetRange


def plan_pieces(
    segments: Mapping[Place, Sequence[Segment]],
    ranges: Iterable[OffsetRange],
    min_partitions: int | None = None,
    losses: list[str] | None = None,
) -> list[Piece]:
    """The pieces that cover `ranges`: none larger than about PIECE_BYTES, and about `min_partitions` where
    that is more.

    What lies before the first file, or in none, is appended to `losses`, or raises OffsetsLostError where it
    is None.
    """
    spans = [span for each in ranges for span in _spans(segments, each, losses)]
    total = sum(span.size_bytes for span in spans)
    pieces: list[Piece] = []
    for span in spans:
        count = -(-span.size_bytes // PIECE_BYTES)
        if min_partitions is not None and total:
            count = max(count, round(span.size_bytes / total * min_partitions))
        pieces += _cut(span, count)
    return pieces


class _Span(NamedTuple):
    """The part of a range that lies in one file, from the first byte of its batches to the last."""

    segment: Segment
    offsets: OffsetRange
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


def _spans(
    segments: Mapping[Place, Sequence[Segment]], wanted: OffsetRange, losses: list[str] | None
) -> Iterator[_Span]:
    files = segments.get(wanted.place, ())
    if not files or files[0].base_offset > wanted.start:
        begin = min(files[0].base_offset, wanted.end) if files else wanted.end
        lose(f"{wanted.place}: no segment file holds the offsets {wanted.start} to {begin - 1}", losses)
        wanted = wanted._replace(start=begin)
    bases = [each.base_offset for each in files]
    for number in range(max(bisect_right(bases, wanted.start) - 1, 0), bisect_right(bases, wanted.end - 1)):
        is_last = number + 1 == len(bases)
        end = wanted.end if is_last else min(wanted.end, bases[number + 1])
        offsets = wanted._replace(start=max(wanted.start, bases[number]), end=end)
        if offsets.size > 0:
            yield _span(files[number], offsets)


def _span(segment: Segment, offsets: OffsetRange) -> _Span:
    """Files that are gone, or too short, get a span without bytes: the task that reads it says what is
    missing."""
    try:
        with SegmentFile(Path(segment.path)) as file:
            first, last = file.find(offsets.start), file.find(offsets.end - 1)
            end = file.size_bytes if last is None else last.end
            return _Span(segment, offsets, end if first is None else first.position, end)
    except FileNotFoundError:
        return _Span(segment, offsets, 0, 0)


def _cut(span: _Span, count: int) -> Iterator[Piece]:
    """About `count` pieces of about the same number of bytes, each beginning at a batch. Fewer where the file
    is gone or another one meanwhile: the task finds what exists then."""
    position, offsets = span.start, span.offsets
    with suppress(FileNotFoundError, ProtocolError), SegmentFile(Path(span.segment.path)) as file:
        for number in range(1, count):
            batch = file.first_from(span.start + span.size_bytes * number // count, position)
            if batch is None or not offsets.start < batch.header.base_offset < offsets.end:
                continue
            if batch.position > position:
                cut = batch.header.base_offset
                yield Piece(span.segment.path, offsets._replace(end=cut))
                position, offsets = batch.position, offsets._replace(start=cut)
    yield Piece(span.segment.path, offsets)


def open_piece(piece: Piece) -> SegmentFile | None:
    """The file that has the piece's offsets now: where a clean of a compacted log has joined its file with
    those before it, the joined one. None if no file has them any more.

    Raises SegmentCutError as `find_segments`.
    """
    path, start = Path(piece.path), piece.offsets.start
    with suppress(FileNotFoundError):
        return SegmentFile(path)
    with suppress(FileNotFoundError):
        before = [each for each in find_segments([path.parent]) if each.base_offset <= start]
        if before:
            file = SegmentFile(Path(before[-1].path))
            if file.find(start) is not None:
                return file
            file.close()
    return None
