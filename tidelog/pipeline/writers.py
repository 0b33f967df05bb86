"""The sink of `format("tidelog")`, for batches and streams: stores rows as records.

Owns the interface to Spark: options and columns are checked when the write is planned, each task sends its
rows, and the tasks' messages return what they did. Three deliveries:
- `at_least_once` takes any rows. Each task sends through its own idempotent producer, so resends store
  nothing twice. But Spark repeats a failed task, or a batch that was not committed, and then rows may be
  stored again.
- `exactly_once` takes any rows, and stores each once. The broker must have prepared transactions: see
  `pipeline.exactly_once.writer`.
- `mirror` takes rows that name their source record, and stores each once, on any broker: see
  `pipeline.mirror.writer`.

Invariants: a task succeeds only when all of its rows are stored. `abort` undoes nothing that may be
committed: Spark calls it also after a commit that failed half-way. Spark pickles the writers and runs them in
Python workers, and makes a new one for `commit`: nothing here may hold a connection, or remember anything
between calls.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.pipeline.options import sink
from tidelog.pipeline.options.ignored import warn_of_columns, warn_of_options
from tidelog.pipeline.options.tables import FOREIGN_TO_SINK
from tidelog.pipeline.workers import fails_plainly, freeze_imports


@dataclass
class WrittenRows(WriterCommitMessage):  # type: ignore[misc]
    """What one task of delivery=at_least_once stored."""

    rows: int


def make_writer(options: dict[str, str], schema: StructType, *, overwrite: bool, is_stream: bool) -> Any:
    """The writer of a batch, or of a stream's batches. Raises OptionError for what cannot be written as
    asked."""
    chosen = sink.parse_sink_options(options, is_stream=is_stream)
    sink.check_columns(schema, chosen, overwrite=overwrite)
    warn_of_options(options, FOREIGN_TO_SINK)
    warn_of_columns(sink.columns_left_out(schema, chosen))
    if chosen.delivery == sink.MIRROR:
        from tidelog.pipeline.mirror.writer import MirrorWriter

        return MirrorWriter(chosen, is_stream=is_stream)
    if chosen.delivery == sink.EXACTLY_ONCE:
        from tidelog.pipeline.exactly_once.writer import ExactlyOnceWriter

        return ExactlyOnceWriter(chosen)
    return AtLeastOnceWriter(chosen)


@fails_plainly
class AtLeastOnceWriter(DataSourceArrowWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """delivery=at_least_once, in a batch and in a stream."""

    def __init__(self, options: sink.SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WrittenRows:
        """Send one task's rows. Raises ClientError, OptionError for rows that cannot be sent."""
        from tidelog.pipeline.sink.rows import chunks
        from tidelog.pipeline.sink.sending import BatchSender, LoopThread, make_producer, send_rows

        freeze_imports()
        written = 0
        with LoopThread() as loop:
            sender = BatchSender(make_producer(self._options))
            try:
                for table in chunks(iterator):
                    if not written:
                        loop.run(sender.producer.start())
                    written += send_rows(self._options, sender, loop, table)
                loop.run(sender.finish())
            finally:
                # No batch is in flight any more, or the task has failed.
                loop.run(sender.producer.stop(0))
        return WrittenRows(written)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:
        """Nothing is left to do: all is stored."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:
        """What is stored stays."""
