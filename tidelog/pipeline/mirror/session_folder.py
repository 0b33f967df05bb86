"""The session of a mirror: its state across runs, as small files in one folder.

Owns the folder, by default `tidelog-session` inside the stream's checkpoint:
- `session.json`: the session's id and its plan, made by the driver when the first write is planned;
- `place.json`: where the folder was then; a copy of the folder is recognised by it;
- `owner.json`: the query and the destination cluster of the session, made by the first task;
- `producers/`: the producer id of each source partition, saved before that id is first used;
- `batches/`: the facts for each batch of the stream, made by the commit of the previous batch;
- `claims/`: which task of a batch writes which source partition;
- `counts/`: what each run has done, for reports;
- `refused/`: source partitions that a task was refused because another task had rows of them too;
- `lock`: held by the job that runs with the session (`pipeline.jobs.copies`);
- `topics/`: the ids of the topics that are read and written: a topic created again is another topic.

Invariants: a file is complete or absent, and the first process that needs it makes it. Only counts and place
are ever overwritten, so every task, attempt and run reads the same. The facts of a batch never change. Driver
and executors must see the folder under the same path; a task that sees another one fails.
"""

import hashlib
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tidelog.client import TopicPartition
from tidelog.pipeline.durable_files import create_json, read_json, replace_json
from tidelog.pipeline.offsets import NO_TOPIC_ID, OptionError, Place

_FORMAT = 1
# Spark replays at most one batch, the last.
_BATCHES_KEPT = 8
_LONGEST_NAME = 200
_CLAIMS_KEPT_SECONDS = 86_400
_MOST_WAIT_SECONDS = 60
_POLL_SECONDS = 0.01
MAX_EPOCH = 32_767

Side = Literal["from", "to"]


class MirrorError(RuntimeError):
    """The mirror cannot continue without loss or duplicates. The message says why and what to do."""


class StoredPlace(NamedTuple):
    """The state of one source partition in a destination partition: the source offset of the last record
    there, the next sequence number, and an end offset: the next record lies there or after it."""

    producer_epoch: int
    next_sequence: int
    end_offset: int
    position: int


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What a session keeps of one source partition: its producer, the epoch, the last offset read, and its
    stored places."""

    producer_id: int
    producer_epoch: int
    last_offset: int = -1
    places: Mapping[TopicPartition, StoredPlace] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What holds for all executions of one batch. The epochs are those of `run`."""

    run: str | None = None
    sources: Mapping[Place, SourceFacts] = field(default_factory=dict)


class MirrorCounts(NamedTuple):
    """Rows that were read, stored, and skipped because they were stored before; number of batches."""

    read: int = 0
    written: int = 0
    skipped: int = 0
    batches: int = 0


def next_facts(before: BatchFacts, run: str, written: Mapping[Place, SourceFacts]) -> BatchFacts:
    """The facts of the batch that follows the one that `run` wrote under `before`.

    A run that takes over gets new epochs. All rows of earlier batches are stored, so late requests of an
    older run carry nothing new. The new epochs fence that run.
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
    """A session's folder, as the driver opened it; it is pickled to the tasks."""

    path: str
    session_id: str

    @classmethod
    def open(cls, path: str, plan: str) -> "MirrorSession":
        """The session in this folder, a new one if the folder has none.

        Raises OptionError if the folder cannot be written, is a copy, or belongs to another plan.
        """
        # Workers of Spark may have other working folders.
        path = str(Path(path).absolute())
        made = {"format": _FORMAT, "session": uuid.uuid4().hex, "plan": plan}
        try:
            saved = _make_once(Path(path) / "session.json", made)
        except OSError as error:
            raise _no_session(path, error) from None
        if saved.get("format") != _FORMAT:
            raise OptionError(f"{path}: expected a session of format {_FORMAT}, got {saved.get('format')}")
        if saved["plan"] != plan:
            raise OptionError(
                f"the session in {path} was begun with another plan ({saved['plan']}, now {plan}): the broker"
                " could not distinguish late rows of the old plan from rows of the new one. Stop the old run"
                " for good, then start with a new checkpointLocation; rows that are already stored are"
                " skipped"
            )
        _refuse_copy(Path(path))
        return cls(path, saved["session"])

    @property
    def folder(self) -> Path:
        return Path(self.path)

    def check(self, query: str, cluster_id: str | None) -> None:
        """Raises MirrorError in a task that does not see the driver's folder, or if the session belongs to
        another query or cluster."""
        seen = read_json(self.folder / "session.json")
        if seen is None or seen["session"] != self.session_id:
            raise MirrorError(
                f"this task does not see the mirror's session in {self.path}, where the driver made it: set"
                " option session.path to a folder on a file system that driver and executors share"
            )
        owner = _make_once(self.folder / "owner.json", {"query": query, "cluster_id": cluster_id})
        if owner["query"] != query:
            raise MirrorError(
                f"the session in {self.path} belongs to query {owner['query']}, this one is {query}: give"
                " this query its own session.path; rows that are already stored are skipped"
            )
        if owner["cluster_id"] != cluster_id:
            raise MirrorError(
                f"the session in {self.path} writes to cluster {owner['cluster_id']}, but"
                f" bootstrap.servers is cluster {cluster_id}: another cluster needs another"
                " checkpointLocation or session.path"
            )

    def topic_id(self, side: Side, topic: str) -> str | None:
        """The saved id of the topic that the session reads ("from") or writes to ("to")."""
        saved = read_json(self._topic(side, topic))
        return None if saved is None else str(saved["topic_id"])

    def keep_topic(self, side: Side, topic: str, topic_id: object) -> None:
        """Save the id of a topic that the session reads or writes to. An id of zeros is ignored.

        Raises MirrorError if another id is saved, OptionError if the folder cannot be written.
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
            f"topic {topic!r} was deleted and created again since this session began to read it: its offsets"
            " start at 0 again, but its copy holds the earlier ones. Copy it to another name, with a new"
            " session"
            if side == "from"
            else f"topic {topic!r} was deleted and created again since this session wrote to it, so the"
            " stored rows are gone. Start with a new session: it writes the records that the source still has"
        )

    def facts(self, batch_id: int | None) -> BatchFacts:
        """The facts for this batch; empty facts if no batch was committed yet."""
        number = max((each for each in self._batches() if batch_id is None or each <= batch_id), default=None)
        if number is None:
            return BatchFacts()
        saved = read_json(self._batch(number))
        if saved is None:
            raise MirrorError(f"{self._batch(number)} was deleted while the mirror runs: restore it")
        return _facts_from(saved)

    def close_batch(self, batch_id: int | None, facts: BatchFacts) -> None:
        """Save `facts` for the next batch, unless it has facts already."""
        number = batch_id + 1 if batch_id is not None else max(self._batches(), default=-1) + 1
        _make_once(self._batch(number), _facts_to(facts))
        for old in self._batches():
            if old <= number - _BATCHES_KEPT:
                self._batch(old).unlink(missing_ok=True)

    def producer(self, source: Place) -> int | None:
        """The id of this source partition's producer, None if it has none yet."""
        saved = read_json(self.folder / "producers" / f"{_name(source)}.json")
        return None if saved is None else int(saved["producer_id"])

    def keep_producer(self, source: Place, producer_id: int) -> int:
        """Save this producer id, unless another task or run saved one first. Returns the saved id."""
        saved = _make_once(self.folder / "producers" / f"{_name(source)}.json", {"producer_id": producer_id})
        return int(saved["producer_id"])

    def claim(self, write_id: str, source: Place, task: int, first_offset: int) -> None:
        """This task writes this source partition from this offset on. Call it again right before the first
        record is sent. Raises MirrorError if another task of the same write claimed the partition too."""
        claims = self.folder / "claims" / write_id
        mine = f"{_name(source)}@{task}.json"
        _make_once(claims / mine, {"first_offset": first_offset})
        names = [name for name in os.listdir(claims) if name != mine and name.startswith(f"{_name(source)}@")]
        firsts = [saved["first_offset"] for name in names if (saved := read_json(claims / name)) is not None]
        if not firsts:
            return
        # Rows from this offset on are stored only if one of the two tasks continued without the other.
        limit = min(max(first_offset, other) for other in firsts)
        _make_once(self.folder / "refused" / f"{_name(source)}@{write_id}.{task}.json", {"limit": limit})
        raise MirrorError(
            f"two tasks have rows of {source}: their order cannot be guaranteed. Give each source partition"
            " to one task: read without minPartitions, and do not repartition, sort, join or union before the"
            " sink; then start again"
        )

    def announce(self, write_id: str, task: int) -> None:
        """This task has claimed the sources of its first rows, or has no rows."""
        _make_once(self.folder / "claims" / write_id / "tasks" / f"{task}.json", {})

    def await_task(self, write_id: str, task: int) -> None:
        """Return when this task of the same write has announced itself. Spark starts it no later than the
        caller. Raises MirrorError after a minute."""
        path = self.folder / "claims" / write_id / "tasks" / f"{task}.json"
        deadline = time.monotonic() + _MOST_WAIT_SECONDS
        while not path.exists():
            if time.monotonic() > deadline:
                raise MirrorError(
                    f"task {task} of this write has not started within {_MOST_WAIT_SECONDS} s. It may hold"
                    " rows that come before this task's rows; Spark's next attempt may succeed"
                )
            time.sleep(_POLL_SECONDS)

    def check_refused(self, source: Place, position: int) -> None:
        """`position` is stored. Raises MirrorError if earlier rows were refused and may be missing."""
        for path in (self.folder / "refused").glob(f"{_name(source)}@*.json"):
            limit = (read_json(path) or {}).get("limit", position + 1)
            if limit <= position:
                raise MirrorError(
                    f"rows of {source} before offset {position} may be missing: two tasks had rows of it,"
                    f" and one stored its rows from offset {limit} on before the other was refused. Mirror"
                    f" {source} again into another topic, with one task per source partition"
                )

    def count(self, run: str, counts: MirrorCounts) -> None:
        """Add to the run's counts. Only the driver's commits may call this."""
        path = self.folder / "counts" / f"{run}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        total = MirrorCounts(*map(sum, zip(self.counts(run), counts, strict=True)))
        replace_json(path, total)

    def counts(self, run: str) -> MirrorCounts:
        """What the run has done so far."""
        return MirrorCounts(*(read_json(self.folder / "counts" / f"{run}.json") or ()))

    def end_write(self, write_id: str, sources: Iterable[Place]) -> None:
        """All rows of a write are stored: delete its claims and earlier refusals."""
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
    """Raises OptionError if the folder is a copy of the folder in which the session was begun.

    Two mirrors on copies do not see each other's epochs, and would store rows twice. A renamed folder keeps
    its inode. A folder restored from a backup keeps its path and its host.
    """
    here = {"host": socket.gethostname(), "path": str(folder), "inode": folder.stat().st_ino}
    try:
        place = _make_once(folder / "place.json", here)
    except OSError as error:
        raise _no_session(str(folder), error) from None
    if (place["host"], place["path"]) == (here["host"], here["path"]):
        return
    if place["inode"] == here["inode"]:
        replace_json(folder / "place.json", here)
        return
    raise OptionError(
        f"the mirror's session in {folder} is a copy: it was begun in {place['path']} on host"
        f" {place['host']}. Two mirrors that run on copies of one session store rows twice. If the other"
        f" one will never run again, delete {folder / 'place.json'} and start again. Otherwise start with a"
        " new checkpointLocation: rows that are already stored are skipped"
    )


def _no_session(path: str, error: OSError) -> OptionError:
    return OptionError(f"the mirror's session cannot be saved in {path}: {error}")


def _name(source: Place) -> str:
    """A source partition as part of a file name, short enough for names of at most 255 bytes."""
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


def _make_once(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Create the file with `content`, unless another process was first. Returns what it holds, durably."""
    found: dict[str, Any] | None = read_json(path)
    if found is None:
        create_json(path, content)
        found = read_json(path)
    if found is None:
        raise MirrorError(f"{path} was deleted while the mirror runs: restore it")
    return found
