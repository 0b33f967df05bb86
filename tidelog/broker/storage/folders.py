"""The partitions' folders within a data folder: their names and topic ids, how they are made and removed.

Owns their names (`topic-partition`, as Kafka's) and the topic id that each carries in partition.metadata.

Invariants:
- a folder with another topic's id is never used. `make`, for new partitions, renames it, because its topic
  was deleted. `open`, for existing partitions, changes nothing and raises;
- `make` does not make the new name and id durable. `sync` does so once for all new names, before the first
  folder is used; the first flush of the log does it for the id's file (see `FlushWork`).

Blocking.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

import structlog

from tidelog.broker.storage.checkpoints import (
    PARTITION_METADATA,
    CheckpointError,
    TopicPartition,
    read_topic_id,
    write_topic_id,
)
from tidelog.broker.storage.disk import FULL, Disk
from tidelog.broker.storage.local_segment import LOG_SUFFIX
from tidelog.broker.storage.log_config import LogConfig

_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]*)")
DELETE_SUFFIX = "-delete"
_LONGEST_NAME = 255
"""What file systems allow; a topic's name may take 249 of them."""
logger = structlog.get_logger(__name__)


class ForeignFolderError(OSError):
    """The folder of a partition says that it is another topic's, or nothing that can be understood."""


class FoundPartition(NamedTuple):
    """A partition's folder on the disk; the id is None when its metadata is missing or damaged."""

    topic: str
    partition: int
    topic_id: UUID | None


class NewPartitions(NamedTuple):
    """Partitions of one topic that are to be made, with the settings of their logs."""

    topic: str
    topic_id: UUID
    partitions: Sequence[int]
    config: LogConfig

    @property
    def keys(self) -> list[TopicPartition]:
        return [(self.topic, partition) for partition in self.partitions]


class MadeFolder(NamedTuple):
    """A partition's folder that can be used; `is_new` when there was none of this topic before."""

    path: Path
    is_new: bool


class Folders:
    """Finds, makes and opens the partitions' folders within one data folder, and sets them aside."""

    def __init__(self, data_dir: Path, disk: Disk) -> None:
        self._data_dir = data_dir
        self._disk = disk

    def path(self, key: TopicPartition) -> Path:
        return self._data_dir / f"{key[0]}-{key[1]}"

    def found(self) -> list[FoundPartition]:
        """The partitions that have a folder here. Raises OSError."""
        found = []
        for name in self._disk.list_directory(self._data_dir):
            match = _FOLDER.fullmatch(name)
            folder = self._data_dir / name
            if match is not None and self._disk.is_directory(folder):
                topic_id = self._topic_id(folder)
                found.append(FoundPartition(match["topic"], int(match["partition"]), topic_id))
        return found

    def holds_nothing(self, key: TopicPartition) -> bool:
        """Whether no record was ever in a partition's folder: at most one segment, the first, and empty."""
        folder = self.path(key)
        logs = [name for name in self._disk.list_directory(folder) if name.endswith(LOG_SUFFIX)]
        if logs not in ([], [f"{0:020d}{LOG_SUFFIX}"]):
            return False
        for name in logs:
            fd = self._disk.open(folder / name, os.O_RDONLY)
            try:
                return self._disk.size(fd) == 0
            finally:
                self._disk.close(fd)
        return True

    def make(self, key: TopicPartition, topic_id: UUID) -> MadeFolder:
        """A partition's folder with the topic's id, made if there is none. Raises OSError."""
        folder = self.path(key)
        if self._disk.is_directory(folder):
            if self._topic_id(folder) == topic_id:
                return MadeFolder(folder, is_new=False)
            self.set_aside(folder)
        self._disk.make_directory(folder)
        write_topic_id(self._disk, folder, topic_id)
        return MadeFolder(folder, is_new=True)

    def open(self, key: TopicPartition, topic_id: UUID) -> MadeFolder:
        """The folder of an existing partition, made if it is missing. Raises OSError, ForeignFolderError."""
        folder = self.path(key)
        if not self._disk.exists(folder):
            return self.make(key, topic_id)
        try:
            known_id = read_topic_id(self._disk, folder)
        except CheckpointError as error:
            raise ForeignFolderError(f"expected topic_id {topic_id}, got none: {error}") from error
        if known_id is None:
            # What a power cut leaves, if nothing lies beside it: the file is durable before the first record.
            if not self.holds_nothing(key):
                logger.error(
                    "partition_metadata_missing",
                    folder=folder.name,
                    topic_id=str(topic_id),
                    advice="it is written again; check the records if the folder may be another topic's",
                )
            write_topic_id(self._disk, folder, topic_id)
        elif known_id != topic_id:
            raise ForeignFolderError(
                f"{folder / PARTITION_METADATA}: the folder is that of topic_id {known_id}; in the catalog"
                f" {key[0]} has topic_id {topic_id}"
            )
        return MadeFolder(folder, is_new=False)

    def exists(self, key: TopicPartition) -> bool:
        return self._disk.is_directory(self.path(key))

    def sync(self) -> None:
        """Make the names durable. Raises OSError."""
        self._disk.fsync_directory(self._data_dir)

    def set_aside(self, folder: Path) -> None:
        """Rename a folder so that `doomed` finds it; where the disk has no space for a name, remove it here.

        Raises OSError.
        """
        tail = f".{uuid4().hex}{DELETE_SUFFIX}"
        try:
            self._disk.rename(folder, folder.with_name(folder.name[: _LONGEST_NAME - len(tail)] + tail))
        except OSError as error:
            if error.errno not in FULL:
                raise
            # The file with the topic id is removed last, so that a start can identify what is left.
            names = sorted(self._disk.list_directory(folder), key=PARTITION_METADATA.__eq__)
            for name in names:
                self._disk.unlink(folder / name)
            self._disk.remove_directory(folder)

    def doomed(self) -> list[Path]:
        """Folders that were set aside."""
        names = self._disk.list_directory(self._data_dir)
        doomed = [self._data_dir / name for name in names if name.endswith(DELETE_SUFFIX)]
        return [path for path in doomed if self._disk.is_directory(path)]

    def _topic_id(self, folder: Path) -> UUID | None:
        try:
            return read_topic_id(self._disk, folder)
        except CheckpointError:
            return None
