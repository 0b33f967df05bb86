"""Remote segments of tiered topics as a source: the broker gives the bounds, the object store the records.

Owns which part of a range lies in remote storage, how it is cut into pieces, and the reading of a piece by
ranges of an object. The manifest of the moment of the planning says which objects there are.

Invariants: bytes come in whole batches that were checked; a piece whose object is gone raises
FileNotFoundError before it gave anything: retention deleted it, and the broker knows from where on.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from tidelog.broker.storage.log_types import Read
from tidelog.broker.storage.segment import Slice
from tidelog.broker.tiering.remote_segments import BLOCK_BYTES, RemoteReader, RemoteSegment
from tidelog.pipeline.offsets import OffsetRange, Place, cut
from tidelog.pipeline.segments.segment_ranges import PIECE_BYTES
from tidelog.protocol.records import AbortedTransactions
from tidelog.remote_log.manifest import CopiedSegment, Manifest
from tidelog.remote_log.object_store import ObjectStore, open_store
from tidelog.remote_log.partition_objects import PartitionObjects

_INDEX_BYTES = 16 << 20


class RemotePlace(NamedTuple):
    """Where remote storage is, as the brokers' settings remote.storage.* name it."""

    url: str
    endpoint: str = ""
    region: str = ""

    def open(self) -> ObjectStore:
        """Raises ValueError."""
        return open_store(self.url, endpoint=self.endpoint, region=self.region)


class RemotePiece(NamedTuple):
    """What one task reads: `offsets`, all in one segment."""

    remote: RemotePlace
    path: str
    """Of the segment's objects, without suffix."""
    segment: CopiedSegment
    offsets: OffsetRange


def plan_remote(
    place: tuple[str, ...], ranges: Iterable[OffsetRange], topic_ids: Mapping[str, str]
) -> tuple[list[RemotePiece], list[OffsetRange]]:
    """The pieces of what is in remote storage at `place` (URL, endpoint, region), and the ranges that are
    left. Raises OSError, ManifestError, and ValueError for a place that cannot be."""
    remote = RemotePlace(*place)
    store = remote.open()
    manifests: dict[Place, Manifest | None] = {}
    pieces: list[RemotePiece] = []
    left: list[OffsetRange] = []
    for wanted in ranges:
        topic_id = topic_ids.get(wanted.topic)
        objects = None if topic_id is None else PartitionObjects(store, UUID(topic_id), wanted.partition)
        if objects is not None and wanted.place not in manifests:
            manifests[wanted.place] = objects.load()
        manifest = manifests.get(wanted.place)
        start = wanted.start
        if objects is not None and manifest is not None and wanted.start >= manifest.start_offset:
            for each in manifest.segments:
                end = min(each.end_offset, wanted.end)
                if each.base_offset <= start < end:
                    offsets = wanted._replace(start=start, end=end)
                    pieces += _cut(RemotePiece(remote, objects.path(each.name), each, offsets))
                    start = end
        if start < wanted.end:
            left.append(wanted._replace(start=start))
    return pieces, left


def _cut(piece: RemotePiece) -> Iterator[RemotePiece]:
    """Pieces of about the same number of offsets, none larger than about PIECE_BYTES."""
    segment, offsets = piece.segment, piece.offsets
    share = offsets.size / (segment.end_offset - segment.base_offset)
    count = min(max(-(-int(segment.size_bytes * share) // PIECE_BYTES), 1), offsets.size)
    return (piece._replace(offsets=each) for each in cut(offsets, count))


def read_remote(
    piece: RemotePiece, *, read_committed: bool
) -> Iterator[tuple[Slice, AbortedTransactions | None]]:
    """Whole batches, one after the other, and the filter of all of them, which knows what came before.

    Raises OSError, and CorruptSegmentError for damage.
    """
    reader = RemoteReader(
        piece.remote.open(), block_cache_bytes=2 * BLOCK_BYTES, index_cache_bytes=_INDEX_BYTES
    )
    segment = RemoteSegment(reader, piece.path, piece.segment)
    _, _, offset, end = piece.offsets
    batch_filter = None
    if read_committed and segment.count:
        batch_filter = AbortedTransactions(segment.aborted(offset, end)[0])
    found = segment.read(Read(offset, BLOCK_BYTES, segment.end_offset))
    while found is not None:
        yield found, batch_filter
        offset = found.next_offset
        if offset >= end:
            return
        found = segment.read(Read(offset, BLOCK_BYTES, segment.end_offset), found.end)
