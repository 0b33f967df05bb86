"""delivery=mirror: every row of a topic's partition stored once, whatever is killed or runs twice.

Owns the seam to Spark of exact delivery without transactions. Why it is exact: say that S -> D are the rows
of source partition S that go to destination partition D, in the order of S, under S's one producer id.
1. S -> D depends on the source and the plan alone, not on tasks, attempts and runs.
2. Under an epoch, number k in D names the k-th row of S -> D behind the last one of earlier epochs: whoever
   writes looks up the last record of S in D, by its header, and sends all rows behind it in order under the
   numbers behind its own. So a late request of a zombie and one of its successor bear the same row under the
   same number, and the broker takes one of both. The other is a duplicate, or overlaps (45) and is halved
   until each part is either new or a duplicate.
3. All executions of a batch use the same epochs: facts in one file, made once, by the commit of the batch
   before. That commit raises them when another run has taken over. At that moment all rows so far are stored,
   so older runs' requests carry nothing new, and are refused as duplicates or as fenced (47). Within the
   batch in which a run died its successor keeps the epoch, so that 2 holds.
4. A batch begins when the one before is stored, so its rows follow what is there, however Spark cuts or
   replays it; rows up to the last one stored are skipped by their position.
5. A broker that forgot the producer takes it from number 0 on under the next epoch, after the log was read:
   all attempts do the same, by 2.
Refused is what cannot be kept so: rows out of order or missing (mirror.gaps=allow: a filter leaves them out),
two tasks with rows of one S, another plan, query or cluster, a destination that lost records. A lost session
is found again by the headers; its old run must be gone for good then, for it has another producer id: whoever
goes back to the old session stores again what the new one stored (the mirror job refuses to). A copied
session folder is recognised by its place and refused, because 3 holds only where all runs see the same files.

Invariants: as in `pipeline.sink.writers`.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tidelog.pipeline.mirror.session_folder import (
    MirrorCounts,
    MirrorError,
    MirrorSession,
    SourceFacts,
    next_facts,
)
from tidelog.pipeline.mirror.task import MirroredRows, TaskPlace, mirror_rows
from tidelog.pipeline.sink.options import SinkOptions
from tidelog.pipeline.source.offsets import Place

_BATCH_QUERY = "batch"


@dataclass
class MirrorMessage(WriterCommitMessage):  # type: ignore[misc]
    """What one task did, and which."""

    place: TaskPlace
    rows: MirroredRows


def open_session(options: SinkOptions) -> MirrorSession:
    """The session of a write. Raises OptionError."""
    if options.session_path is None:
        raise ValueError("delivery=mirror was planned without a session")
    plan = options.plan or "rows as they come"
    return MirrorSession.open(options.session_path, f"{plan}, to {options.topic or 'their topics'}")


class MirrorWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """delivery=mirror in a batch, which may be run again until it is through."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._session = open_session(options)
        self._write_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> MirrorMessage:
        """Store one task's rows. Raises MirrorError, OptionError, ClientError."""
        task = _context().partitionId()
        place = TaskPlace(self._write_id, _BATCH_QUERY, self._write_id, None, task)
        return MirrorMessage(place, mirror_rows(self._options, self._session, place, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Note where everything stands, so that the next write need not search for it."""
        _commit(self._session, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What is stored stays; the next write skips it."""


class MirrorStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """delivery=mirror in a stream."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._session = open_session(options)
        # One for each batch that is planned; Spark makes another writer for its commit.
        self._write_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> MirrorMessage:
        """Store one task's rows. Raises MirrorError, OptionError, ClientError."""
        context = _context()
        place = TaskPlace(
            self._write_id,
            _property(context, "sql.streaming.queryId"),
            # Spark runs each run of a query under its id as job group.
            _property(context, "spark.jobGroup.id"),
            int(_property(context, "streaming.sql.batchId")),
            context.partitionId(),
        )
        return MirrorMessage(place, mirror_rows(self._options, self._session, place, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Fix the facts of the next batch: all rows of this one are stored."""
        _commit(self._session, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What is stored stays; the batch's next execution skips it."""


def _commit(session: MirrorSession, messages: Sequence[WriterCommitMessage | None]) -> None:
    done = [each for each in messages if isinstance(each, MirrorMessage)]
    if not done:
        return
    written: dict[Place, SourceFacts] = {}
    for message in done:
        if both := sorted(written.keys() & message.rows.sources.keys()):
            raise MirrorError(f"two tasks stored rows of {both[0]}")
        written |= message.rows.sources
    place = done[0].place
    # Writes outside of a stream may run side by side, so none can know that all others are through.
    run = _BATCH_QUERY if place.batch_id is None else place.run
    session.close_batch(place.batch_id, next_facts(session.facts(place.batch_id), run, written))
    rows = [message.rows for message in done]
    counts = MirrorCounts(
        read=sum(each.read for each in rows),
        written=sum(each.written for each in rows),
        skipped=sum(each.skipped for each in rows),
        batches=1,
    )
    session.count(place.run, counts)
    session.end_write(place.write_id, written)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise MirrorError("a mirror's rows can be written in a Spark task only")
    return context


def _property(context: TaskContext, name: str) -> str:
    text = context.getLocalProperty(name)
    if text is None:
        raise MirrorError(f"Spark gives its tasks no property {name}, by which a mirror knows its batches")
    return str(text)
