"""The replay: writes an archive, or offsets of a topic, back into a topic, each record once, resumable.

Owns what is replayed: the topics, partitions, offsets and times of the settings, then `where`, then `select`,
both SQL over the columns of the source. Partitions, timestamps and headers are kept. Each record gets the
header that names its source: `tidelog.source` with topic, partition and offset, which an archive keeps.
`pipeline.mirror.writer` makes it exact: if a topic holds a record of a source partition, it gets only later
ones.

Missing topics are created, and keep their records without a time limit (retention.ms -1), because replayed
records are old. If a topic still holds the records to replay into it, the replay is refused.

Invariants: rows of a source partition come in the order of their offsets in one task. Random expressions,
another replay in the same session, and the current time in `where` are refused.
"""

import asyncio
import json
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tidelog.pipeline.jobs.copies import only_run
from tidelog.pipeline.jobs.job import JobProgress, OnProgress, ShowProgress, progress_to, use_in_this_thread
from tidelog.pipeline.jobs.projection import project
from tidelog.pipeline.jobs.replay_settings import ReplaySettings
from tidelog.pipeline.jobs.replay_sources import ArchivedRecords, Bounds, Records, TopicRecords
from tidelog.pipeline.jobs.replay_topics import prepare_topics
from tidelog.pipeline.mirror.session_folder import MirrorSession
from tidelog.pipeline.offsets import OffsetRange, OptionError
from tidelog.pipeline.options.sink import POSITION_COLUMNS, parse_sink_options
from tidelog.pipeline.paths import shared_folder
from tidelog.pipeline.source.micro_batches import batch_ranges, next_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_TASKS = 200


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a run did. `rows_skipped` were stored before; `offsets_left` were not read, because the run was
    stopped."""

    partitions: int
    rounds: int
    rows_read: int
    rows_written: int
    rows_skipped: int
    offsets_left: int
    seconds: float

    @property
    def exit_code(self) -> int:
        """0: a replay that cannot continue raises."""
        return 0

    def summary(self) -> dict[str, object]:
        """Flat, for programs."""
        return {"event": "replay_finished", **asdict(self)}


def build(spark: "SparkSession", settings: ReplaySettings) -> "DataFrame":
    """All rows for the sink, stored or not. Raises OptionError, ClientError."""
    settings.check()
    records = _records(spark, settings)
    return _rows(spark, settings, records, _ranges(_chosen(records, settings)))


def run(
    spark: "SparkSession",
    settings: ReplaySettings,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
) -> ReplayReport:
    """Replay the rows that are not stored yet. If `stop` is set, end after the current round.

    Raises OptionError, MirrorError, ClientError, or Spark's error for what a task met.
    """
    settings.check()
    use_in_this_thread(spark)
    show = progress_to(on_progress)
    records = _records(spark, settings)
    bounds = _chosen(records, settings)
    if not bounds:
        return ReplayReport(0, 0, 0, 0, 0, 0, 0.0)
    # Invalid settings are reported before anything is made.
    _rows(spark, settings, records, _ranges(bounds))
    from tidelog.pipeline.mirror.writer import open_session

    session = MirrorSession(str(settings.session_path), "")
    with only_run(session):
        asyncio.run(prepare_topics(settings, session, records.topic_ids(), bounds))
        # Also if nothing is left to be written: it would have been written otherwise.
        open_session(parse_sink_options(_sink_options(settings), is_stream=False))
        return _run(spark, settings, records, bounds, session, show, stop)


def _run(
    spark: "SparkSession",
    settings: ReplaySettings,
    records: Records,
    bounds: Bounds,
    session: MirrorSession,
    show: ShowProgress,
    stop: threading.Event | None,
) -> ReplayReport:
    began = time.monotonic()
    known = session.facts(None).sources
    starts = {
        place: min(max(start, known[place].last_offset + 1 if place in known else start), end)
        for place, (start, end) in bounds.items()
    }
    total = sum(end - start for start, end in bounds.values())
    before = _counts(session)
    rounds = 0
    while left := sum(end - starts[place] for place, (_, end) in bounds.items()):
        show(JobProgress(total - left, total, rounds, "replays"))
        if stop is not None and stop.is_set():
            break
        ends = next_offsets(starts, bounds, settings.max_rows, None)
        ranges = batch_ranges(starts, ends, bounds, None)
        rows = _rows(spark, settings, records, ranges)
        rows.write.format("tidelog").mode("append").options(**_sink_options(settings)).save()
        starts, rounds = ends, rounds + 1
    show(JobProgress(total - left, total, rounds, "has replayed"))
    read, written, skipped = (after - first for after, first in zip(_counts(session), before, strict=True))
    seconds = round(time.monotonic() - began, 3)
    return ReplayReport(len(bounds), rounds, read, written, skipped, left, seconds)


def _records(spark: "SparkSession", settings: ReplaySettings) -> Records:
    if settings.archive is not None:
        return ArchivedRecords(
            spark,
            shared_folder("archive", settings.archive),
            settings.topics,
            settings.times,
            allow_gaps=settings.allow_gaps,
        )
    return TopicRecords(spark, settings.source, settings.topics, settings.times)


def _chosen(records: Records, settings: ReplaySettings) -> Bounds:
    """The bounds of the replay. Raises OptionError for a partition that does not exist."""
    first, end = settings.start_offset or 0, settings.end_offset
    found = records.bounds()
    if strange := sorted(set(settings.partitions) - {place.partition for place in found}):
        raise OptionError(f"there is no partition {strange[0]} in what is to be replayed")
    chosen = {}
    for place, (log_start, log_end) in found.items():
        cut = max(log_start, first), log_end if end is None else min(log_end, end)
        if (not settings.partitions or place.partition in settings.partitions) and cut[0] < cut[1]:
            chosen[place] = cut
    return chosen


def _ranges(bounds: Bounds) -> list[OffsetRange]:
    return [OffsetRange(*place, start, end) for place, (start, end) in sorted(bounds.items())]


def _rows(
    spark: "SparkSession", settings: ReplaySettings, records: Records, ranges: list[OffsetRange]
) -> "DataFrame":
    """The rows of some ranges for the sink."""
    from pyspark.sql import functions as f

    from tidelog.pipeline.schema import SCHEMA

    found = records.read(ranges) if ranges else spark.createDataFrame([], SCHEMA)
    start_ms, end_ms = settings.times
    milliseconds = f.unix_millis("timestamp")
    if start_ms is not None:
        found = found.where(milliseconds >= start_ms)
    if end_ms is not None:
        found = found.where(milliseconds < end_ms)
    rows = project(spark, found, settings.where, settings.select)
    if settings.to_topic is None:
        rows = rows.withColumn("topic", f.col("source_topic"))
    if records.is_ordered:
        return rows
    tasks = max(1, min(len(ranges), _MOST_TASKS))
    by_place = rows.repartition(tasks, "source_topic", "source_partition")
    return by_place.sortWithinPartitions(*POSITION_COLUMNS)


def _sink_options(settings: ReplaySettings) -> dict[str, str]:
    decisive = {
        name: getattr(settings, name)
        for name in ("where", "select", "start_time", "end_time", "start_offset")
    }
    options = {
        **settings.cluster.to_options(),
        "delivery": "mirror",
        "session.path": str(settings.session_path),
        "mirror.plan": json.dumps(decisive),
        "mirror.gaps": "allow" if settings.leaves_out else "refuse",
        "compression.type": settings.compression_type,
    }
    if settings.to_topic is not None:
        options["topic"] = settings.to_topic
    return options


def _counts(session: MirrorSession) -> tuple[int, int, int]:
    """Rows that were read, written and skipped in this session so far."""
    runs = [path.stem for path in (session.folder / "counts").glob("*.json")]
    totals = [session.counts(run) for run in runs]
    return (
        sum(each.read for each in totals),
        sum(each.written for each in totals),
        sum(each.skipped for each in totals),
    )
