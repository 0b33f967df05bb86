"""Moves the folders of partitions to their processes, while no broker process runs.

Owns the order, in which a crash at any point loses nothing: the checkpoints of a partition are durable in its
new place, then its folder is renamed, then they are removed from its old place; the catalog is changed last.
The next start finds each folder, and continues. It also removes what deleted topics and processes that are
gone left.

Invariants: no file of a partition is copied or changed; a partition with a folder in two places, of which
both hold records, is refused; folders with records that the catalog does not know are refused, as by every
start (`replicas.ownership`). A folder is clean only if all that was moved into it was.

Blocking.
"""

import json
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from tidelog.broker.cluster.catalog import Catalog
from tidelog.broker.replicas.ownership import unknown_folders
from tidelog.broker.storage.checkpoints import (
    BOOT_ID,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PRODUCER_IDS_BOUND,
    RECOVERY_POINTS,
    CheckpointError,
    TopicPartition,
    read_offsets,
    write_offsets,
)
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.folders import Folders, FoundPartition
from tidelog.broker.storage.manager import CLEAN_SHUTDOWN, LOCK_FILE, DataFolderError
from tidelog.broker.storage.process_folders import PROCESSES, folder_of, process_folders

_OFFSETS: Final = (RECOVERY_POINTS, LOG_START_OFFSETS)
_OWN_FILES: Final = (*_OFFSETS, BOOT_ID, CLEAN_SHUTDOWN, LOCK_FILE, META_PROPERTIES, PRODUCER_IDS_BOUND)
_Offsets = dict[TopicPartition, int]
logger = structlog.get_logger(__name__)


class _Place(NamedTuple):
    """A folder of a partition, and the process that has it."""

    process: int
    found: FoundPartition


def settle_folders(
    disk: Disk, data_dir: Path, catalog: Catalog, places: Mapping[tuple[UUID, int], int]
) -> None:
    """Bring every partition's folder to the process that `places` names. Raises DataFolderError, OSError."""
    folders = {process: Folders(path, disk) for process, path in process_folders(data_dir).items()}
    by_key: dict[tuple[UUID, int], list[_Place]] = defaultdict(list)
    for process, each in folders.items():
        needless = []
        for found in each.found():
            topic = catalog.topic(found.topic)
            is_known = topic is not None and topic.has_partition(found.partition)
            if found.topic_id in catalog.deleted or (not is_known and each.holds_nothing(_key(found))):
                needless.append(found)
            elif topic is None or not is_known:
                raise DataFolderError(unknown_folders(process_folders(data_dir)[process], [found]))
            else:
                by_key[topic.topic_id, found.partition].append(_Place(process, found))
        _remove(each, needless)
    moves: dict[tuple[int, int], list[TopicPartition]] = defaultdict(list)
    for key, held in by_key.items():
        source = _only_one(data_dir, folders, held, places[key])
        if source.process != places[key]:
            moves[source.process, places[key]].append(_key(source.found))
    for (source_process, target_process), keys in sorted(moves.items()):
        _move(disk, folder_of(data_dir, source_process), folder_of(data_dir, target_process), keys)
        logger.info(
            "partitions_moved", partitions=len(keys), from_process=source_process, to_process=target_process
        )


def remove_gone(disk: Disk, data_dir: Path, count: int) -> None:
    """Remove the folders of processes that are gone, which hold no partition any more. Raises OSError."""
    for process, path in process_folders(data_dir).items():
        if process < count:
            continue
        for doomed in Folders(path, disk).doomed():
            for name in disk.list_directory(doomed):
                disk.unlink(doomed / name)
            disk.remove_directory(doomed)
        for name in disk.list_directory(path):
            if name.removesuffix(".tmp") in _OWN_FILES:
                disk.unlink(path / name)
        try:
            disk.remove_directory(path)
        except OSError as error:
            advice = "check its contents, then remove it"
            logger.warning("process_folder_left", path=str(path), error=str(error), advice=advice)


def remove_all(disk: Disk, data_dir: Path) -> None:
    """Nothing is left of several processes: one serves alone from now on. Raises OSError."""
    parent = data_dir / PROCESSES
    for name in disk.list_directory(parent):
        with suppress(OSError):
            disk.unlink(parent / name)
    disk.remove_directory(parent)
    disk.fsync_directory(data_dir)


def _key(found: FoundPartition) -> TopicPartition:
    return found.topic, found.partition


def _remove(folders: Folders, found: Sequence[FoundPartition]) -> None:
    for each in found:
        folders.set_aside(folders.path(_key(each)))
    if found:
        folders.sync()


def _only_one(data_dir: Path, folders: Mapping[int, Folders], held: list[_Place], wanted: int) -> _Place:
    """The place that counts; a further one that never held a record is removed."""
    ordered = sorted(held, key=lambda place: (place.process != wanted, place.process))
    full = [place for place in ordered if not folders[place.process].holds_nothing(_key(place.found))]
    if len(full) > 1:
        paths = [folder_of(data_dir, place.process) / "-".join(map(str, _key(place.found))) for place in full]
        raise DataFolderError(
            f"{paths[0]} and {paths[1]} both hold records of one partition; move away the one that does not "
            "belong here"
        )
    kept = full[0] if full else ordered[0]
    for place in ordered:
        if place is not kept:
            _remove(folders[place.process], [place.found])
    return kept


def _move(disk: Disk, source: Path, target: Path, keys: Sequence[TopicPartition]) -> None:
    moving = set(keys)
    is_new = not disk.exists(target) or not any(disk.exists(target / name) for name in _OFFSETS)
    disk.make_directory(target)
    disk.fsync_directory(target.parent)
    source_offsets = {name: _offsets(disk, source / name) for name in _OFFSETS}
    is_clean = disk.exists(source / CLEAN_SHUTDOWN) and None not in source_offsets.values()
    if not is_clean:
        with suppress(FileNotFoundError):
            disk.unlink(target / CLEAN_SHUTDOWN)
            disk.fsync_directory(target)
    for name in _OFFSETS:
        moved, _ = _divided(source_offsets[name], moving)
        _, kept = _divided(_offsets(disk, target / name), moving)
        write_offsets(disk, target / name, kept | moved)
    if is_clean and is_new:
        disk.replace_file(target / CLEAN_SHUTDOWN, [json.dumps({"version": 0}).encode()])
    for topic, partition in keys:
        name = f"{topic}-{partition}"
        disk.rename(source / name, target / name)
    disk.fsync_directory(target)
    disk.fsync_directory(source)
    for name in _OFFSETS:
        if source_offsets[name]:
            write_offsets(disk, source / name, _divided(source_offsets[name], moving)[1])


def _divided(offsets: _Offsets | None, keys: Container[TopicPartition]) -> tuple[_Offsets, _Offsets]:
    """Those of `keys`, and the others."""
    known = (offsets or {}).items()
    return {key: at for key, at in known if key in keys}, {key: at for key, at in known if key not in keys}


def _offsets(disk: Disk, path: Path) -> _Offsets | None:
    """The contents of a checkpoint; None if it cannot be understood."""
    try:
        return read_offsets(disk, path)
    except CheckpointError as error:
        advice = "the logs of the partitions in it are read from their starts, this once"
        logger.error("checkpoint_damaged", file=str(path), error=str(error), advice=advice)
        return None
