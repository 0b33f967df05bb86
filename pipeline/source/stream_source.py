"""The stream side of `format("tidelog")`: micro-batches with admission control.

Owns the seam to Spark's planner: which offsets a micro-batch ends at, and its input partitions. The
arithmetic is in `pipeline.source.micro_batches`; tasks read as those of a batch query do.

Invariants: a micro-batch is fixed by the offsets in Spark's checkpoint alone, so that a replay reads the same
records, however its tasks are cut. With `availableNow` the end is pinned when the query starts. Where a new
stream begins is decided once, though Spark asks twice. The instance lives in one planner process per query
and holds no connection between calls.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidelog.pipeline.source.micro_batches import batch_ranges, from_json, next_offsets
from tidelog.pipeline.source.offsets import Place, resolve, to_json
from tidelog.pipeline.source.options import SourceOptions
from tidelog.pipeline.source.reading import (
    bounds_of,
    note_unread,
    read_partition,
    report_losses,
    starting_positions,
    tasks_of,
)

_Json = dict[str, dict[str, int]]


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans micro-batches on the driver, reads them in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pinned: dict[Place, tuple[int, int]] | None = None
        self._initial: dict[Place, int] | None = None

    def initialOffset(self) -> _Json:  # noqa: N802
        """Where a stream without a checkpoint begins: at startingOffsets, or what stands for it."""
        if self._initial is None:
            bounds = bounds_of(self._options)
            self._initial = resolve("startingOffsets", starting_positions(self._options, bounds), bounds)
            if self._pinned is not None:
                # Spark asks for the pinning first; a stream must not begin behind its end.
                self.prepareForTriggerAvailableNow()
        return to_json(self._initial)

    def latestOffset(self, start: Mapping[str, Mapping[str, Any]], limit: ReadLimit) -> _Json:  # noqa: N802
        """Where the micro-batch that begins at `start` ends. Raises OffsetsLostError."""
        bounds = self._pinned if self._pinned is not None else bounds_of(self._options)
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        losses = self._losses()
        ends = next_offsets(from_json(start), bounds, max_rows, losses)
        report_losses(losses)
        return to_json(ends)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """maxOffsetsPerTrigger, where it is given."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> _Json:  # noqa: N802
        """Where the logs end now, for Spark's progress report."""
        return to_json({place: end for place, (_, end) in bounds_of(self._options).items()})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to where the logs end now, and no further."""
        self._pinned = bounds_of(self._options)

    def partitions(
        self, start: Mapping[str, Mapping[str, Any]], end: Mapping[str, Mapping[str, Any]]
    ) -> Sequence[InputPartition]:
        """One for each partition with records to read, more if `minPartitions` asks. Raises
        OffsetsLostError."""
        losses = self._losses()
        starts, ends = from_json(start), from_json(end)
        ranges = batch_ranges(starts, ends, bounds_of(self._options), losses)
        tasks = tasks_of(self._options, ranges, losses)
        report_losses(losses)
        note_unread(self._options, {each: (starts.get(each, 0), stop) for each, stop in ends.items()}, tasks)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task's range, as Arrow batches."""
        return read_partition(self._options, partition)

    def _losses(self) -> list[str] | None:
        return None if self._options.fail_on_data_loss else []
