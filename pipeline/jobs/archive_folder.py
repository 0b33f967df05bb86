"""An archive's folder: one writer at a time, drafts separate from files, and files that appear as a whole.

Owns `_tidelog/` below the archive, which readers of Parquet and Delta ignore:
- `archive.json`: the format and version of the archive, made once;
- `origin.json`: the ids of the cluster and the topics that its records come from;
- `lock`: held by the run that writes; the kernel releases it whenever that process dies;
- `drafts/RUN/`: files that tasks write; those of dead attempts stay until the next run deletes them;
- the files of `pipeline.jobs.archive_log`.

Invariants: drafts and files are in one file system, so a rename makes a draft a file, completely or not at
all. Only the run that holds the lock deletes drafts, when no commit needs them any more.
"""

import json
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tidelog.pipeline.jobs.archive_files import DraftFile
from tidelog.pipeline.paths import local_path, try_lock
from tidelog.pipeline.source.offsets import OptionError, Place

OWN_FOLDER = "_tidelog"
_ORIGIN = "origin.json"
_VERSION = 1


class ArchiveError(RuntimeError):
    """The archive cannot continue without loss or duplicates. The message says why and what to do."""


class Archive(ABC):
    """A folder that holds the records of partitions, each once, up to an end offset per partition.

    Entering it takes the lock, recovers, and deletes old drafts.
    """

    kind = ""

    def __init__(self, path: str) -> None:
        self.root = folder_of(path)
        self.own = self.root / OWN_FOLDER
        self.drafts = self.own / "drafts" / uuid.uuid4().hex
        self._lock = -1

    def __enter__(self) -> Self:
        """Raises OptionError if the folder is no archive of this kind, ArchiveError if another run writes it
        or committed files are gone."""
        try:
            lock = try_lock(self.own)
        except OSError as error:
            raise OptionError(f"path: the archive cannot be written in {self.root}: {error}") from None
        if lock is None:
            raise ArchiveError(f"another run writes the archive in {self.root}: wait for its end")
        self._lock = lock
        try:
            sync_folder(self.root.parent)
            sync_folder(self.root)
            self._check_kind()
            self.recover()
            shutil.rmtree(self.own / "drafts", ignore_errors=True)
            self.drafts.mkdir(parents=True)
            # A commit names drafts, so their folders must survive a power cut, as the commit does.
            sync_folder(self.drafts.parent)
            sync_folder(self.own)
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.drafts, ignore_errors=True)
        os.close(self._lock)

    @abstractmethod
    def recover(self) -> None:
        """Finish the last commit of an earlier run. Raises ArchiveError if that is impossible."""

    @abstractmethod
    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The next offset of each partition that the archive holds."""

    @abstractmethod
    def commit(self, ends: Mapping[Place, int], files: Sequence[DraftFile]) -> None:
        """Add the files and move these partitions' ends: both or neither."""

    @abstractmethod
    def compact(self, rows_per_file: int, compression: str) -> int:
        """Join small files into files of at most about `rows_per_file`. Returns how many fewer there are."""

    @abstractmethod
    def missing(self) -> list[str]:
        """Files that the archive's log names and that do not exist."""

    def belong_to(self, cluster_id: str, topics: Mapping[str, str]) -> None:
        """Save the known ids of the cluster and the topics ("" is unknown) with the archive.

        Raises ArchiveError if it has records of another cluster, or of an earlier topic of that name.
        """
        origin = self.own / _ORIGIN
        before = read_json(origin) or {"cluster_id": "", "topics": {}}
        known: dict[str, str] = before["topics"]
        elsewhere = f"archive into another folder than {self.root}"
        if cluster_id and before["cluster_id"] not in ("", cluster_id):
            raise ArchiveError(
                f"the archive holds records of cluster {before['cluster_id']}, this one is {cluster_id}:"
                f" {elsewhere}"
            )
        for topic, topic_id in topics.items():
            if topic_id and known.get(topic, topic_id) != topic_id:
                raise ArchiveError(
                    f"topic {topic!r} was deleted and created again since it was archived: {elsewhere}"
                )
        merged = known | {topic: topic_id for topic, topic_id in topics.items() if topic_id}
        after = {"cluster_id": cluster_id or before["cluster_id"], "topics": merged}
        if after != before:
            replace_json(origin, after)

    def has_foreign_log(self) -> bool:
        """True if something other than `_tidelog` stores the archive's offsets."""
        return False

    def _check_kind(self) -> None:
        mine = {"format": self.kind, "version": _VERSION}
        marker = self.own / "archive.json"
        if (found := read_json(marker)) is None:
            stray = next(self.root.glob("topic=*/**/*.parquet"), None)
            if stray is not None and not self.has_foreign_log():
                raise OptionError(
                    f"{self.root} holds {stray.relative_to(self.root)}, but not the archive's log"
                    f" ({OWN_FOLDER}/): archive into another folder, or restore {OWN_FOLDER}/"
                )
            replace_json(marker, mine)
        elif found != mine:
            raise OptionError(
                f"{self.root} holds an archive in format {found.get('format')}, version"
                f" {found.get('version')}; expected {self.kind}, version {_VERSION}"
            )


def archived_topic_ids(root: Path) -> dict[str, str]:
    """The known ids of the topics that an archive's records come from."""
    origin = read_json(root / OWN_FOLDER / _ORIGIN)
    return {} if origin is None else dict(origin["topics"])


def folder_of(path: str) -> Path:
    """The folder that a setting names. Raises OptionError if it names none."""
    if (found := local_path(path)) is None:
        raise OptionError(
            f"{path}: an archive must be in a folder that driver and executors see as a path, not behind"
            f" {path.partition(':')[0]}:"
        )
    return found.absolute()


def publish(moves: Iterable[tuple[Path, Path]]) -> None:
    """Rename drafts to files in their folders ROOT/TOPIC/DATE. The names are durable when it returns.

    A draft may be a file already: a run that died may have renamed it without a sync. Raises ArchiveError if
    neither exists.
    """
    folders: set[Path] = set()
    for draft, target in moves:
        target.parent.mkdir(parents=True, exist_ok=True)
        if draft.exists():
            draft.rename(target)
        elif not target.exists():
            raise ArchiveError(
                f"{target} was being made when the last run died, and neither it nor its draft {draft}"
                " exists: restore one of them, or archive into another folder"
            )
        # The process that made the folders may have died before their names were durable.
        folders.update((target.parent, target.parent.parent, target.parent.parent.parent))
    for folder in sorted(folders):
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any] | None:
    """What the file holds, None if it does not exist."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return found


def replace_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the file's content as a whole, durably."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with draft.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)
