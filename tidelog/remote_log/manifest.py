"""What of a partition's log is in remote storage.

Owns the manifest, its format and its changes, and the names of objects. A segment is two objects: `.log`, the
bytes of the segment's file, and `.indexes`, its three index files one after the other. What no manifest names
is not in the log.

A manifest is a line of JSON and a line with the CRC-32C of the first. It is never changed: the next one has
the next number, and the one with the highest number counts.

Invariants, also of what `decode` returns: segments ascend, and none begins after the end of the one before
it; `start_offset` lies in the first, or is the end where there is none; `leader_epoch` never goes back. Who
may write into the store may write any manifest: names have their form, and numbers are in their bounds,
before anything uses them.

Pure. Source: KIP-405, whose metadata topic it replaces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Final, TypeAlias
from uuid import UUID

import msgspec
from crc32c import crc32c
from msgspec import Meta

from tidelog.protocol.records import BATCH_HEADER_SIZE

LOG_SUFFIX = ".log"
INDEXES_SUFFIX = ".indexes"
_FORMAT = 1
_NAME = re.compile(r"manifest-([0-9]{20})\.json")
MOST_MANIFEST_BYTES: Final = 64 << 20
"""About 200,000 segments."""
_INDEX_ENTRY_BYTES: Final = (8, 12, 34)
_Offset: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Timestamp: TypeAlias = Annotated[int, Meta(ge=-1, le=2**63 - 1)]
_Size: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Epoch: TypeAlias = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
_Crc: TypeAlias = Annotated[int, Meta(ge=0, le=2**32 - 1)]
_SegmentName: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9]{20}-[0-9]{1,10}-[0-9a-f]{32}\Z")]


class ManifestError(Exception):
    """A manifest cannot be understood, or contradicts itself."""


class CopiedSegment(msgspec.Struct, frozen=True):
    """One segment in remote storage. Sizes are bytes."""

    name: _SegmentName
    """Of its objects, without suffix: base offset, leader epoch, and what makes it unique."""
    base_offset: _Offset
    end_offset: _Offset
    size_bytes: _Size
    crc: _Crc
    """CRC-32C of the `.log` object."""
    index_sizes: tuple[_Size, _Size, _Size]
    """Of the indexes by offset, by time and of aborted transactions."""
    indexes_crc: _Crc
    max_timestamp: _Timestamp
    max_timestamp_offset: _Timestamp
    latest_ms: _Timestamp
    """The largest timestamp; if a batch has none, the time of the last write if that is later."""

    def is_older_than(self, moment_ms: int) -> bool:
        """Whether all records were written before `moment_ms`, by the rule of local segments."""
        return self.latest_ms < moment_ms

    @property
    def aborted_count(self) -> int:
        """How many aborted transactions have records here, or their markers."""
        return self.index_sizes[2] // _INDEX_ENTRY_BYTES[2]


class Manifest(msgspec.Struct, frozen=True):
    """Names the segments of one partition that are in remote storage."""

    number: _Offset
    topic: Annotated[str, Meta(max_length=249)]
    topic_id: UUID
    partition: _Size
    leader_epoch: _Epoch
    """Of the leader that wrote it."""
    start_offset: _Offset
    """Before it all is deleted."""
    end_offset: _Offset
    """After the last record that is in remote storage."""
    segments: tuple[CopiedSegment, ...] = ()
    epochs: tuple[tuple[_Epoch, _Offset], ...] = ()
    """(leader epoch, first offset), ascending, of the log up to `end_offset`."""
    format: int = _FORMAT

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.segments)

    def next(self, **changes: object) -> Manifest:
        """The manifest after this one."""
        return msgspec.structs.replace(self, number=self.number + 1, **changes)

    def with_copied(self, segment: CopiedSegment, epochs: Sequence[tuple[int, int]]) -> Manifest:
        """With a segment at the end. `epochs` are the local log's, which may begin later."""
        known = dict(self.epochs)
        for epoch, first_offset in epochs:
            if first_offset < segment.end_offset:
                known[epoch] = min(first_offset, known.get(epoch, first_offset))
        return self.next(
            segments=(*self.segments, segment),
            end_offset=segment.end_offset,
            epochs=tuple(sorted(known.items())),
        )

    def starting_at(self, offset: int) -> Manifest:
        """With nothing before `offset`."""
        start = max(self.start_offset, offset)
        return self.next(
            start_offset=start,
            end_offset=max(start, self.end_offset),
            segments=tuple(each for each in self.segments if each.end_offset > start),
        )

    def ending_at(self, offset: int) -> Manifest:
        """Without the segments that hold something from `offset` on."""
        kept = tuple(each for each in self.segments if each.end_offset <= offset)
        end = kept[-1].end_offset if kept else min(self.start_offset, offset)
        return self.next(
            start_offset=min(self.start_offset, end),
            end_offset=end,
            segments=kept,
            epochs=tuple(each for each in self.epochs if each[1] < end),
        )


def manifest_name(number: int) -> str:
    return f"manifest-{number:020d}.json"


def manifest_number(name: str) -> int | None:
    """The number of the manifest that an object is, None if it is none."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found and int(found[1]) < 2**63 else None


def segment_name(base_offset: int, leader_epoch: int, unique: UUID) -> str:
    return f"{base_offset:020d}-{leader_epoch}-{unique.hex}"


def encode(manifest: Manifest) -> bytes:
    line = msgspec.json.encode(manifest)
    return b"%s\n%08x\n" % (line, crc32c(line))


def decode(data: bytes) -> Manifest:
    """Raises ManifestError."""
    line, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % crc32c(line):
        raise ManifestError(f"the checksum is {rest[:20]!r}, expected {crc32c(line):08x}")
    try:
        manifest = msgspec.json.decode(line, type=Manifest)
    except msgspec.MsgspecError as error:
        raise ManifestError(str(error)) from None
    if manifest.format != _FORMAT:
        raise ManifestError(f"expected format {_FORMAT}, got {manifest.format}: a later version wrote it")
    reached = manifest.start_offset
    for each in manifest.segments:
        if not each.base_offset <= reached < each.end_offset:
            raise ManifestError(
                f"segment {each.name} has offsets {each.base_offset} to {each.end_offset} after {reached}"
            )
        _check_segment(each)
        reached = each.end_offset
    if reached != manifest.end_offset:
        raise ManifestError(f"its segments end at {reached}, it says {manifest.end_offset}")
    for (epoch, first), (next_epoch, next_first) in pairwise(manifest.epochs):
        if epoch >= next_epoch or first > next_first:
            raise ManifestError(
                f"leader epoch {epoch} begins at {first}, and {next_epoch} after it at {next_first}"
            )
    return manifest


def _check_segment(segment: CopiedSegment) -> None:
    if int(segment.name[:20]) != segment.base_offset:
        raise ManifestError(f"segment {segment.name} begins at {segment.base_offset}")
    if (
        segment.max_timestamp >= 0
        and not segment.base_offset <= segment.max_timestamp_offset < segment.end_offset
    ):
        raise ManifestError(f"segment {segment.name} has its latest record at {segment.max_timestamp_offset}")
    # Each entry is about one batch, the time index has one more at the end.
    most = segment.size_bytes // BATCH_HEADER_SIZE + 2
    for size, entry in zip(segment.index_sizes, _INDEX_ENTRY_BYTES, strict=True):
        if size % entry or size > most * entry:
            raise ManifestError(
                f"segment {segment.name} of {segment.size_bytes} bytes has an index of {size} bytes, expected"
                f" at most {most} entries of {entry}"
            )
