"""An archive of plain Parquet files with a log, exact for any reader: each visible file was committed, once.

Owns `_tidelog/` below the archive, which readers of Parquet ignore:
- `archive.json`: the version of the archive, made once;
- `origin.json`: the ids of the cluster and the topics that its records come from;
- `lock`: held by the run that writes; the kernel releases it when that process ends;
- `drafts/RUN/`: files that tasks write; those of dead runs stay until the next run deletes them;
- `commits/N.json`: the log. A commit names its drafts, the files that they become, and the end offset of
  every partition.

A commit is made by linking a complete file to a name that must be free. Only then are the drafts renamed,
each completely or not at all, because drafts and files are in one file system.

Why this is exact, whenever a run is killed:
- Before the link, there are drafts that no reader sees. The next run deletes them and reads the same offsets
  again, because only the log says which offsets the archive holds.
- After the link, the next run first renames the remaining drafts. Only then does it delete drafts.
Names and ranges depend on nothing that Spark keeps: there is no checkpoint that could be lost, or be older or
newer than the files. If a link's name is taken, there is another writer, and nothing has been changed yet.

A commit also names the last file of each partition, from whichever commit. The log knows that these files,
and those of the commits that are kept, should exist (`missing_files`).
"""

import os
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tidelog.pipeline.durable_files import create_json, read_json, replace_json, sync
from tidelog.pipeline.jobs.archive_files import ArchiveError, DraftFile, offsets_in_name
from tidelog.pipeline.offsets import OptionError, Place, to_json
from tidelog.pipeline.paths import shared_folder, try_lock
from tidelog.pipeline.source.micro_batches import from_json

OWN_FOLDER = "_tidelog"
_ORIGIN = "origin.json"
_KIND = {"format": "parquet", "version": 1}
_COMMITS_KEPT = 16


class Archive:
    """A folder that holds the records of partitions, each once, up to an end offset per partition (`ends`).

    Entering it takes the lock, finishes the last commit, and deletes old drafts.
    """

    def __init__(self, path: str) -> None:
        self.root = shared_folder("path", path)
        self.drafts = self.root / OWN_FOLDER / "drafts" / uuid.uuid4().hex
        self.ends: dict[Place, int] = {}
        self._own = self.root / OWN_FOLDER
        self._commits = self._own / "commits"
        self._number = 0
        self._last: dict[Place, str] = {}
        self._lock = -1

    def __enter__(self) -> Self:
        """Raises OptionError if the folder is no archive, ArchiveError if another run writes it."""
        try:
            lock = try_lock(self._own)
        except OSError as error:
            raise OptionError(f"path: the archive cannot be written in {self.root}: {error}") from None
        if lock is None:
            raise ArchiveError(f"another run writes the archive in {self.root}: wait for its end")
        self._lock = lock
        try:
            self._check_kind()
            self._recover()
            shutil.rmtree(self.drafts.parent, ignore_errors=True)
            self.drafts.mkdir(parents=True)
            # A commit names drafts, so their folders must survive a power cut, as the commit does.
            for folder in (self.drafts.parent, self._own, self.root, self.root.parent):
                sync(folder)
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:  # Otherwise a commit may still need its drafts.
            shutil.rmtree(self.drafts, ignore_errors=True)
        os.close(self._lock)

    def commit(self, ends: Mapping[Place, int], files: Sequence[DraftFile]) -> None:
        """Add the durable files and move these partitions' ends: both or neither."""
        after = self.ends | dict(ends)
        last = self._last | last_files(each.name for each in files)
        moves = [(str(each.draft.relative_to(self.root)), each.name) for each in files]
        sync(self.drafts)
        self._link({"ends": to_json(after), "files": moves, "last": sorted(last.values())})
        self._number += 1
        self.ends, self._last = after, last
        publish(self.root, moves)
        for old in _numbers(self._commits)[:-_COMMITS_KEPT]:
            _commit_file(self._commits, old).unlink()

    def belong_to(self, cluster_id: str, topics: Mapping[str, str]) -> None:
        """Save the known ids of the cluster and the topics ("" is unknown) with the archive.

        Raises ArchiveError if it has records of another cluster, or of an earlier topic of that name.
        """
        origin = self._own / _ORIGIN
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

    def _check_kind(self) -> None:
        marker = self._own / "archive.json"
        if (found := read_json(marker)) is None:
            if (stray := next(self.root.glob("topic=*/**/*.parquet"), None)) is not None:
                raise OptionError(
                    f"{self.root} holds {stray.relative_to(self.root)}, but not the archive's log"
                    f" ({OWN_FOLDER}/): archive into another folder, or restore {OWN_FOLDER}/"
                )
            replace_json(marker, _KIND)
        elif found != _KIND:
            raise OptionError(
                f"{self.root} holds an archive of another version ({found}): archive into another folder"
            )

    def _recover(self) -> None:
        self._commits.mkdir(exist_ok=True)
        if not (numbers := _numbers(self._commits)):
            return
        self._number = numbers[-1]
        last = read_json(_commit_file(self._commits, self._number))
        self.ends = from_json(last["ends"])
        self._last = last_files(last["last"])
        publish(self.root, last["files"])

    def _link(self, content: Mapping[str, object]) -> None:
        target = _commit_file(self._commits, self._number + 1)
        if not create_json(target, content):
            raise ArchiveError(
                f"{target} was made by another run while this one wrote the archive: start only one run"
            )


def publish(root: Path, moves: Iterable[Sequence[str]]) -> None:
    """Rename drafts to files, both named by their paths below `root`. The names are durable when it returns.

    A draft may be a file already: a run that died may have renamed it without a sync.
    """
    folders: set[Path] = set()
    for draft, name in moves:
        target = root / name
        if (root / draft).exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            (root / draft).rename(target)
        folders.update((target.parent, target.parent.parent, root))
    for folder in sorted(folders):
        if folder.is_dir():
            sync(folder)


def published_ends(root: Path) -> dict[Place, int] | None:
    """The offsets up to which the files of an archive are complete; None if it has no log.

    Needs no lock. Files with later offsets may exist and are not counted yet.
    """
    commits = root / OWN_FOLDER / "commits"
    for number in reversed(_numbers(commits)):
        commit = read_json(_commit_file(commits, number))
        if commit is not None and not any((root / draft).exists() for draft, _ in commit["files"]):
            return from_json(commit["ends"])
    return {} if (root / OWN_FOLDER / "archive.json").exists() else None


def missing_files(root: Path) -> list[str]:
    """Files that the kept part of the archive's log names and that do not exist. Needs no lock."""
    named: set[str] = set()
    for number in _numbers(commits := root / OWN_FOLDER / "commits"):
        # A running archive may delete its oldest commit meanwhile.
        if (commit := read_json(_commit_file(commits, number))) is not None:
            waiting = {name for draft, name in commit["files"] if (root / draft).exists()}
            named |= {*(name for _, name in commit["files"]), *commit.get("last", ())} - waiting
    return sorted(name for name in named if _is_missed(root / name))


def archived_topic_ids(root: Path) -> dict[str, str]:
    """The known ids of the topics that an archive's records come from."""
    origin = read_json(root / OWN_FOLDER / _ORIGIN)
    return {} if origin is None else dict(origin["topics"])


def last_files(names: Iterable[str]) -> dict[Place, str]:
    """For each partition the file with its last offset."""
    last: dict[Place, tuple[int, str]] = {}
    for name in names:
        if (offsets := offsets_in_name(Path(name).name)) is None:
            raise ValueError(f"{name} is not the name of an archive's file")
        partition, _, end = offsets
        place = Place(Path(name).parts[0].removeprefix("topic="), partition)
        last[place] = max(last.get(place, (-1, "")), (end, name))
    return {place: name for place, (_, name) in last.items()}


def _is_missed(file: Path) -> bool:
    if file.exists():
        return False
    date, topic = file.parent, file.parent.parent
    if not date.is_dir():
        return any(each.name < date.name for each in topic.glob("date=*"))
    found = [offsets_in_name(each.name) for each in date.glob("[!._]*.parquet")]
    partition, first, last = offsets_in_name(file.name) or (-1, 0, 0)
    return not any(
        each is None or (each[0] == partition and each[1] <= first and last <= each[2]) for each in found
    )


def _commit_file(commits: Path, number: int) -> Path:
    return commits / f"{number:020}.json"


def _numbers(commits: Path) -> list[int]:
    return sorted(int(path.stem) for path in commits.glob("*.json") if path.stem.isdecimal())
