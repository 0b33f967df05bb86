"""What of a partition's log is in remote storage.

Owns the manifest, its format and its changes, and the names of objects. A segment is two objects: `.log`, the
bytes of the segment's file, and `.indexes`, its three index files one after the other. What no manifest names
is not in the log.

A manifest is a line of JSON and a line with the CRC-32C of the first. It is never changed: the next one has
the next number, and the one with the highest number counts.

Invariants, also of what `decode` returns: segments ascend, and none begins after the end of the one before
it; `start_offset` lies in the first, or is the end where there is none; `leader_epoch` never goes back.

Pure. Source: KIP-405, whose metadata topic it replaces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

import msgspec
from crc32c import crc32c

LOG_SUFFIX = ".log"
INDEXES_SUFFIX = ".indexes"
_FORMAT = 1
_NAME = re.compile(r"manifest-(\d{20})\.json")


class ManifestError(Exception):
    """A manifest cannot be understood, or contradicts itself."""


class CopiedSegment(msgspec.Struct, frozen=True):
    """One segment in remote storage. Sizes are bytes."""

    name: str
    """Of its objects, without suffix: base offset, leader epoch, and what makes it unique."""
    base_offset: int
    end_offset: int
    size_bytes: int
    crc: int
    """CRC-32C of the `.log` object."""
    index_sizes: tuple[int, int, int]
    """Of the indexes by offset, by time and of aborted transactions."""
    indexes_crc: int
    max_timestamp: int
    max_timestamp_offset: int
    latest_ms: int
    """The largest timestamp; if a batch has none, the time of the last write if that is later."""

    def is_older_than(self, moment_ms: int) -> bool:
        """Whether all records were written before `moment_ms`, by the rule of local segments."""
        return self.latest_ms < moment_ms

    @property
    def aborted_count(self) -> int:
        """How many aborted transactions have records here, or their markers."""
        return self.index_sizes[2] // 34


class Manifest(msgspec.Struct, frozen=True):
    """Of one partition."""

    number: int
    topic: str
    topic_id: UUID
    partition: int
    leader_epoch: int
    """Of the leader that wrote it."""
    start_offset: int
    """Before it all is deleted."""
    end_offset: int
    """After the last record that is in remote storage."""
    segments: tuple[CopiedSegment, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()
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
    return int(found[1]) if found else None


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
        reached = each.end_offset
    if reached != manifest.end_offset:
        raise ManifestError(f"its segments end at {reached}, it says {manifest.end_offset}")
    return manifest
