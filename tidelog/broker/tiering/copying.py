"""One closed segment becomes two objects of remote storage.

Blocking. Raises OSError: objects may be left then, which no manifest names.
"""

from collections.abc import Callable, Iterator
from uuid import uuid4

from crc32c import crc32c

from tidelog.broker.storage.local_segment import LocalSegment
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.remote_log.manifest import INDEXES_SUFFIX, LOG_SUFFIX, CopiedSegment, segment_name
from tidelog.remote_log.partition_objects import PartitionObjects

_PIECE_BYTES = 1 << 20


def copy_segment(
    objects: PartitionObjects,
    log: PartitionLog,
    segment: LocalSegment,
    leader_epoch: int,
    is_wanted: Callable[[], bool],
) -> CopiedSegment:
    """The copy's entry in the manifest. Raises OSError too once it is not wanted any more. All transactions
    with records in it have ended, so that its index can name all aborted ones, also if their markers come
    later."""
    name = segment_name(segment.base_offset, leader_epoch, uuid4())
    size, end_offset = segment.tail
    crc = 0

    def pieces() -> Iterator[memoryview]:
        nonlocal crc
        for position in range(0, size, _PIECE_BYTES):
            if not is_wanted():
                raise OSError(f"{segment.path}: its copy is no longer needed")
            piece = segment.read_bytes(position, min(_PIECE_BYTES, size - position))
            if len(piece) < min(_PIECE_BYTES, size - position):
                raise OSError(f"{segment.path} is shorter than {size} bytes")
            crc = crc32c(piece, crc)
            yield piece

    offsets, times = segment.offset_index.whole(), segment.time_index.whole()
    aborted = segment.transaction_index.whole() + log.aborted_across(segment)
    indexes = offsets + times + aborted
    objects.store.put(objects.path(name + INDEXES_SUFFIX), [indexes])
    objects.store.put(objects.path(name + LOG_SUFFIX), pieces())
    # Once a manifest names them, the local segment may be deleted.
    objects.require(name + INDEXES_SUFFIX, len(indexes))
    objects.require(name + LOG_SUFFIX, size)
    return CopiedSegment(
        name=name,
        base_offset=segment.base_offset,
        end_offset=end_offset,
        size_bytes=size,
        crc=crc,
        index_sizes=(len(offsets), len(times), len(aborted)),
        indexes_crc=crc32c(indexes),
        max_timestamp=segment.max_timestamp,
        max_timestamp_offset=segment.max_timestamp_offset,
        latest_ms=segment.latest_ms,
    )
