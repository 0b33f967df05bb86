"""delivery=exactly_once: each row of any DataFrame is stored once, whatever is killed, repeated or late.

Owns the interface to Spark. It needs a broker with prepared transactions (KIP-939) and, beside that broker
and Spark's checkpoint, no state. Readers of committed records (`isolation.level=read_committed`) see each row
once.

Each attempt of each task writes its rows in a transaction of its own, prepares it, and names it in its commit
message. Its transactional id was never used before. The driver then settles the batch (`settling`): it makes
one durable decision, which names the transactions to commit, and ends all transactions of the batch by it.
1. Spark repeats a batch under the same number, with the same input, until `commit` has returned; it plans no
   other before. A batch that is decided is never decided again: a repetition finishes the first decision,
   and its own rows are aborted. So the rows of one execution are committed, and an execution may have other
   tasks, another order of rows, or other results of functions that are not deterministic.
2. A decision names single attempts. Of attempts that ran at the same time it names one; `settling` aborts
   what failed, repeated and late attempts wrote, also after their driver was killed.
3. All transactions of a decision are committed before another decision replaces it, and none of them is
   aborted: no timeout ends a transaction of a producer with two-phase commit, its state never expires, and
   `settling` says why no driver can.
4. `abort` settles too: it may follow a commit of unknown outcome, and then commits what was decided.
In a batch query and in `foreachBatch`, exactly_once.name and exactly_once.batch stand for query and batch.
`decision` says which batches are refused because it cannot be known whether their rows are stored.
Not promised: that all rows of a batch become visible in one instant, order between tasks, rows that an
operator commits or aborts against the decision, and that a new checkpoint knows the rows of an old one.

Invariants: as in `pipeline.writers`.
"""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tidelog.pipeline.exactly_once.checkpoint import PlannedBatch, planned_batch, query_of
from tidelog.pipeline.exactly_once.decision import Decision, ExactlyOnceError, TransactionName, run_of
from tidelog.pipeline.exactly_once.settling import Settlement, Sink, settle
from tidelog.pipeline.exactly_once.task import PreparedRows, write_prepared
from tidelog.pipeline.options.sink import SinkOptions
from tidelog.pipeline.workers import fails_plainly, freeze_imports

_WRITE_DIGITS: Final = 12
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass
class PreparedMessage(WriterCommitMessage):  # type: ignore[misc]
    """What one attempt of a task wrote. `query` and `run` are Spark's, "" outside of a stream."""

    name: TransactionName
    query: str
    run: str
    rows: PreparedRows


@fails_plainly
class ExactlyOnceWriter(DataSourceArrowWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """delivery=exactly_once, in a batch query and in a stream, whose batches Spark numbers."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._sink = options.name or query_of(options.checkpoint or "")
        # One per planned batch. Spark makes another writer for its commit.
        self._write = uuid.uuid4().hex[:_WRITE_DIGITS]

    def write(self, iterator: Iterator[Any]) -> PreparedMessage:
        """Prepare one task's rows. Raises ExactlyOnceError, OptionError, ClientError."""
        freeze_imports()
        batch = self._options.batch
        if batch is None:
            if not (text := _property(_BATCH_ID)):
                raise ExactlyOnceError(
                    f"Spark sets no property {_BATCH_ID} in its tasks, by which batches count"
                )
            batch = int(text)
        name = TransactionName(self._sink, batch, self._write, _context().taskAttemptId())
        query = _property("sql.streaming.queryId")
        run = run_of(query, _property("spark.jobGroup.id"))
        return PreparedMessage(name, query, run, write_prepared(self._options, name, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:
        """Commit the batch, unless it was committed before. Raises ExactlyOnceError, ClientError."""
        number = self._number(batch)
        done = [each for each in messages if isinstance(each, PreparedMessage)]
        if not done:
            # There were no tasks, so no rows.
            self._settle(Settlement(number))
            return
        checkpoint = self._options.checkpoint
        planned = planned_batch(checkpoint, number) if checkpoint else PlannedBatch()
        prepared = {each.name: each.rows.transaction for each in done if each.rows.transaction is not None}
        decision = Decision(
            batch=number,
            query=done[0].query,
            run=done[0].run,
            plan=planned.digest,
            write=done[0].name.write,
            attempts=tuple(sorted(name.attempt for name in prepared)),
        )
        self._settle(Settlement(number, decision, prepared, _topic_ids(done), planned.planned_ms))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:
        """Abort what no decision names. Raises ExactlyOnceError, ClientError."""
        self._settle(Settlement(self._number(batch)))

    def _number(self, of_stream: int | None) -> int:
        number = self._options.batch if of_stream is None else of_stream
        if number is None:
            raise ValueError("delivery=exactly_once was planned without a batch number")
        return number

    def _settle(self, settlement: Settlement) -> None:
        options = self._options
        asyncio.run(settle(Sink(self._sink, options.cluster, options.delivery_timeout_ms), settlement))


def _topic_ids(done: Sequence[PreparedMessage]) -> dict[str, str]:
    """The ids of all topics that were written to. Raises ExactlyOnceError if a topic has two."""
    topic_ids: dict[str, str] = {}
    for message in done:
        for topic, topic_id in message.rows.topic_ids.items():
            if topic_ids.setdefault(topic, topic_id) != topic_id:
                raise ExactlyOnceError(
                    f"topic {topic!r} was deleted and created again while rows were written to it: start the"
                    " query again"
                )
    return topic_ids


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ExactlyOnceError("rows can be written exactly once only in a Spark task")
    return context


def _property(name: str) -> str:
    return str(_context().getLocalProperty(name) or "")
