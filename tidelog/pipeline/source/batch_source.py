"""Batch reads of the data source: the ranges are planned on the driver, and read in the tasks.

Invariants: the ranges are fixed when Spark plans the query, so a retried task reads the same records. A task
yields every record of its ranges, in order, or fails.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.pipeline.offsets import plan_ranges, resolve
from tidelog.pipeline.options.source import SourceOptions
from tidelog.pipeline.source import reading


class TidelogReader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Those of `reading.tasks_of`."""
        options = self._options
        logs = reading.logs_of(options)
        bounds = logs.bounds
        starting, ending = (
            reading.starting_positions(options, bounds),
            reading.ending_positions(options, bounds),
        )
        losses: list[str] | None = None if options.fail_on_data_loss else []
        ranges = plan_ranges(starting, ending, bounds, losses)
        tasks = reading.tasks_of(options, ranges, logs, losses)
        reading.report_losses(losses)
        starts, ends = resolve("startingOffsets", starting, bounds), resolve("endingOffsets", ending, bounds)
        reading.note_unread(options, {place: (starts[place], ends[place]) for place in bounds}, tasks)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task, as Arrow batches."""
        return reading.read_partition(self._options, partition)
