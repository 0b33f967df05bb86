"""An archive of plain Parquet files, exact for any reader: each visible file was committed, once.

Owns the archive's log, `_tidelog/commits/N.json`. A commit names its drafts, the files that they become, and
the end offset of every partition. It is made by linking a complete file to a name that must be free. At that
moment the records belong to the archive. Only then are the drafts renamed, and `_tidelog/published.json` says
when all of them are.

Why this is exact, whenever a run is killed:
- Before the link, there are drafts that no reader sees. The next run deletes them and reads the same offsets
  again, because only the log says which offsets the archive holds.
- After the link, the next run first renames the remaining drafts.
- A repeated rename finds no draft, but the file.
Names and ranges depend on nothing that Spark keeps: there is no checkpoint that could be lost, or be older or
newer than the files. If a link's name is taken, there is another writer, and nothing has been changed yet.

A commit also names the last file of each partition, from whichever commit. The log knows that these files,
and those of the commits that are kept, should exist (`missing_files`). Three cases are not reported: deleted
folders of a topic's oldest dates, files whose offsets are all in another file of that date
(`pipeline.jobs.archive_compaction`), and files in a folder that holds Parquet files with other names.
"""

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tidelog.pipeline.jobs.archive_compaction import compact
from tidelog.pipeline.jobs.archive_files import DraftFile, offsets_in_name
from tidelog.pipeline.jobs.archive_folder import (
    OWN_FOLDER,
    Archive,
    ArchiveError,
    publish,
    read_json,
    replace_json,
    sync_folder,
)
from tidelog.pipeline.source.micro_batches import from_json
from tidelog.pipeline.source.offsets import Place, to_json

_COMMITS = "commits"
_COMMITS_KEPT = 16


class ParquetArchive(Archive):
    """A folder of Parquet files with a log."""

    kind = "parquet"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._commits = self.own / _COMMITS
        self._published = self.own / "published.json"
        self._number = 0
        self._ends: dict[Place, int] = {}
        self._last: dict[Place, str] = {}

    def recover(self) -> None:
        self._commits.mkdir(exist_ok=True)
        numbers = self._numbers()
        if not numbers:
            return
        self._number = numbers[-1]
        last = json.loads(self._commit_file(self._number).read_text())
        self._ends = from_json(last["ends"])
        self._last = last_files(last.get("last", ()))
        published = read_json(self._published) or {"number": 0}
        if published["number"] >= self._number:
            return
        publish((self.root / draft, self.root / name) for draft, name in last["files"])
        self._mark_published()

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        return {place: self._ends[place] for place in places if place in self._ends}

    def commit(self, ends: Mapping[Place, int], files: Sequence[DraftFile]) -> None:
        after = self._ends | dict(ends)
        last = self._last | last_files(each.name for each in files)
        drafts = [Path(each.draft) for each in files]
        moves = [
            (str(draft.relative_to(self.root)), each.name) for draft, each in zip(drafts, files, strict=True)
        ]
        for folder in {draft.parent for draft in drafts}:
            sync_folder(folder)
        self._link(
            {
                "number": self._number + 1,
                "ends": to_json(after),
                "files": moves,
                "last": sorted(last.values()),
            }
        )
        self._number += 1
        self._ends, self._last = after, last
        publish((draft, self.root / each.name) for draft, each in zip(drafts, files, strict=True))
        self._mark_published()
        for old in self._numbers()[:-_COMMITS_KEPT]:
            self._commit_file(old).unlink()

    def compact(self, rows_per_file: int, compression: str) -> int:
        # All commits are published: none of them still needs one of these files by its name.
        return compact(self.root, self.drafts, rows_per_file, compression)

    def missing(self) -> list[str]:
        return missing_files(self.root)

    def _link(self, content: Mapping[str, object]) -> None:
        target = self._commit_file(self._number + 1)
        draft = self._commits / f".{uuid.uuid4().hex}"
        with draft.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a rename, a link fails if the file exists.
            os.link(draft, target)
        except FileExistsError:
            raise ArchiveError(
                f"{target} was made by another run while this one wrote the archive: start only one run"
            ) from None
        finally:
            draft.unlink()
        sync_folder(self._commits)

    def _mark_published(self) -> None:
        replace_json(self._published, {"number": self._number})

    def _commit_file(self, number: int) -> Path:
        return self._commits / _name(number)

    def _numbers(self) -> list[int]:
        return _numbers(self._commits)


def published_ends(root: Path) -> dict[Place, int] | None:
    """The offsets up to which the files of an archive are complete; None if it has no log.

    Needs no lock. Files with later offsets may exist and are not counted yet.
    """
    published = read_json(root / OWN_FOLDER / "published.json")
    if published is None:
        return {} if (root / OWN_FOLDER / "archive.json").exists() else None
    commit = read_json(root / OWN_FOLDER / _COMMITS / _name(published["number"]))
    if commit is None:
        raise ArchiveError(f"commit {published['number']} is missing from {root / OWN_FOLDER}: restore it")
    return from_json(commit["ends"])


def missing_files(root: Path) -> list[str]:
    """Files that the kept part of the archive's log names and that do not exist. Needs no lock."""
    published = read_json(root / OWN_FOLDER / "published.json") or {"number": 0}
    told: set[str] = set()
    for number in _numbers(commits := root / OWN_FOLDER / _COMMITS):
        # A running archive may delete its oldest commit meanwhile.
        if number <= published["number"] and (commit := read_json(commits / _name(number))) is not None:
            told.update(name for _, name in commit["files"])
            told.update(commit.get("last", ()))
    return sorted(name for name in told if _is_missed(root / name))


def last_files(names: Iterable[str]) -> dict[Place, str]:
    """For each partition the file with its last offset."""
    last: dict[Place, tuple[int, str]] = {}
    for name in names:
        path = Path(name)
        if (offsets := offsets_in_name(path.name)) is None:
            raise ValueError(f"{name} is not the name of an archive's file")
        partition, _, end = offsets
        place = Place(path.parts[0].removeprefix("topic="), partition)
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


def _numbers(commits: Path) -> list[int]:
    return sorted(int(path.stem) for path in commits.glob("*.json") if path.stem.isdecimal())


def _name(number: int) -> str:
    return f"{number:020}.json"
