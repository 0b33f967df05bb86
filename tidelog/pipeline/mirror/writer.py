"""delivery=mirror: each row of a source partition is stored once, even if tasks are killed or run twice.

Owns the interface to Spark of exact delivery without transactions. S -> D are the rows of source partition S
that go to destination partition D, in the order of S, under S's one producer id. Why this is exact:
1. S -> D depends only on the source and the plan, not on tasks, attempts and runs.
2. Under one epoch, sequence number k in D names the k-th row of S -> D after the last row of earlier epochs.
   Each writer looks up the last record of S in D by its header, and sends all later rows in order, under the
   next numbers. So late requests of an old task and those of its successor carry the same row under the same
   number, and the broker accepts one of them. The other is a duplicate, or it overlaps (45) and is halved
   until each part is either new or a duplicate.
3. All executions of a batch use the same epochs. They are in one file, which the commit of the previous batch
   creates once. That commit raises the epochs when another run has taken over. At that moment all rows so far
   are stored, so requests of older runs carry nothing new. They are refused as duplicates or as fenced (47).
   If a run is killed within a batch, its successor keeps the epoch for it, so that 2 holds.
4. A batch begins after the previous batch is stored. So its rows follow the stored rows, however Spark cuts
   or replays it. Rows up to the last stored row are skipped by their position.
5. A broker that forgot the producer accepts it from number 0 on under the next epoch, after the log was read.
   By 2, all attempts do the same.
If exactness cannot be guaranteed, the write fails: rows out of order or missing (mirror.gaps=allow permits
gaps that a filter leaves), two tasks with rows of one S, another plan, query or cluster, a destination that
lost records. If the session is lost, a new one finds the stored rows by their headers. The old run must never
run again then: it has another producer id and would store the new rows again (the mirror job refuses this). A
copied session folder is recognised by its place and refused: 3 needs all runs to see the same files.

Invariants: as in `pipeline.writers`.
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
from tidelog.pipeline.offsets import Place
from tidelog.pipeline.options.sink import SinkOptions
from tidelog.pipeline.workers import fails_plainly, freeze_imports

_BATCH_QUERY = "batch"


@dataclass
class MirrorMessage(WriterCommitMessage):  # type: ignore[misc]
    """What one task did, and which task it was."""

    place: TaskPlace
    rows: MirroredRows


def open_session(options: SinkOptions) -> MirrorSession:
    """The session of a write. Raises OptionError."""
    if options.session_path is None:
        raise ValueError("delivery=mirror was planned without a session")
    plan = options.plan or "rows as they come"
    return MirrorSession.open(options.session_path, f"{plan}, to {options.topic or 'their topics'}")


@fails_plainly
class MirrorWriter(DataSourceArrowWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """delivery=mirror in a stream, or in a batch query, which may be run again until it succeeds."""

    def __init__(self, options: SinkOptions, *, is_stream: bool) -> None:
        self._options = options
        self._is_stream = is_stream
        self._session = open_session(options)
        # One per planned batch. Spark makes another writer for its commit.
        self._write_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> MirrorMessage:
        """Store one task's rows. Raises MirrorError, OptionError, ClientError."""
        freeze_imports()
        context = _context()
        query, run, batch = _BATCH_QUERY, self._write_id, None
        if self._is_stream:
            query = _property(context, "sql.streaming.queryId")
            # Spark uses the id of each run of a query as its job group.
            run = _property(context, "spark.jobGroup.id")
            batch = int(_property(context, "streaming.sql.batchId"))
        place = TaskPlace(self._write_id, query, run, batch, context.partitionId())
        return MirrorMessage(place, mirror_rows(self._options, self._session, place, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:
        """Save the positions, which are facts of the next batch: all rows of this one are stored."""
        done = [each for each in messages if isinstance(each, MirrorMessage)]
        if not done:
            return
        written: dict[Place, SourceFacts] = {}
        for message in done:
            if both := sorted(written.keys() & message.rows.sources.keys()):
                raise MirrorError(f"two tasks stored rows of {both[0]}")
            written |= message.rows.sources
        place = done[0].place
        # Writes outside of a stream may run at the same time, so none can know that all others have ended.
        run = _BATCH_QUERY if place.batch_id is None else place.run
        self._session.close_batch(
            place.batch_id, next_facts(self._session.facts(place.batch_id), run, written)
        )
        rows = [message.rows for message in done]
        counts = MirrorCounts(
            read=sum(each.read for each in rows),
            written=sum(each.written for each in rows),
            skipped=sum(each.skipped for each in rows),
            batches=1,
        )
        self._session.count(place.run, counts)
        self._session.end_write(place.write_id, written)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:
        """Stored rows stay; the next execution skips them."""


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise MirrorError("a mirror's rows can be written only in a Spark task")
    return context


def _property(context: TaskContext, name: str) -> str:
    text = context.getLocalProperty(name)
    if text is None:
        raise MirrorError(f"Spark sets no property {name} in its tasks; a mirror identifies batches by it")
    return str(text)
