"""The session of a mirror: what outlives its runs, as small files in one folder.

Owns the folder, by default `tidelog-session` inside the stream's checkpoint:
- `session.json`: the session's id and its plan, made by the driver when the first write is planned;
- `place.json`: where the folder was then, by which a copy of it is recognised;
- `owner.json`: the query and the destination's cluster it belongs to, made by the first task;
- `producers/`: for each source partition its producer id, before that id is first used;
- `batches/`: for each batch of the stream the facts under which it is written, made by the commit before it;
- `claims/`: which task of a batch writes which source partition;
- `counts/`: what each run has done, for reports;
- `refused/`: source partitions of which a task was refused because another one had rows of them too;
- `lock`: held by the job that runs with it (`pipeline.jobs.copies`);
- `topics/`: the ids of the topics that are read and written, for one that is made anew is another topic.

Invariants: a file is complete or absent, and who comes first makes it: nothing but counts and place is ever
overwritten, so every task, attempt and run reads the same. The facts of a batch never change, whoever runs
it. Driver and executors must see the folder as the same path; a task that sees another one refuses. Nothing
here uses the network.
"""

import hashlib
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tidelog.client.types import TopicPartition
from tidelog.pipeline.source.offsets import NO_TOPIC_ID, OptionError, Place

_FORMAT = 1
# Spark replays one batch at most, the last.
_BATCHES_KEPT = 8
_LONGEST_NAME = 200
_CLAIMS_KEPT_SECONDS = 86_400
_MOST_WAIT_SECONDS = 60
_POLL_SECONDS = 0.01
MAX_EPOCH = 32_767

Side = Literal["from", "to"]


class MirrorError(RuntimeError):
    """The mirror cannot go on without losing or doubling rows; the message says why and what would do."""


class StoredPlace(NamedTuple):
    """What a destination partition holds of one source partition: the last record's position there, the
    number that the next one gets, and an offset at or before which that next one will lie."""

    producer_epoch: int
    next_sequence: int
    end_offset: int
    position: int


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """One source partition: its producer, the epoch, the last offset read, and its places."""

    producer_id: int
    producer_epoch: int
    last_offset: int = -1
    places: Mapping[TopicPartition, StoredPlace] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What holds for all executions of one batch. `run` is the one whose epochs these are."""

    run: str | None = None
    sources: Mapping[Place, SourceFacts] = field(default_factory=dict)


class MirrorCounts(NamedTuple):
    """Rows that were read, stored, and skipped because they were stored before, in so many batches."""

    read: int = 0
    written: int = 0
    skipped: int = 0
    batches: int = 0


def next_facts(before: BatchFacts, run: str, written: Mapping[Place, SourceFacts]) -> BatchFacts:
    """The facts of the batch after the one that `run` wrote under `before`.

    A run that takes over gets epochs of its own: all rows of earlier batches are stored, so nothing that an
    older run may still send is missing, and it is fenced from here on.
    """
    is_new_run = before.run is not None and before.run != run
    sources = {}
    for source in sorted(before.sources.keys() | written.keys()):
        old, new = before.sources.get(source), written.get(source)
        known = new or old
        if known is None:
            continue
        epoch = max(each.producer_epoch for each in (old, new) if each is not None)
        if is_new_run and epoch < MAX_EPOCH - 1:
            epoch += 1
        places = {**(old.places if old else {}), **(new.places if new else {})}
        last_offset = max(each.last_offset for each in (old, new) if each is not None)
        sources[source] = SourceFacts(known.producer_id, epoch, last_offset, places)
    return BatchFacts(run, sources)


@dataclass(frozen=True, slots=True)
class MirrorSession:
    """A session's folder, as the driver opened it; pickled to the tasks."""

    path: str
    session_id: str

    @classmethod
    def open(cls, path: str, plan: str) -> "MirrorSession":
        """The session in this folder, a new one where there is none.

        Raises OptionError when the folder cannot be written, or belongs to another plan.
        """
        # Workers of Spark may have other working folders.
        path = str(Path(path).absolute())
        made = {"format": _FORMAT, "session": uuid.uuid4().hex, "plan": plan}
        try:
            saved = _make_once(Path(path) / "session.json", made)
        except OSError as error:
            raise _no_session(path, error) from None
        if saved.get("format") != _FORMAT:
            raise OptionError(f"{path} holds a session of format {saved.get('format')}, expected {_FORMAT}")
        if saved["plan"] != plan:
            raise OptionError(
                f"the session in {path} was begun with another plan ({saved['plan']}, now {plan}): rows that"
                " a late task of an old run still sends would pass for those of the new plan. Stop the old"
                " run for good, then start with a new checkpointLocation; what is stored already is found"
                " and skipped"
            )
        _refuse_copy(Path(path))
        return cls(path, saved["session"])

    @property
    def folder(self) -> Path:
        return Path(self.path)

    def check(self, query: str, cluster_id: str | None) -> None:
        """Raises MirrorError in a task that does not see the driver's folder, or is of another query."""
        seen = _read(self.folder / "session.json")
        if seen is None or seen["session"] != self.session_id:
            raise MirrorError(
                f"this task does not see the mirror's session in {self.path}, where the driver made it: set"
                " option session.path to a folder on a file system that driver and executors share"
            )
        owner = _make_once(self.folder / "owner.json", {"query": query, "cluster_id": cluster_id})
        if owner["query"] != query:
            raise MirrorError(
                f"the session in {self.path} belongs to query {owner['query']}, this one is {query}: give it"
                " a session.path of its own; what is stored already is found and skipped"
            )
        if owner["cluster_id"] != cluster_id:
            raise MirrorError(
                f"the session in {self.path} writes to cluster {owner['cluster_id']}, bootstrap.servers leads"
                f" to {cluster_id} now: another cluster needs another checkpointLocation or session.path"
            )

    def topic_id(self, side: Side, topic: str) -> str | None:
        """The id of the topic that the session reads ("from") or has written to ("to") by that name."""
        saved = _read(self._topic(side, topic))
        return None if saved is None else str(saved["topic_id"])

    def keep_topic(self, side: Side, topic: str, topic_id: object) -> None:
        """This is the topic that the session reads or writes to by that name; an id of zeros tells nothing.

        Raises MirrorError where it was another one before, OptionError where the folder cannot be written.
        """
        if topic_id in (None, NO_TOPIC_ID):
            return
        try:
            kept = _make_once(self._topic(side, topic), {"topic_id": str(topic_id)})
        except OSError as error:
            raise _no_session(self.path, error) from None
        if kept["topic_id"] == str(topic_id):
            return
        raise MirrorError(
            f"topic {topic!r} was deleted and made anew since this session began to read it: its offsets"
            " start over, while its copy holds the earlier ones. Copy it to another name, with a new session"
            if side == "from"
            else f"topic {topic!r} was deleted and made anew since this session wrote to it, so what was"
            " stored is gone. Start with a new session: what the source still holds is written anew"
        )

    def facts(self, batch_id: int | None) -> BatchFacts:
        """What holds for this batch; of the session's beginning where none was committed yet."""
        number = max((each for each in self._batches() if batch_id is None or each <= batch_id), default=None)
        if number is None:
            return BatchFacts()
        saved = _read(self._batch(number))
        if saved is None:
            raise MirrorError(f"{self._batch(number)} is gone while the mirror runs: put it back")
        return _facts_from(saved)

    def close_batch(self, batch_id: int | None, facts: BatchFacts) -> None:
        """Keep `facts` for the batch that follows this one, unless that has some already."""
        number = batch_id + 1 if batch_id is not None else max(self._batches(), default=-1) + 1
        _make_once(self._batch(number), _facts_to(facts))
        for old in self._batches():
            if old <= number - _BATCHES_KEPT:
                self._batch(old).unlink(missing_ok=True)

    def producer(self, source: Place) -> int | None:
        """The id of this source partition's producer, None where it has none yet."""
        saved = _read(self.folder / "producers" / f"{_name(source)}.json")
        return None if saved is None else int(saved["producer_id"])

    def keep_producer(self, source: Place, producer_id: int) -> int:
        """The same after this one was offered: another task or run may have been first."""
        saved = _make_once(self.folder / "producers" / f"{_name(source)}.json", {"producer_id": producer_id})
        return int(saved["producer_id"])

    def claim(self, write_id: str, source: Place, task: int, first_offset: int) -> None:
        """This task writes this source partition, from this offset on. To be called again right before the
        first record goes out. Raises MirrorError where another task of the same write claimed it too."""
        claims = self.folder / "claims" / write_id
        mine = f"{_name(source)}@{task}.json"
        _make_once(claims / mine, {"first_offset": first_offset})
        names = [name for name in os.listdir(claims) if name != mine and name.startswith(f"{_name(source)}@")]
        firsts = [saved["first_offset"] for name in names if (saved := _read(claims / name)) is not None]
        if not firsts:
            return
        # Rows from here on are stored only if one of both went on without the other.
        limit = min(max(first_offset, other) for other in firsts)
        _make_once(self.folder / "refused" / f"{_name(source)}@{write_id}.{task}.json", {"limit": limit})
        raise MirrorError(
            f"two tasks have rows of {source}: their order could not be kept. Give each source partition to"
            " one task: read without minPartitions, and repartition, sort, join or union nothing on the way;"
            " then start again"
        )

    def announce(self, write_id: str, task: int) -> None:
        """This task has claimed what its first rows come from, or has none."""
        _make_once(self.folder / "claims" / write_id / "tasks" / f"{task}.json", {})

    def await_task(self, write_id: str, task: int) -> None:
        """Return when this task of the same write has announced itself, which Spark starts no later than
        the caller. Raises MirrorError after a minute."""
        path = self.folder / "claims" / write_id / "tasks" / f"{task}.json"
        deadline = time.monotonic() + _MOST_WAIT_SECONDS
        while not path.exists():
            if time.monotonic() > deadline:
                raise MirrorError(
                    f"task {task} of this write has not come within {_MOST_WAIT_SECONDS} s, and could hold"
                    " rows that come before this task's; the next attempt may find it"
                )
            time.sleep(_POLL_SECONDS)

    def check_refused(self, source: Place, position: int) -> None:
        """`position` is stored. Raises MirrorError where rows before it were refused and may be missing."""
        for path in (self.folder / "refused").glob(f"{_name(source)}@*.json"):
            limit = (_read(path) or {}).get("limit", position + 1)
            if limit <= position:
                raise MirrorError(
                    f"rows of {source} before offset {position} may be missing: two tasks had some, and one"
                    f" stored its rows from offset {limit} on before the other was refused. Mirror {source}"
                    " anew into another topic, with one task for each source partition"
                )

    def count(self, run: str, counts: "MirrorCounts") -> None:
        """Add to what the run has done so far, for reports; only the driver's commits do."""
        path = self.folder / "counts" / f"{run}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        total = MirrorCounts(*map(sum, zip(self.counts(run), counts, strict=True)))
        _replace(path, total)

    def counts(self, run: str) -> "MirrorCounts":
        """What the run has done so far."""
        try:
            return MirrorCounts(*json.loads((self.folder / "counts" / f"{run}.json").read_text()))
        except FileNotFoundError:
            return MirrorCounts()

    def end_write(self, write_id: str, sources: Iterable[Place]) -> None:
        """All rows of a write are stored: its claims and what was refused before are of no more use."""
        shutil.rmtree(self.folder / "claims" / write_id, ignore_errors=True)
        for old in (self.folder / "claims").glob("*"):
            if time.time() - old.stat().st_mtime > _CLAIMS_KEPT_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
        for source in sources:
            for path in (self.folder / "refused").glob(f"{_name(source)}@*.json"):
                path.unlink(missing_ok=True)

    def _topic(self, side: Side, topic: str) -> Path:
        return self.folder / "topics" / side / f"{topic}.json"

    def _batch(self, number: int) -> Path:
        return self.folder / "batches" / f"{number:010d}.json"

    def _batches(self) -> list[int]:
        return sorted(
            int(path.stem) for path in (self.folder / "batches").glob("*.json") if path.stem.isdecimal()
        )


def _refuse_copy(folder: Path) -> None:
    """Raises OptionError where the folder is a copy of the one in which the session was begun.

    Two mirrors on copies raise epochs without knowledge of each other, and would store rows twice. A folder
    that was renamed keeps its inode, and one that was restored from a backup keeps its path and its host.
    """
    here = {"host": socket.gethostname(), "path": str(folder), "inode": folder.stat().st_ino}
    try:
        place = _make_once(folder / "place.json", here)
    except OSError as error:
        raise _no_session(str(folder), error) from None
    if (place["host"], place["path"]) == (here["host"], here["path"]):
        return
    if place["inode"] == here["inode"]:
        _replace(folder / "place.json", here)
        return
    raise OptionError(
        f"the mirror's session in {folder} is a copy: it was begun in {place['path']} on host"
        f" {place['host']}. Two mirrors that run on copies of one session store rows twice. If the other"
        f" one will never run again, delete {folder / 'place.json'} and start again; else start with a new"
        " checkpointLocation: what is stored already is found and skipped"
    )


def _no_session(path: str, error: OSError) -> OptionError:
    return OptionError(f"the mirror's session cannot be kept in {path}: {error}")


def _name(source: Place) -> str:
    """What a source partition is called in names of files, which have more behind it and 255 bytes in all."""
    name = str(source)
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME // 2]}~{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _facts_to(facts: BatchFacts) -> dict[str, Any]:
    return {
        "run": facts.run,
        "sources": [
            [
                *source,
                each.producer_id,
                each.producer_epoch,
                each.last_offset,
                [[*key, *place] for key, place in sorted(each.places.items())],
            ]
            for source, each in sorted(facts.sources.items())
        ],
    }


def _facts_from(saved: Mapping[str, Any]) -> BatchFacts:
    return BatchFacts(
        saved["run"],
        {
            Place(topic, partition): SourceFacts(
                producer_id,
                epoch,
                last_offset,
                {TopicPartition(*place[:2]): StoredPlace(*place[2:]) for place in places},
            )
            for topic, partition, producer_id, epoch, last_offset, places in saved["sources"]
        },
    )


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return found


def _replace(path: Path, content: object) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(content))
    draft.replace(path)


def _make_once(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """What the file holds: `content`, or what another process put there first. Durable when it returns."""
    found = _read(path)
    if found is not None:
        return found
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{uuid.uuid4().hex}")
    with draft.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    try:
        # Unlike a rename, a link fails where there is a file already.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    made = _read(path)
    if made is None:
        raise MirrorError(f"{path} is gone while the mirror runs: put it back")
    return made
