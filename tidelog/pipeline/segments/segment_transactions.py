"""Which transactions of a piece of a log were aborted, according to its segment files.

Owns the search for markers: a transaction's marker comes after its batches, perhaps after the piece, in this
file or a later one. Headers are read, no records.

Invariants: a transaction whose marker is not found is an error, never a guess. The piece is read after this
search. A clean of a compacted log removes no abort marker, and a commit marker only after its records, so the
result also holds for what is read then.
"""

from collections.abc import Iterator
from pathlib import Path

from tidelog.pipeline.segments.data_folders import find_segments
from tidelog.pipeline.segments.segment_files import Batch, SegmentFile
from tidelog.pipeline.segments.segment_ranges import Piece
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import read_marker


class TransactionsInFilesError(RuntimeError):
    """Segment files hold a transaction, but not yet whether it was committed."""


def aborted_transactions(piece: Piece) -> list[tuple[int, int]]:
    """(producer id, offset of the first batch in the piece) of each aborted transaction.

    Raises TransactionsInFilesError, and what `find_segments` and `SegmentFile.walk` raise.
    """
    began: dict[int, int] = {}
    aborted: list[tuple[int, int]] = []
    for file, batch in _batches_from(Path(piece.path).parent, piece.offsets.start):
        header = batch.header
        if header.base_offset >= piece.offsets.end and not began:
            return aborted
        if header.is_control:
            is_commit = _outcome(file.bytes_of(batch)) if header.producer_id in began else None
            if is_commit is not None:
                first_offset = began.pop(header.producer_id)
                aborted += [] if is_commit else [(header.producer_id, first_offset)]
        elif header.is_transactional and header.base_offset < piece.offsets.end:
            began.setdefault(header.producer_id, header.base_offset)
    if began:
        producer_id, offset = next(iter(began.items()))
        raise TransactionsInFilesError(
            f"the batch at offset {offset} belongs to a transaction of producer {producer_id}, and its end is"
            " not in the segment files: read up to an earlier endingOffsets, or from the broker (without"
            " read.path), or with isolation.level=read_uncommitted"
        )
    return aborted


def _outcome(batch: bytes) -> bool | None:
    """Whether a control batch commits; None if it ends no transaction."""
    try:
        return read_marker(batch).is_commit
    except ProtocolError:
        return None


def _batches_from(folder: Path, offset: int) -> Iterator[tuple[SegmentFile, Batch]]:
    """Each batch from the one with `offset` on, with its open file, up to the end of the log. If a clean
    replaces a file meanwhile, the new one continues at the same offset."""
    while True:
        try:
            segments = find_segments([folder])
        except FileNotFoundError:
            return  # The log was deleted; reading it raises that.
        before = [each for each in segments if each.base_offset <= offset]
        try:
            file = SegmentFile(Path((before or segments)[-1 if before else 0].path))
        except FileNotFoundError:
            continue
        with file:
            first = file.find(offset)
            for batch in () if first is None else file.walk(first.position):
                yield file, batch
                offset = batch.header.last_offset + 1
        following = [each.base_offset for each in segments if each.base_offset > file.base_offset]
        if not following:
            return
        offset = max(offset, following[0])
