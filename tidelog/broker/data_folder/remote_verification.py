"""Checks the remote segments of the partitions in a data folder, while nothing is changed.

Owns what manifest, objects and local files have to agree on: each object that the manifest names exists, with
its size and checksum, and its batches are whole and in order; no offset between remote and local segments is
missing. Objects that no manifest names are a warning: the next leader deletes them.

Blocking. Raises OSError if the store cannot be asked.
"""

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from crc32c import crc32c

from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.folders import Folders
from tidelog.broker.storage.integrity import CorruptSegmentError
from tidelog.broker.storage.log_types import Read
from tidelog.broker.storage.process_folders import process_folders
from tidelog.broker.storage.swap import log_files
from tidelog.broker.storage.verification.findings import Findings
from tidelog.broker.tiering.remote_segments import BLOCK_BYTES, RemoteReader, RemoteSegment
from tidelog.remote_log.manifest import LOG_SUFFIX, CopiedSegment, ManifestError
from tidelog.remote_log.object_store import ObjectStore
from tidelog.remote_log.partition_objects import PartitionObjects

_INDEX_BYTES = 16 << 20


@dataclass(slots=True)
class RemoteTotals:
    """How many remote segments and bytes were checked."""

    segments: int = 0
    log_bytes: int = 0


def verify_remote(data_dir: Path, store: ObjectStore, findings: Findings) -> RemoteTotals:
    """Check what `store` has of each partition that has a folder in `data_dir`."""
    disk, totals = Disk(), RemoteTotals()
    reader = RemoteReader(store, block_cache_bytes=BLOCK_BYTES, index_cache_bytes=_INDEX_BYTES)
    for place in process_folders(data_dir).values():
        folders = Folders(place, disk)
        for found in folders.found():
            if found.topic_id is not None:
                bases = log_files(disk, folders.path((found.topic, found.partition)))
                local_start = min(bases, default=None)
                _verify(reader, found.topic_id, found.partition, local_start, findings, totals)
    return totals


def _verify(
    reader: RemoteReader,
    topic_id: UUID,
    partition: int,
    local_start: int | None,
    findings: Findings,
    totals: RemoteTotals,
) -> None:
    objects = PartitionObjects(reader.store, topic_id, partition)
    try:
        manifest = objects.load()
    except ManifestError as error:
        findings.damage(objects.path("manifest"), str(error))
        return
    for name in objects.unnamed(manifest):
        findings.warning(objects.path(name), "no manifest names this object; the next leader deletes it")
    if manifest is None:
        return
    for each in manifest.segments:
        problem = _problem_of(reader, objects.path(each.name), each)
        if problem:
            findings.damage(objects.path(each.name + LOG_SUFFIX), problem)
        totals.segments += 1
        totals.log_bytes += each.size_bytes
    if manifest.segments and local_start is not None and local_start > manifest.end_offset:
        findings.damage(
            objects.path("manifest"),
            "the records between remote and local segments are missing",
            expected=f"local segments from offset {manifest.end_offset}",
            found=local_start,
        )


def _problem_of(reader: RemoteReader, path: str, copied: CopiedSegment) -> str:
    """Why a copy differs from the manifest, or nothing."""
    segment = RemoteSegment(reader, path, copied)
    offset, position, crc = copied.base_offset, 0, 0
    try:
        while position < copied.size_bytes:
            found = segment.read(Read(offset, BLOCK_BYTES, copied.end_offset), position)
            if found is None:
                return f"no batch can be read at byte {position} of {copied.size_bytes}"
            crc = crc32c(found.data, crc)
            offset, position = found.next_offset, found.end
    except FileNotFoundError:
        return "an object that the manifest names is missing"
    except CorruptSegmentError as error:
        return str(error)
    if crc != copied.crc:
        return f"the checksum is {crc:08x}, the manifest says {copied.crc:08x}"
    return ""
