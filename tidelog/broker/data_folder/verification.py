"""Searches a whole data folder for damage, while no broker runs on it.

Owns the order: the locks, the files beside the partitions (clean-shutdown marker, checkpoints, `cluster.db`),
each partition's folder, and whether catalog and folders agree. The folders of several processes
(`storage.process_folders`) belong to the data folder. Invariants: nothing is changed, not even by
SQLite; a broker cannot start meanwhile (the lock is held, shared with other verifications).

Blocking.
"""

from collections.abc import Callable, Collection, Mapping, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from tidelog.broker.cluster.catalog import Topic
from tidelog.broker.cluster.choice import Source, choose, copy_path
from tidelog.broker.cluster.facts import StoredCluster
from tidelog.broker.cluster.sqlite_store import read_store
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.cluster_stores import STORE_FILE
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.configuration.topic_configs import TopicConfigs
from tidelog.broker.replicas.ownership import locked
from tidelog.broker.storage import checkpoints
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.folders import Folders
from tidelog.broker.storage.local_segment import LOG_SUFFIX
from tidelog.broker.storage.manager import CLEAN_SHUTDOWN, LOCK_FILE, DataFolderError
from tidelog.broker.storage.process_folders import PROCESSES, process_folders
from tidelog.broker.storage.verification.findings import Finding, Findings, Severity
from tidelog.broker.storage.verification.partition import PartitionCheck, PartitionFacts

__all__ = ["Finding", "FolderTotals", "Severity", "verify_folder"]


@dataclass(slots=True)
class FolderTotals:
    """What was looked at, and what was found."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    log_bytes: int = 0
    snapshots: int = 0
    damage: int = 0
    warnings: int = 0
    unreported: int = 0
    """Of these, how many were not handed to `report`, for their file had too many."""


def verify_folder(
    data_dir: Path,
    report: Callable[[Finding], None],
    progress: Callable[[int, int], None] | None = None,
    disk: Disk | None = None,
) -> FolderTotals:
    """Check everything in `data_dir`. `report` gets each finding at once.

    `progress` gets the bytes of logs read since the last call and the bytes there are in all. Raises
    DataFolderError when a broker runs there or it is no data folder, and OSError.
    """
    disk = disk or Disk()
    _check_is_data_folder(disk, data_dir)
    try:
        with ExitStack() as locks:
            for place in process_folders(data_dir).values():
                locks.enter_context(locked(disk, place, shared=True))
            return _Verification(disk, data_dir, Findings(report), progress).run()
    except DataFolderError as error:
        raise DataFolderError(f"{error}, or verify a copy: files that grow cannot be checked") from error


@dataclass(eq=False)
class _Verification:
    _disk: Disk
    _data_dir: Path
    _findings: Findings
    _progress: Callable[[int, int], None] | None
    _totals: FolderTotals = field(default_factory=FolderTotals, init=False)

    def run(self) -> FolderTotals:
        places = process_folders(self._data_dir)
        folders = {place: _partition_folders(self._disk, place) for place in places.values()}
        is_clean = self._disk.exists(self._data_dir / CLEAN_SHUTDOWN)
        cluster = self._cluster(any(folders.values()), is_clean)
        if cluster is not None:
            node_ids = {cluster.node_id + process for process in places}
            self._check_folders_exist(
                cluster, node_ids, set[checkpoints.TopicPartition]().union(*folders.values())
            )
        self._totals.log_bytes = sum(
            self._log_bytes(each) for held in folders.values() for each in held.values()
        )
        for place, held in folders.items():
            self._place(place, held, cluster)
        totals = self._totals
        totals.damage = self._findings.counts[Severity.DAMAGE]
        totals.warnings = self._findings.counts[Severity.WARNING]
        totals.unreported = self._findings.unreported
        return totals

    def _place(
        self, place: Path, folders: Mapping[checkpoints.TopicPartition, Path], cluster: StoredCluster | None
    ) -> None:
        """The partitions of one process."""
        is_clean = self._disk.exists(place / CLEAN_SHUTDOWN)
        must_exist = is_clean and bool(folders)
        points = self._offsets(place, checkpoints.RECOVERY_POINTS, must_exist)
        starts = self._offsets(place, checkpoints.LOG_START_OFFSETS, must_exist)
        settings = TopicConfigs(BrokerSettings(BrokerConfig()))
        for key, folder in folders.items():
            topic = cluster.catalog.topic(key[0]) if cluster is not None else None
            if cluster is not None:
                topic = self._check_identity(folder, key, topic, cluster.catalog.deleted)
            configs = topic.configs if topic is not None else {}
            facts = PartitionFacts(
                is_clean,
                points.get(key),
                starts.get(key),
                topic.partitions[key[1]].leader_epoch if topic is not None else None,
                cluster.catalog.next_producer_id if cluster is not None else None,
                int(settings.value(configs, "index.interval.bytes")),
                checkpoints.is_same_boot(self._disk, place),
            )
            self._partition(folder, facts)

    def _offsets(self, place: Path, name: str, must_exist: bool) -> Mapping[checkpoints.TopicPartition, int]:
        path = place / name
        shown = str(path.relative_to(self._data_dir))
        if must_exist and not self._disk.exists(path):
            self._findings.damage(shown, "the file is missing after a clean shutdown")
        try:
            offsets = checkpoints.read_offsets(self._disk, path)
        except (checkpoints.CheckpointError, OSError) as error:
            self._findings.damage(shown, _without_path(error, path))
            return {}
        for (topic, partition), offset in offsets.items():
            if not self._disk.exists(place / f"{topic}-{partition}"):
                self._findings.warning(
                    shown, f"it names {topic}-{partition}, which has no folder", found=offset
                )
        return offsets

    def _cluster(self, has_partitions: bool, is_clean: bool) -> StoredCluster | None:
        path = self._data_dir / STORE_FILE
        copy_name = copy_path(path).name
        try:
            database, copy = read_store(path)
            source = choose(path, database, copy, was_clean=is_clean)
        except (StoreError, OSError) as error:
            self._findings.damage(STORE_FILE, f"a broker refuses to start: {_without_path(error, path)}")
            return None
        if source is Source.NOTHING:
            if has_partitions and self._is_among_others():
                self._findings.warning(
                    STORE_FILE,
                    "the file is missing, as with a catalog in etcd (cluster.store): the folders are "
                    "not compared with the catalog. A broker without cluster.store refuses to start",
                )
            elif has_partitions:
                self._findings.damage(
                    STORE_FILE,
                    f"the file is missing, and {copy_name} too: a broker refuses to start, unless its "
                    "cluster.store is elsewhere",
                )
            return None
        if source is Source.COPY:
            self._findings.damage(
                STORE_FILE,
                f"the file is {database.state}: the next start of a broker restores it from {copy_name}",
            )
            return copy.cluster
        if copy.problem:
            self._findings.damage(
                copy_name, f"{copy.problem}; the next start of a broker writes it again from {STORE_FILE}"
            )
        elif copy.is_absent:
            self._findings.warning(copy_name, "the file is missing: the next start of a broker writes it")
        return database.cluster

    def _is_among_others(self) -> bool:
        """Whether the broker of this folder had its catalog elsewhere, and not in a process beside it."""
        if (self._data_dir / PROCESSES).exists():
            return False
        try:
            return checkpoints.read_starts(self._disk, self._data_dir) is not None
        except checkpoints.CheckpointError:
            return False

    def _check_folders_exist(
        self, cluster: StoredCluster, node_ids: Set[int], found: Collection[checkpoints.TopicPartition]
    ) -> None:
        for topic in cluster.catalog.topics():
            for index, assignment in enumerate(topic.partitions):
                is_here = not node_ids.isdisjoint(assignment.replicas)
                if is_here and (topic.name, index) not in found:
                    self._findings.damage(
                        f"{topic.name}-{index}",
                        f"the folder is missing, and {STORE_FILE} assigns the partition to this broker",
                    )

    def _check_identity(
        self, folder: Path, key: checkpoints.TopicPartition, topic: Topic | None, deleted: Collection[UUID]
    ) -> Topic | None:
        """The topic that a folder belongs to by its metadata; None when that is not in the catalog."""
        name = f"{folder.name}/{checkpoints.PARTITION_METADATA}"
        is_known = topic is not None and topic.has_partition(key[1])
        topic_id, problem = None, ""
        try:
            topic_id = checkpoints.read_topic_id(self._disk, folder)
        except (checkpoints.CheckpointError, OSError) as error:
            text = _without_path(error, folder / checkpoints.PARTITION_METADATA)
            problem = f"{text}; a broker does not open the partition"
        if topic_id in deleted:
            text = "it belongs to a topic that was deleted: the next start of a broker removes it"
            self._findings.warning(folder.name, text)
            return None
        if topic is None or not is_known:
            self._report_unknown(folder, key)
            return None
        if problem:
            self._findings.damage(name, problem)
        elif topic_id is None:
            # A power cut may remove it from a partition before its first record.
            self._findings.add(
                Severity.DAMAGE if self._log_bytes(folder) else Severity.WARNING,
                name,
                "the file is missing or empty",
                expected=f"the topic id {topic.topic_id}",
            )
        elif topic_id != topic.topic_id:
            self._findings.damage(
                name,
                f"it names another topic than {STORE_FILE}: a broker does not open the partition",
                expected=topic.topic_id,
                found=topic_id,
            )
            return None
        return topic

    def _report_unknown(self, folder: Path, key: checkpoints.TopicPartition) -> None:
        text = f"no partition of {STORE_FILE}"
        if Folders(folder.parent, self._disk).holds_nothing(key):
            text += ", and no record was ever in it: the next start of a broker removes it"
            self._findings.warning(folder.name, text)
            return
        text += ", and it holds records: a broker refuses to start; see `tidelog storage rebuild-catalog`"
        self._findings.damage(folder.name, text)

    def _partition(self, folder: Path, facts: PartitionFacts) -> None:
        done = 0

        def advance(size: int) -> None:
            nonlocal done
            done += size
            if self._progress is not None and done >= 1 << 20:
                self._progress(done, self._totals.log_bytes)
                done = 0

        try:
            found = PartitionCheck(self._disk, folder, facts, self._findings, advance).run()
        except OSError as error:
            self._findings.damage(folder.name, f"cannot be read: {error.strerror or error}")
            return
        if self._progress is not None:
            self._progress(done, self._totals.log_bytes)
        totals = self._totals
        totals.partitions += 1
        totals.segments += found.segments
        totals.batches += found.batches
        totals.records += found.records
        totals.snapshots += found.snapshots

    def _log_bytes(self, folder: Path) -> int:
        return sum(
            (folder / name).stat().st_size
            for name in self._disk.list_directory(folder)
            if name.endswith(LOG_SUFFIX)
        )


def _partition_folders(disk: Disk, data_dir: Path) -> dict[checkpoints.TopicPartition, Path]:
    """Folders named as Kafka names a partition's, by topic and partition."""
    found: dict[checkpoints.TopicPartition, Path] = {}
    for name in disk.list_directory(data_dir):
        topic, dash, number = name.rpartition("-")
        is_number = number.isascii() and number.isdigit() and str(int(number)) == number
        if dash and topic and is_number and disk.is_directory(data_dir / name):
            found[topic, int(number)] = data_dir / name
    return dict(sorted(found.items()))


def _check_is_data_folder(disk: Disk, data_dir: Path) -> None:
    if not data_dir.is_dir():
        raise DataFolderError(f"{data_dir} is no folder")
    names = disk.list_directory(data_dir)
    if any(name.endswith(LOG_SUFFIX) and name[: -len(LOG_SUFFIX)].isdigit() for name in names):
        raise DataFolderError(
            f"{data_dir} is the folder of one partition; give the data folder around it, {data_dir.parent}"
        )
    if not {LOCK_FILE, STORE_FILE, checkpoints.RECOVERY_POINTS} & set(names) and not _partition_folders(
        disk, data_dir
    ):
        raise DataFolderError(
            f"{data_dir} is not the data folder of a broker: it has neither topics nor {STORE_FILE}"
        )


def _without_path(error: Exception, path: Path) -> str:
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    return str(error).replace(f"{path}: ", "")
