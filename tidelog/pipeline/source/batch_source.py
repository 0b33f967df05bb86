"""Batch reads of the data source: the ranges are planned on the driver, and read in the tasks.

If the session has spark.sql.python.filterPushdown.enabled, a read leaves out what the filters of the query
exclude.

Invariants: the ranges are fixed when Spark plans the query, so a retried task reads the same records. A task
yields every record of its ranges, in order, or fails.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from tidelog.pipeline.offsets import OffsetRange, plan_ranges, resolve
from tidelog.pipeline.options.source import SourceOptions
from tidelog.pipeline.source import reading
from tidelog.pipeline.source.fetch import find_offsets_at
from tidelog.pipeline.source.filters import first_time_ms, narrow
from tidelog.pipeline.workers import fails_plainly


@fails_plainly
class TidelogReader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._filters: list[Filter] = []

    @property
    def pushFilters(self) -> Callable[[Iterable[Filter]], Iterable[Filter]]:  # noqa: N802
        """Takes the filters of the query. All of them are left to Spark too.

        Without the session's setting, Spark refuses a reader that overrides this method, which it sees by
        `__func__`. Such a read is only slower.
        """

        def push(filters: Iterable[Filter]) -> Iterable[Filter]:
            self._filters = list(filters)
            return self._filters

        unchanged: Any = push
        unchanged.__func__ = DataSourceReader.pushFilters
        return push

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
        if options.losses_path is None:
            # Else what the filters exclude would count as lost.
            ranges = self._narrow(ranges)
        tasks = reading.tasks_of(options, ranges, logs, losses)
        reading.report_losses(losses)
        starts, ends = resolve("startingOffsets", starting, bounds), resolve("endingOffsets", ending, bounds)
        reading.note_unread(options, {place: (starts[place], ends[place]) for place in bounds}, tasks)
        return tasks

    def _narrow(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Without what the filters exclude."""
        ranges = narrow(ranges, self._filters)
        first = first_time_ms(self._filters)
        cluster = self._options.cluster
        if first is None or cluster is None or not ranges:
            return ranges
        times = dict.fromkeys((each.place for each in ranges), first)
        firsts = find_offsets_at(cluster, times, read_committed=self._options.read_committed)
        later = (each._replace(start=max(each.start, firsts[each.place])) for each in ranges)
        return [each for each in later if firsts[each.place] >= 0 and each.start < each.end]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task, as Arrow batches."""
        return reading.read_partition(self._options, partition)
