"""The stream side of `format("tidelog")`: micro-batches with admission control.

Owns the interface to Spark's planner: the end offsets of a micro-batch, and its input partitions.

Invariants: the offsets in Spark's checkpoint alone determine a micro-batch, so a replay reads the same
records, however its tasks are cut. With `availableNow` the end is fixed when the query starts. The start of a
new stream is decided once, though Spark asks twice.
"""

import time
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

from tidelog.client import ClientError
from tidelog.pipeline.offsets import Logs, OptionError, resolve, to_json
from tidelog.pipeline.options.source import SourceOptions
from tidelog.pipeline.source import reading
from tidelog.pipeline.source.fetch import commit_offsets
from tidelog.pipeline.source.micro_batches import (
    batch_ranges,
    forget_replaced,
    from_json,
    next_offsets,
    to_checkpoint,
    topic_ids_in,
    waiting_offsets,
)
from tidelog.pipeline.workers import fails_plainly

_Json = dict[str, dict[str, int]]
_KNOWN_SECONDS = 1.0
"""After which an idle stream asks again for new partitions, and whether a topic was created again."""


@fails_plainly
class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans micro-batches on the driver, reads them in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pinned: Logs | None = None
        self._known: Logs | None = None
        self._known_until = 0.0
        self._is_current = False
        self._committed: Mapping[str, Mapping[str, Any]] | None = None
        self._initial: _Json | None = None
        self._last_batch: float | None = None

    def initialOffset(self) -> _Json:  # noqa: N802
        """The start of a stream without a checkpoint: startingOffsets or startingOffsetsByTimestamp."""
        if self._initial is None:
            bounds, topic_ids, _ = reading.logs_of(self._options)
            initial = resolve("startingOffsets", reading.starting_positions(self._options, bounds), bounds)
            self._initial = to_checkpoint(initial, topic_ids)
            if self._pinned is not None:
                # Spark fixes the end first; a stream must not begin after its end.
                self.prepareForTriggerAvailableNow()
        return self._initial

    def latestOffset(self, start: Mapping[str, Mapping[str, Any]], limit: ReadLimit) -> _Json:  # noqa: N802
        """The end of the micro-batch that begins at `start`. Raises OffsetsLostError."""
        self._commit(start)
        self._is_current = False
        bounds, topic_ids, _ = self._pinned if self._pinned is not None else self._logs()
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        losses = self._losses()
        starts = forget_replaced(from_json(start), topic_ids_in(start), topic_ids, losses)
        if self._is_too_early(waiting_offsets(starts, bounds)):
            return {topic: dict(offsets) for topic, offsets in start.items()}
        ends = next_offsets(starts, bounds, max_rows, losses)
        reading.report_losses(losses)
        return to_checkpoint(ends, topic_ids)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """maxOffsetsPerTrigger, if it is set."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> _Json:  # noqa: N802
        """The logs' current ends, for Spark's progress report."""
        return to_json({place: end for place, (_, end) in self._logs().bounds.items()})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the stream at the logs' current ends."""
        self._pinned = reading.logs_of(self._options)

    def partitions(
        self, start: Mapping[str, Mapping[str, Any]], end: Mapping[str, Mapping[str, Any]]
    ) -> Sequence[InputPartition]:
        """Those of `reading.tasks_of`. Raises OffsetsLostError."""
        losses = self._losses()
        logs, self._is_current = self._logs(), False
        # The loss was reported when this batch was planned. It reads the new topic from offset 0.
        starts = forget_replaced(from_json(start), topic_ids_in(start), topic_ids_in(end), [])
        ends = forget_replaced(from_json(end), topic_ids_in(end), logs.topic_ids, losses)
        ranges = batch_ranges(starts, ends, logs.bounds, losses)
        tasks = reading.tasks_of(self._options, ranges, logs, losses)
        reading.report_losses(losses)
        reading.note_unread(
            self._options, {each: (starts.get(each, 0), stop) for each, stop in ends.items()}, tasks
        )
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task, as Arrow batches."""
        return reading.read_partition(self._options, partition)

    def _logs(self) -> Logs:
        """The logs as one trigger of the stream sees them. Its tasks notice what has changed since.

        An idle stream asks a hundred times a second: until a log has grown, it asks for the ends alone.
        """
        known = self._known
        if known is not None and not self._is_current:
            is_old = time.monotonic() > self._known_until
            known = None if is_old or not reading.ends_are_those_of(self._options, known) else known
        if known is None:
            known = self._known = reading.logs_of(self._options)
            self._known_until = time.monotonic() + _KNOWN_SECONDS
        self._is_current = True
        return known

    def _commit(self, start: Mapping[str, Mapping[str, Any]]) -> None:
        """Show to commit.group.id what the stream has finished: Spark begins a micro-batch where the last one
        ended."""
        options = self._options
        if options.commit_group_id and options.cluster is not None and start != self._committed:
            try:
                commit_offsets(options.cluster, options.commit_group_id, from_json(start))
                self._committed = start
            except ClientError as error:
                reading.warn_once(f"commit.group.id={options.commit_group_id}: {error}")

    def _is_too_early(self, waiting: int) -> bool:
        """Whether a micro-batch is to wait for more records, as minOffsetsPerTrigger asks."""
        least, now = self._options.min_offsets_per_trigger, time.monotonic()
        if least is None or self._pinned is not None:
            return False
        delay_seconds = self._options.max_trigger_delay_ms / 1000
        if waiting < least and self._last_batch is not None and now - self._last_batch < delay_seconds:
            return True
        self._last_batch = now
        return False

    def _losses(self) -> list[str] | None:
        return None if self._options.fail_on_data_loss else []


@fails_plainly
class RefusedStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Stands for a stream that cannot be read as asked: the first question of Spark's raises the reason."""

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def _refuse(self, *_: object) -> Any:
        """Raises OptionError."""
        raise self._error

    initialOffset = latestOffset = getDefaultReadLimit = read = _refuse  # noqa: N815
