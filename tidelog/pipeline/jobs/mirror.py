"""The mirror: copies topics to topics, on one cluster or between two, each record once, even after kills.

Owns what a mirror reads and writes. Partitions, timestamps and headers are kept; each record gets one more
header that names its source (`tidelog.source`: TOPIC-PARTITION@OFFSET). `pipeline.mirror.writer` makes it
exact: the checkpoint folder holds the mirror's session, and a new run with it continues without loss or
duplicates.

Invariants: one task reads each source partition in its order, so only filters cause gaps. Random expressions
(rand() in `where`) and compacted topics are refused, because a second read would return other rows. Also
refused are a topic or a copy that was deleted and created again, a copy of another topic of the same name
(`pipeline.jobs.mirror_origin`), and copies that would be mirrored again (`pipeline.jobs.mirror_topics`).
"""

import asyncio
import json
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from tidelog.client import ClientError
from tidelog.pipeline.jobs.copies import only_run
from tidelog.pipeline.jobs.job import JobProgress, OnProgress, ShowProgress, progress_to, use_in_this_thread
from tidelog.pipeline.jobs.mirror_origin import check_rivals
from tidelog.pipeline.jobs.mirror_settings import MirrorSettings
from tidelog.pipeline.jobs.mirror_topics import prepare_topics
from tidelog.pipeline.jobs.projection import KEPT, PLACED, project
from tidelog.pipeline.mirror.session_folder import MirrorCounts, MirrorSession
from tidelog.pipeline.source.losses import count_losses
from tidelog.pipeline.source.micro_batches import offsets_behind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# What this run lost; nothing of the session.
_LOST = "lost"
_POLL_SECONDS = 0.5
_LOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """What a run did. `skipped` rows were stored by an earlier run; `lost_offsets` were deleted from the
    source before they could be read."""

    topics: int
    counts: MirrorCounts
    seconds: float
    lost_offsets: int = 0

    @property
    def exit_code(self) -> int:
        """1 if offsets were lost. A mirror that cannot continue raises."""
        return 1 if self.lost_offsets else 0

    def summary(self) -> dict[str, object]:
        """Flat, for programs."""
        return {
            "event": "mirror_finished",
            "topics": self.topics,
            "rows_read": self.counts.read,
            "rows_written": self.counts.written,
            "rows_skipped": self.counts.skipped,
            "batches": self.counts.batches,
            "lost_offsets": self.lost_offsets,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.counts.read / self.seconds) if self.seconds else 0,
        }


def build(spark: "SparkSession", settings: MirrorSettings) -> "DataFrame":
    """The rows for the sink, as a stream. Raises OptionError."""
    return _rows(spark, settings, None)


def _rows(spark: "SparkSession", settings: MirrorSettings, lost: Path | None) -> "DataFrame":
    """As `build`; `lost` is where losses are noted."""
    from pyspark.sql import functions as f

    settings.check()
    source = {
        **settings.cluster.to_options(),
        "startingOffsets": "earliest",
        "isolation.level": settings.isolation_level,
        "columns": ",".join((*KEPT, *PLACED)),
        "failOnDataLoss": str(settings.fail_on_data_loss).lower(),
    }
    source |= {"subscribe": ",".join(settings.topics)} if settings.topics else {}
    source |= {"subscribePattern": settings.topic_pattern} if settings.topic_pattern else {}
    if lost is not None:
        source["losses.path"] = str(lost)
    if settings.max_offsets_per_trigger is not None:
        source["maxOffsetsPerTrigger"] = str(settings.max_offsets_per_trigger)
    read = spark.readStream.format("tidelog").options(**source).load()
    rows = project(spark, read, settings.where, settings.select)
    topic = f.concat(f.lit(settings.prefix), f.col("source_topic"))
    for old, new in settings.names.items():
        topic = f.when(f.col("source_topic") == old, f.lit(new)).otherwise(topic)
    return rows.withColumn("topic", topic)


def run(
    spark: "SparkSession",
    settings: MirrorSettings,
    on_progress: OnProgress | None = None,
    stop: Event | None = None,
) -> MirrorReport:
    """Mirror the records up to the current end, or, with `trigger_seconds`, until `stop` is set.

    Raises OptionError, MirrorError, ClientError, or Spark's error for what a task met.
    """
    use_in_this_thread(spark)
    lost = settings.session_path / _LOST
    rows = _rows(spark, settings, lost)
    session = MirrorSession(str(settings.session_path), "")
    with only_run(session):
        shutil.rmtree(lost, ignore_errors=True)
        report = _run(settings, session, rows, progress_to(on_progress), stop)
        return replace(report, lost_offsets=count_losses(lost))


def _run(
    settings: MirrorSettings,
    session: MirrorSession,
    rows: "DataFrame",
    show: ShowProgress,
    stop: Event | None,
) -> MirrorReport:
    prepared = asyncio.run(prepare_topics(settings, session))
    asyncio.run(check_rivals(session, settings.target))
    began = time.monotonic()
    options = {
        **settings.target.to_options(),
        "delivery": "mirror",
        "checkpointLocation": settings.checkpoint,
        "session.path": str(settings.session_path),
        "mirror.plan": _plan(settings),
        "mirror.gaps": "allow",
        "compression.type": settings.compression_type,
    }
    writer = rows.writeStream.format("tidelog").options(**options)
    if settings.trigger_seconds is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(settings.trigger_seconds * 1000)} milliseconds")
    runs = _Runs(settings, session, writer, prepared.topics)
    try:
        while not runs.have_ended():
            show(runs.progress)
            if stop is not None and stop.is_set():
                break
    finally:
        # The next run repeats a batch that this interrupts.
        runs.query.stop()
    counts = runs.counts()
    show(JobProgress(counts.read, counts.read, counts.batches, "done"))
    return MirrorReport(runs.topics, counts, time.monotonic() - began)


class _Runs:
    """The stream. It is restarted if a batch finds a topic whose copy does not exist yet."""

    def __init__(
        self, settings: MirrorSettings, session: MirrorSession, writer: "DataStreamWriter", topics: int
    ) -> None:
        self._settings = settings
        self._session = session
        self._writer = writer
        self.topics = topics
        self.query: StreamingQuery = writer.start()
        self._run_ids = [str(self.query.runId)]
        self._looked_at = time.monotonic()
        self._is_changed = False

    def have_ended(self) -> bool:
        """Wait a moment for the end. Raises what the stream ended with, or as `prepare_topics`."""
        from pyspark.errors import StreamingQueryException

        try:
            if self.query.awaitTermination(_POLL_SECONDS):
                return True
        except StreamingQueryException:
            # The copy may have been made between the batch's failure and now.
            if not (self._look() or self._is_changed):
                raise
            self._is_changed = False
            self.query = self._writer.start()
            self._run_ids.append(str(self.query.runId))
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self._look()
        return False

    def counts(self) -> MirrorCounts:
        """What was done so far."""
        each_run = [self._session.counts(run_id) for run_id in self._run_ids]
        return MirrorCounts(*map(sum, zip(*each_run, strict=True)))

    def progress(self) -> JobProgress:
        """The progress. The total is known after the first batch, and only without a filter."""
        counts = self.counts()
        waiting = offsets_behind(self.query.lastProgress) if self._settings.where is None else None
        total = None if waiting is None else counts.read + sum(waiting.values())
        return JobProgress(counts.read, total, counts.batches, f"mirroring {self.topics} topics")

    def _look(self) -> bool:
        """Whether a copy had to be made or enlarged for new topics or partitions."""
        self._looked_at = time.monotonic()
        try:
            prepared = asyncio.run(prepare_topics(self._settings, self._session))
        except ClientError as error:
            if not error.retriable:
                raise
            return False
        self.topics = prepared.topics
        self._is_changed |= prepared.is_changed
        return prepared.is_changed


def _plan(settings: MirrorSettings) -> str:
    """What decides which rows go where."""
    return json.dumps(
        {
            "where": settings.where,
            "select": settings.select,
            "rename": sorted(settings.names.items()),
            "prefix": settings.prefix,
            "isolation_level": settings.isolation_level,
        }
    )
