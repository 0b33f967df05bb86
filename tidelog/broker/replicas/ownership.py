"""Whether a data folder and a catalog belong together, and which partition folders the catalog does not know.

Owns both checks at the start of a broker. `meta.properties` (Kafka's) names the cluster and the broker that
own the folder. It is written once the first catalog exists; from then on a catalog has to exist.

Invariants: what is removed never held a record, belongs to a topic that the catalog remembers as deleted, or
to a partition that was moved to other brokers since its last record, as the leader epoch shows. Any other
folder without a partition of this broker means that the catalog was lost, or is an older one. Then nothing is
changed and the start fails.

Blocking.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import structlog

from tidelog.broker.cluster.catalog import Catalog
from tidelog.broker.storage import checkpoints
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.folders import FoundPartition
from tidelog.broker.storage.manager import LOCK_FILE, DataFolderError, LogManager

_NAMED = 5
"""How many folders a message names."""
_STARTS_KEPT: Final = 100
logger = structlog.get_logger(__name__)


def is_in_use(disk: Disk, data_dir: Path) -> bool:
    """Whether a catalog was in this folder before. Raises OSError."""
    return disk.exists(data_dir / checkpoints.META_PROPERTIES)


def claim(disk: Disk, data_dir: Path, identity: checkpoints.FolderIdentity) -> None:
    """Write the identity of the folder's owner, or check it. Raises DataFolderError, OSError."""
    path = data_dir / checkpoints.META_PROPERTIES
    try:
        found = checkpoints.read_identity(disk, data_dir)
    except checkpoints.CheckpointError as error:
        advice = "nothing to do: it is written again from the catalog; check the disk"
        logger.warning("meta_properties_damaged", error=str(error), advice=advice)
        found = None
    if found is None:
        checkpoints.write_identity(disk, data_dir, identity)
    elif found != identity:
        raise DataFolderError(
            f"{path} says that the folder belongs to cluster.id {found.cluster_id}, node.id {found.node_id}, "
            f"but the catalog is of cluster.id {identity.cluster_id}, and this broker is node.id "
            f"{identity.node_id}; set the data.dir, node.id and cluster.store that belong together, or put "
            "back the catalog of this folder"
        )


def starts_of(disk: Disk, data_dir: Path) -> checkpoints.FolderStarts:
    """The folder's id and the starts with it that may be the last one; a new id where it has none.

    Raises OSError.
    """
    with suppress(checkpoints.CheckpointError):  # `claim` reports it.
        found = checkpoints.read_starts(disk, data_dir)
        if found is not None:
            return found
    return checkpoints.FolderStarts(uuid4(), ())


def note_start(
    disk: Disk,
    data_dir: Path,
    identity: checkpoints.FolderIdentity,
    starts: checkpoints.FolderStarts,
    registered: UUID | None,
    incarnation: UUID,
) -> None:
    """Let the folder know of a start, durably, before the catalog does. Raises OSError.

    The one that the catalog knows as `registered` stays, and the newest ones: commits of those after it may
    still arrive, and a catalog that was put back knows one before it.
    """
    newest = starts.incarnations[-_STARTS_KEPT:]
    kept = {registered} & set(starts.incarnations[:-_STARTS_KEPT])
    noted = (*filter(None, kept), *newest, incarnation)
    lock_place = disk.place_of(data_dir / LOCK_FILE)
    starts = starts._replace(incarnations=noted, lock_place=lock_place)
    checkpoints.write_identity(disk, data_dir, identity, starts)


def ended_start(disk: Disk, data_dir: Path, starts: checkpoints.FolderStarts) -> UUID | None:
    """The last start with this folder, whose process has certainly ended; None if that is not certain.

    The caller holds the lock of the folder. A process keeps its lock until it ends, and all of one machine
    see it: so who gets the same lock, since the machine was started, comes after that process. A copy of the
    folder has a lock of its own, which proves nothing.
    """
    place = disk.place_of(data_dir / LOCK_FILE)
    return starts.incarnations[-1] if place and place == starts.lock_place and starts.incarnations else None


def settle_strays(logs: LogManager, catalog: Catalog, node_id: int | None = None) -> None:
    """Remove the folders that are not needed. Opening a known partition checks whether its folder fits.

    `node_id` is that of this broker where partitions are moved to others, else None. Raises DataFolderError
    where folders hold records of partitions that the catalog does not know, or not here; OSError.
    """
    needless: list[FoundPartition] = []
    unknown: list[FoundPartition] = []
    for found in logs.found_partitions():
        topic = catalog.topic(found.topic)
        is_known = topic is not None and topic.has_partition(found.partition)
        # Another broker may have created a topic of this name after this one ended while it did.
        is_other = topic is not None and found.topic_id not in (None, topic.topic_id)
        is_needless = (is_other or not is_known) and logs.holds_nothing(found)
        if topic is not None and is_known and not is_other and node_id is not None:
            assigned = topic.partitions[found.partition]
            is_known = node_id in assigned.replicas
            # A removal of replicas begins an epoch. With an older catalog others begin (`unclean_recovery`).
            is_moved = not is_known and bool(assigned.isr or assigned.elr)
            is_needless |= is_moved and logs.latest_epoch(found) < assigned.leader_epoch
        if found.topic_id in catalog.deleted or is_needless:
            needless.append(found)
        elif not is_known:
            unknown.append(found)
    if unknown:
        raise DataFolderError(unknown_folders(logs.data_dir, unknown))
    if needless:
        logs.remove(needless)


def unknown_folders(data_dir: Path, unknown: list[FoundPartition]) -> str:
    """The message on folders that hold records and that the catalog does not know."""
    names = [f"{found.topic}-{found.partition}" for found in unknown]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"{data_dir} holds records of partitions that the catalog does not know: "
        f"{', '.join(names[:_NAMED])}{more}. The catalog was lost or is an older one, or the folders come "
        "from elsewhere; put back the catalog that belongs here, or let `tidelog storage rebuild-catalog "
        f"{data_dir}` make one that knows them, or move these folders away if their records are not needed"
    )


@contextmanager
def locked(disk: Disk, data_dir: Path, *, shared: bool) -> Iterator[None]:
    """Lock a folder against brokers meanwhile. Raises DataFolderError if a broker has it, OSError.

    With `shared`, a folder that was copied without its lock file is read without a lock.
    """
    path = data_dir / LOCK_FILE
    if shared and not disk.exists(path):
        yield
        return
    fd = disk.open(path, os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT)
    try:
        if not disk.lock(fd, shared=shared):
            raise DataFolderError(f"a broker is using {data_dir}; stop it first")
        yield
    finally:
        disk.close(fd)
