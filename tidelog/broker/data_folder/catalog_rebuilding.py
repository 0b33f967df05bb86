"""Builds a new catalog from the folders in a data folder, when the catalog was lost or is an older one.

Owns the contents of the new catalog. Names, ids and numbers of partitions are those of the folders. Settings,
the ids of deleted topics and what no folder says are taken from the whole parts of the old catalog.
Producer ids begin above every id in the files, plus a reserve for producers with an id that never wrote.

Invariants: `plan` changes nothing; `write` keeps every file of the old catalog under another name; `notes`
says, in words for the user, what could not be found out. No topic of the old catalog is left out.

Blocking. The folder has to be locked (`data_folder.locked`).
"""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

from tidelog.broker.cluster.catalog import (
    INTERNAL_TOPIC_CONFIGS,
    INTERNAL_TOPICS,
    NO_ID,
    Catalog,
    PartitionAssignment,
    Topic,
    check_topic_name,
)
from tidelog.broker.cluster.choice import Found, choose, copy_path
from tidelog.broker.cluster.facts import StoredCluster
from tidelog.broker.cluster.sqlite_store import read_store, set_aside, write_store
from tidelog.broker.cluster.store import StoreError, new_cluster_id
from tidelog.broker.cluster_stores import STORE_FILE
from tidelog.broker.coordinator.producer_ids import above_all_issued
from tidelog.broker.storage import checkpoints
from tidelog.broker.storage.checkpoints import TopicPartition
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.folders import Folders, FoundPartition
from tidelog.broker.storage.manager import CLEAN_SHUTDOWN, DataFolderError
from tidelog.broker.storage.process_folders import process_folders
from tidelog.broker.storage.seen_producer_ids import highest_producer_id_below
from tidelog.protocol.errors import ApiError


@dataclass(slots=True)
class Rebuilt:
    """A catalog to be written, and what the user should know of it."""

    cluster: StoredCluster
    is_needed: bool
    """Whether the old catalog cannot be used, or lacks facts that the folders hold."""
    notes: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """After `write`: under which names the old files are."""


class CatalogRebuilding:
    """Plans and writes a new catalog from the folders in one data folder."""

    def __init__(self, data_dir: Path, disk: Disk | None = None) -> None:
        self._data_dir = data_dir
        self._disk = disk or Disk()
        self._folders = {
            process: Folders(place, self._disk) for process, place in process_folders(data_dir).items()
        }
        self._process_of: dict[TopicPartition, int] = {}
        """Which process has the folder of a partition (`storage.process_folders`)."""
        self._notes: list[str] = []

    def plan(self, *, cluster_id: str | None = None, node_id: int | None = None) -> Rebuilt:
        """What would be written. `cluster_id`, `node_id`: for a folder in which no file names them.

        Raises DataFolderError if the folders contradict each other, OSError.
        """
        old, newest_revision, is_usable = self._old_catalog()
        identity = self._identity(old, cluster_id, node_id)
        topics = {topic.name: topic for topic in old.catalog.topics()} if old is not None else {}
        deleted = old.catalog.deleted if old is not None else {}
        by_name: dict[str, list[FoundPartition]] = defaultdict(list)
        for process, folders_of_process in self._folders.items():
            for found in folders_of_process.found():
                if found.topic_id not in deleted and self._is_name(found):
                    by_name[found.topic].append(found)
                    self._process_of[found.topic, found.partition] = process
        rebuilt = dict(topics)
        for name, folders in by_name.items():
            rebuilt[name] = self._topic(name, folders, topics.get(name), identity.node_id)
        self._notes += [
            f"{name}: in the old catalog, without any folder; it is kept, and begins empty"
            for name in topics.keys() - by_name.keys()
        ]
        if old is None:
            self._note_if_among_others()
            self._notes.append(
                "users, ACLs, quotas and the brokers' configuration are only in the catalog: all are lost"
            )
        next_producer_id, is_behind = self._next_producer_id(old)
        is_same = is_usable and rebuilt == topics and not is_behind
        catalog = Catalog(
            identity.cluster_id,
            rebuilt.values(),
            next_producer_id,
            newest_revision + 1,
            deleted,
            # No incarnation: the folders are those that count, whatever the old catalog says.
            [each._replace(incarnation=NO_ID) for each in old.catalog.brokers.values()]
            if old is not None
            else (),
            old.catalog.broker_configs if old is not None else None,
            old.catalog.acls if old is not None else (),
            old.catalog.users if old is not None else None,
        )
        return Rebuilt(StoredCluster(catalog, identity.node_id), not is_same, self._notes)

    def write(self, rebuilt: Rebuilt) -> None:
        """Replace the old catalog by it. Raises OSError, StoreError."""
        database = self._data_dir / STORE_FILE
        rebuilt.kept = [kept.name for path in (database, copy_path(database)) if (kept := set_aside(path))]
        write_store(database, rebuilt.cluster)
        identity = checkpoints.FolderIdentity(rebuilt.cluster.catalog.cluster_id, rebuilt.cluster.node_id)
        checkpoints.write_identity(self._disk, self._data_dir, identity)

    def _old_catalog(self) -> tuple[StoredCluster | None, int, bool]:
        """What is left of it, the newest revision in any file, and whether a broker would use it."""
        path = self._data_dir / STORE_FILE
        try:
            database, copy = read_store(path)
        except StoreError as error:
            self._notes.append(str(error))
            return None, 0, False
        try:
            was_clean = self._disk.exists(self._data_dir / CLEAN_SHUTDOWN)
            choose(path, database, copy, was_clean=was_clean)
            is_usable = not (database.is_absent and copy.is_absent)
        except StoreError:
            is_usable = False
        for name, found in ((path.name, database), (copy_path(path).name, copy)):
            if found.cluster is None:
                self._notes.append(f"{name} is {found.state}{_rest_of(found)}")
        left = [each for each in (database.cluster, copy.cluster or copy.salvaged) if each is not None]
        old = max(left, key=lambda each: each.catalog.revision, default=None)
        newest = max(database.newest_revision, copy.newest_revision, 0)
        return old, newest, is_usable

    def _note_if_among_others(self) -> None:
        with suppress(checkpoints.CheckpointError):
            if len(self._folders) == 1 and checkpoints.read_starts(self._disk, self._data_dir) is not None:
                self._notes.append(
                    "this folder is of one broker among others. If their catalog is in etcd, restore etcd "
                    "from a backup instead: a broker over etcd does not read what is written here, and "
                    "the folder knows its own partitions only"
                )

    def _identity(
        self, old: StoredCluster | None, cluster_id: str | None, node_id: int | None
    ) -> checkpoints.FolderIdentity:
        try:
            noted = checkpoints.read_identity(self._disk, self._data_dir)
        except checkpoints.CheckpointError as error:
            self._notes.append(str(error))
            noted = None
        if old is not None:
            held = checkpoints.FolderIdentity(old.catalog.cluster_id, old.node_id)
            if noted not in (None, held):
                self._notes.append(
                    f"{checkpoints.META_PROPERTIES} differs; it is written again from the old catalog"
                )
            return held
        if noted is not None:
            return noted
        if cluster_id is None:
            cluster_id = new_cluster_id()
            self._notes.append("no file has the folder's cluster.id: it gets a new one")
        return checkpoints.FolderIdentity(cluster_id, 1 if node_id is None else node_id)

    def _is_name(self, found: FoundPartition) -> bool:
        try:
            check_topic_name(found.topic)
        except ApiError as error:
            self._notes.append(f"{found.topic}-{found.partition}: left out. {error}")
            return False
        return True

    def _topic(self, name: str, folders: list[FoundPartition], old: Topic | None, node_id: int) -> Topic:
        topic_id = self._topic_id(name, folders, old)
        is_old = old is not None and old.topic_id == topic_id
        known = old.partitions if old is not None and is_old else ()
        indexes = {found.partition for found in folders}
        count = max(max(indexes) + 1, len(known))
        missing = sorted(set(range(count)) - indexes)
        if missing:
            self._notes.append(f"{name}: partitions {missing} have no folder; they begin empty")
        if not is_old and name not in INTERNAL_TOPICS:
            self._notes.append(
                f"{name}: its settings are lost, so the broker's apply; set others with `tidelog topic alter`"
            )
        partitions = tuple(
            self._assignment(name, index, known[index] if index < len(known) else None, node_id)
            for index in range(count)
        )
        configs = INTERNAL_TOPIC_CONFIGS.get(name, {})
        return Topic(name, topic_id, partitions, dict(old.configs if old is not None and is_old else configs))

    def _topic_id(self, name: str, folders: Iterable[FoundPartition], old: Topic | None) -> UUID:
        by_id: dict[UUID, list[str]] = defaultdict(list)
        for found in folders:
            if found.topic_id is None:
                self._notes.append(
                    f"{name}-{found.partition}: no topic id can be read; taken as this topic's. "
                    "If the broker does not open it, remove its partition.metadata"
                )
            else:
                by_id[found.topic_id].append(f"{name}-{found.partition}")
        if len(by_id) > 1:
            which = "; ".join(f"{topic_id}: {', '.join(names)}" for topic_id, names in by_id.items())
            raise DataFolderError(
                f"the folders of topic {name} have different topic ids ({which}). Move away the folders "
                "that do not belong to it, or remove partition.metadata from those that do"
            )
        if by_id:
            (topic_id,) = by_id
            if old is not None and old.topic_id != topic_id:
                self._notes.append(f"{name}: has another topic id than in the old catalog")
            return topic_id
        return old.topic_id if old is not None else uuid4()

    def _assignment(
        self, name: str, index: int, old: PartitionAssignment | None, node_id: int
    ) -> PartitionAssignment:
        process = self._process_of.get((name, index), 0)
        path = self._folders[process].path((name, index)) / checkpoints.LEADER_EPOCHS
        try:
            epochs = checkpoints.read_leader_epochs(self._disk, path)
        except checkpoints.CheckpointError as error:
            self._notes.append(str(error))
            epochs = []
        epoch = max([0, *(epoch for epoch, _ in epochs)])
        if old is not None:
            return old._replace(leader_epoch=max(epoch, old.leader_epoch))
        own = node_id + process
        return PartitionAssignment(own, epoch, (own,), (own,))

    def _next_producer_id(self, old: StoredCluster | None) -> tuple[int, bool]:
        """The next id to give, and whether the old catalog would give one that a log knows."""
        known = old.catalog.next_producer_id - 1 if old is not None else -1
        highest = highest_producer_id_below(self._disk, self._data_dir)
        if old is not None and highest > known:
            self._notes.append(
                f"the folders contain producer id {highest}, the old catalog assigned none above {known}"
            )
        return above_all_issued(max(known, highest)), highest > known


def _rest_of(found: Found) -> str:
    if found.salvaged is None:
        return ""
    return f"; up to revision {found.salvaged.catalog.revision} it can be read"
