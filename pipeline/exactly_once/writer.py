"""delivery=exactly_once: each row of any DataFrame is stored once, whatever is killed, repeated or late.

Owns the interface to Spark, and the argument. It needs a broker with prepared transactions (KIP-939), and no
state beside Spark's checkpoint and the broker. What is stored exactly once is what readers of committed
records (`isolation.level=read_committed`) see.

**What happens.** Each attempt of each task writes its rows in a transaction of its own, prepares it, and
returns its name, producer id and epoch in its commit message. Its transactional id was never used before: it
names the sink, the batch, one planning of the write, and the attempt. The driver then settles the batch
(`settling`):
1. It starts the producer whose transactional id is the sink's. That fences every other driver of the sink.
2. It reads the last decision from the committed offsets of the sink's group, and commits those of its
   transactions that are still open.
3. It claims the batch's transactions, those to commit and those to abort: InitProducerId with
   KeepPreparedTxn gives it the only epoch that can end them. It checks that each one to commit is open, as
   its task prepared it.
4. It commits the decision (batch, and the names of the transactions to commit) as offsets, in one transaction
   of the sink's producer. **This is the commit point.** It succeeds only if no other driver began since 1.
5. It commits and aborts what it has claimed. Only then does it return, and Spark notes the batch as done.

**Why each row is there once.** Spark repeats a batch with the same number and input until it is noted as
done, and plans no other before. The decision says whether a batch is still to be written: one that is decided
is never decided again, so the rows of exactly one execution are committed, and tasks, their layout and the
order of rows may differ between executions. A decision names single attempts, so of attempts that ran at the
same time one is committed. All its transactions are committed before the next decision replaces it (2, 5).
No transaction of a decision is aborted:
- not by a time: transactions of a producer with two-phase commit have no timeout, and their state never
  expires;
- not by this driver: it aborts only what neither the last decision nor the new one names;
- not by another driver D, on the same checkpoint or a copy of it. Say that this driver decided. If D started
  later, D sees the decision (2). If D started before, D's decision must be durable before this driver's start
  (4), so D claimed its transactions before this driver claimed its own. From then on D's claims are fenced
  here, and D can end none of them. If D had ended one before, this driver would have found it not open (3),
  and decided nothing.

**Every crash point.**
- A task, or its worker, dies while it writes, or after it prepared: its transaction is in no decision. The
  batch's settlement aborts it, or that of the next batch (a batch aborts what is open of itself and of all
  earlier ones). A late attempt that still runs is fenced by that; one that begins later is aborted next time.
- The driver dies before 4: nothing is committed. The next start repeats the batch; its settlement aborts the
  old transactions. If it dies within 4, the next producer start (1) learns the outcome.
- The driver dies after 4: the next start repeats the batch, finds it decided, commits the rest and aborts
  what the repetition wrote. The same if Spark did not note the batch as done.
- `commit` raises, with an unknown outcome: Spark calls `abort`, which settles too. It commits what was
  decided, and aborts only the rest. If neither works, the next start does it.
- The broker dies: transactions, claims and decisions are durable before they are answered. The settlement is
  repeated until the broker answers, for up to delivery.timeout.ms.

**What is refused**, because it would not be exact:
- two drivers on copies of a checkpoint, or a checkpoint that was restored: the decision holds a digest of
  what Spark planned for the batch (`offsets/N` in the checkpoint). The driver whose plan was decided goes on.
  The other one finds its batch decided for other rows, or that a later batch was;
- another query with the name of this one (a deleted checkpoint with exactly_once.name): the decision holds
  the query. Without a name the sink has the query's id, and a new checkpoint is a new sink;
- a batch without a known decision that was planned before offsets.retention.minutes began: the broker may
  have forgotten the decision;
- a topic that was deleted and created again between a task's rows and the decision. Later, rows are gone as
  in any deleted topic;
- a transaction that an operator ended: aborted before the decision, the batch fails and is repeated.
  Committed before the decision, it counts as committed. Aborted after it, its rows are lost: each
  settlement says so until the checkpoint is given up. An operator must not commit an attempt that is not in
  the decision: then its rows are there twice. The metadata of the group's offsets shows the decision;
- a broker without prepared transactions, or that does not allow them to this sink.

A transactional id that the broker has forgotten (transactional.id.expiration.ms) had no open transaction, so
its transaction ended as it was decided.

In a batch query and in `foreachBatch`, exactly_once.name and exactly_once.batch stand for query and batch.
Within one run a number can be written once only, because two writes under one name would hide each other.

Invariants: as in `pipeline.sink.writers`.
"""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tidelog.pipeline.exactly_once.checkpoint import PlannedBatch, planned_batch, query_of
from tidelog.pipeline.exactly_once.decision import Decision, ExactlyOnceError, TransactionName
from tidelog.pipeline.exactly_once.settling import Settlement, Sink, settle
from tidelog.pipeline.exactly_once.task import PreparedRows, write_prepared
from tidelog.pipeline.sink.options import SinkOptions

_WRITE_DIGITS: Final = 12
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass
class PreparedMessage(WriterCommitMessage):  # type: ignore[misc]
    """What one attempt of a task wrote. `query` and `run` are Spark's, "" outside of a stream."""

    name: TransactionName
    query: str
    run: str
    rows: PreparedRows


class ExactlyOnceWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """delivery=exactly_once in a batch query."""

    def __init__(self, options: SinkOptions) -> None:
        if options.batch is None:
            raise ValueError("delivery=exactly_once was planned without a batch number")
        self._options = options
        self._batch = options.batch
        self._write = uuid.uuid4().hex[:_WRITE_DIGITS]

    def write(self, iterator: Iterator[Any]) -> PreparedMessage:
        """Prepare one task's rows. Raises ExactlyOnceError, OptionError, ClientError."""
        return _write(self._options, self._options.name, self._batch, self._write, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the batch, unless it was committed before. Raises ExactlyOnceError, ClientError."""
        _commit(self._options, self._options.name, self._batch, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort what no decision names. Raises ExactlyOnceError, ClientError."""
        _settle(self._options, self._options.name, Settlement(self._batch))


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """delivery=exactly_once in a stream."""

    def __init__(self, options: SinkOptions) -> None:
        if options.checkpoint is None:
            raise ValueError("delivery=exactly_once was planned without a checkpoint")
        self._options = options
        self._sink = options.name or query_of(Path(options.checkpoint))
        # One per planned batch. Spark makes another writer for its commit.
        self._write = uuid.uuid4().hex[:_WRITE_DIGITS]

    def write(self, iterator: Iterator[Any]) -> PreparedMessage:
        """Prepare one task's rows. Raises ExactlyOnceError, OptionError, ClientError."""
        batch = _property(_BATCH_ID)
        if not batch:
            raise ExactlyOnceError(f"Spark sets no property {_BATCH_ID} in its tasks, by which batches count")
        return _write(self._options, self._sink, int(batch), self._write, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the batch, unless it was committed before. Raises ExactlyOnceError, ClientError."""
        _commit(self._options, self._sink, batchId, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort what no decision names. Raises ExactlyOnceError, ClientError."""
        _settle(self._options, self._sink, Settlement(batchId))


def _write(
    options: SinkOptions, sink: str, batch: int, write: str, iterator: Iterator[Any]
) -> PreparedMessage:
    name = TransactionName(sink, batch, write, _context().taskAttemptId())
    # Spark uses the id of each run of a stream as its job group.
    query = _property("sql.streaming.queryId")
    run = _property("spark.jobGroup.id") if query else ""
    return PreparedMessage(name, query, run, write_prepared(options, str(name), iterator))


def _commit(
    options: SinkOptions, sink: str, batch: int, messages: Sequence[WriterCommitMessage | None]
) -> None:
    done = [each for each in messages if isinstance(each, PreparedMessage)]
    if not done:
        # There were no tasks, so no rows.
        _settle(options, sink, Settlement(batch))
        return
    planned = planned_batch(Path(options.checkpoint), batch) if options.checkpoint else PlannedBatch()
    prepared = {each.name: each.rows.transaction for each in done if each.rows.transaction is not None}
    topic_ids: dict[str, str] = {}
    for message in done:
        for topic, topic_id in message.rows.topic_ids.items():
            if topic_ids.setdefault(topic, topic_id) != topic_id:
                raise ExactlyOnceError(
                    f"topic {topic!r} was deleted and created again while rows were written to it: start the"
                    " query again"
                )
    decision = Decision(
        batch=batch,
        query=done[0].query,
        run=done[0].run,
        plan=planned.digest,
        write=done[0].name.write,
        attempts=tuple(sorted(name.attempt for name in prepared)),
    )
    _settle(options, sink, Settlement(batch, decision, prepared, topic_ids, planned.planned_ms))


def _settle(options: SinkOptions, sink: str, settlement: Settlement) -> None:
    asyncio.run(settle(Sink(sink, options.cluster, options.delivery_timeout_ms), settlement))


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ExactlyOnceError("rows can be written exactly once only in a Spark task")
    return context


def _property(name: str) -> str:
    return str(_context().getLocalProperty(name) or "")
