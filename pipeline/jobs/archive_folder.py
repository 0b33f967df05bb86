"""An archive's folder: one writer at a time, drafts apart from files, and files that appear as a whole.

Owns `_tidelog/` below the archive, which readers of Parquet and Delta pass over:
- `archive.json`: what the archive is, made once;
- `origin.json`: the ids of the cluster and the topics that its records come from;
- `lock`: held by the run that writes; the kernel lets go of it when that process dies, however it does;
- `drafts/RUN/`: files that tasks write, and those of dead attempts until the next run sweeps them out;
- what `pipeline.jobs.archive_log` keeps.

Invariants: drafts and files lie in one file system, so that a draft becomes a file by a rename, complete or
not at all. A draft is swept out only by who holds the lock, when no commit needs it any more.
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
    """The archive cannot go on without losing or doubling records; the message says why and what would do."""


class Archive(ABC):
    """A folder that holds the records of partitions, each once, up to an offset of each.

    To be entered, which takes the lock, recovers, and sweeps.
    """

    kind = ""

    def __init__(self, path: str) -> None:
        self.root = folder_of(path)
        self.own = self.root / OWN_FOLDER
        self.drafts = self.own / "drafts" / uuid.uuid4().hex
        self._lock = -1

    def __enter__(self) -> Self:
        """Raises OptionError where the folder is none of an archive of this kind, ArchiveError where another
        run writes it, or where what was written is gone."""
        try:
            lock = try_lock(self.own)
        except OSError as error:
            raise OptionError(f"path: no archive can be kept in {self.root}: {error}") from None
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
            # A commit names drafts, so the way to them must outlast a power cut as it does.
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
        """Finish what an earlier run has committed. Raises ArchiveError where that cannot be."""

    @abstractmethod
    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Of those partitions that the archive got to, the offset that is to come next."""

    @abstractmethod
    def commit(self, ends: Mapping[Place, int], files: Sequence[DraftFile]) -> None:
        """Take the files in, and with them move these partitions' ends: both or nothing."""

    @abstractmethod
    def missing(self) -> list[str]:
        """Files that should be there, as far as what tells how far the archive is knows of them."""

    def belong_to(self, cluster_id: str, topics: Mapping[str, str]) -> None:
        """Keep the ids of the cluster and of topics, those that are known ("" for others), with the archive.

        Raises ArchiveError where it has records of another cluster, or of an earlier topic by that name.
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
        """True where something beside `_tidelog` tells how far the archive is."""
        return False

    def _check_kind(self) -> None:
        mine = {"format": self.kind, "version": _VERSION}
        marker = self.own / "archive.json"
        if (found := read_json(marker)) is None:
            stray = next(self.root.glob("topic=*/**/*.parquet"), None)
            if stray is not None and not self.has_foreign_log():
                raise OptionError(
                    f"{self.root} holds {stray.relative_to(self.root)}, but not what tells how far an archive"
                    f" is ({OWN_FOLDER}/): archive into another folder, or bring {OWN_FOLDER}/ back"
                )
            replace_json(marker, mine)
        elif found != mine:
            raise OptionError(
                f"{self.root} holds an archive in format {found.get('format')}, version"
                f" {found.get('version')}; asked for is {self.kind}, version {_VERSION}"
            )


def archived_topic_ids(root: Path) -> dict[str, str]:
    """The ids of the topics that an archive's records come from, where they are known."""
    origin = read_json(root / OWN_FOLDER / _ORIGIN)
    return {} if origin is None else dict(origin["topics"])


def folder_of(path: str) -> Path:
    """The folder that a setting names. Raises OptionError for what is none."""
    if (found := local_path(path)) is None:
        raise OptionError(
            f"{path}: an archive must be in a folder that driver and executors see as a path, not behind"
            f" {path.partition(':')[0]}:"
        )
    return found.absolute()


def publish(moves: Iterable[tuple[Path, Path]]) -> None:
    """Rename drafts to files in their folders ROOT/TOPIC/DATE; when it returns, the disk knows.

    A draft that is a file already stays so: a run that died may have renamed it, and not told the disk.
    Raises ArchiveError where neither is there.
    """
    folders: set[Path] = set()
    for draft, target in moves:
        target.parent.mkdir(parents=True, exist_ok=True)
        if draft.exists():
            draft.rename(target)
        elif not target.exists():
            raise ArchiveError(
                f"{target} was being made when the last run died, and neither it nor its draft {draft} is"
                " there: restore one of both, or archive into another folder"
            )
        # Whoever made the folders may have died before the disk knew them.
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
    """What the file holds, None where there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return found


def replace_json(path: Path, content: Mapping[str, Any]) -> None:
    """Put `content` there, as a whole and durable."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with draft.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)
