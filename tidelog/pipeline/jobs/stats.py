"""The stats: how many records and bytes per second, how large the records, how late, by partition and window.

Owns the meaning of the numbers:
- size: the bytes of a record's key, value and headers (names and values), without the batch around it;
- rate: in a window, divided by the window's length, however much of it the data covers (the first and the
  last window are partial); in a total, by the time from the first to the last record, or the time watched;
- lag, where the topic is read as it is (a log holds one timestamp per record, not when it came):
  how far a record's timestamp lies behind the newest one before it in its partition. It came after that
  one, so it was at least this late. None if the timestamp is the broker's (LogAppendTime);
- lag, where the topic is watched (`follow_seconds`): the time at which a reader that never pauses saw the
  record, less its timestamp. At most one micro-batch too long;
- newest_age_ms: the run's start less the newest timestamp.

Windows are of record timestamps; when watched, of the times at which records were seen. Percentiles come from
KLL sketches: exact below 400 records, their rank within 1 % above. Read-only.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.pipeline.jobs.job import JobProgress, OnProgress, ShowProgress, progress_to
from tidelog.pipeline.jobs.quantities import as_duration, as_number, as_size
from tidelog.pipeline.jobs.stats_settings import StatsSettings
from tidelog.pipeline.jobs.stats_sketches import METRICS, PARTS, merge, metrics, size_of_record, sketch
from tidelog.pipeline.offsets import Place, to_json
from tidelog.pipeline.source.fetch import find_bounds
from tidelog.pipeline.source.micro_batches import reported_offsets
from tidelog.wire.cluster_config import ClusterConfig

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

READ_COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType")
_WINDOW = ("topic", "partition", "window_ms")
_TABLE = ("topic", "partition", "records", "records_per_second", "bytes_per_second", *METRICS[4:])
_MICRO_BATCH = "250 milliseconds"
_MOST_PARTS = 500
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class StatsReport:
    """`total` has METRICS and newest_age_ms over everything; `partitions` the same a partition, by name.

    Numbers that no record gives are None. `watched` says which lag was measured.
    """

    watched: bool
    windows: int
    total: dict[str, Any]
    partitions: tuple[dict[str, Any], ...]

    @property
    def exit_code(self) -> int:
        """0: nothing that stats find is wrong."""
        return 0

    def summary(self) -> dict[str, object]:
        """Flat, for programs."""
        names = {"event": "stats_finished", "lag_is": "seen" if self.watched else "at_least"}
        return {**names, "partitions": len(self.partitions), "windows": self.windows, **self.total}

    def table(self) -> tuple[list[str], list[list[object]]]:
        """Columns and rows for a terminal, one row per partition; numbers as people read them."""
        columns = [
            name.removesuffix("_ms").upper().replace("_PER_SECOND", "/S").replace("_", " ") for name in _TABLE
        ]
        return columns, [[_cell(name, row[name]) for name in _TABLE] for row in self.partitions]


def _cell(name: str, value: Any) -> str:
    if value is None or name == "topic":
        return value or "-"
    if name.endswith("_ms"):
        return as_duration(value)
    return as_size(value) if name.startswith(("bytes", "size")) else as_number(value)


def build(spark: "SparkSession", settings: StatsSettings) -> "DataFrame":
    """One row for each topic, partition and window_start, with METRICS.

    A stream where `follow_seconds` is set, for output mode complete or update. Raises OptionError.
    """
    settings.check()
    return _windows(sketch(measure(spark, settings), settings.window), settings)


def run(
    spark: "SparkSession",
    settings: StatsSettings,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
) -> StatsReport:
    """Measure, write what `output` and `plot` ask for, and report; `stop` ends the watching.

    Raises OptionError, ClientError.
    """
    settings.check()
    show = progress_to(on_progress)
    began_ms = time.time_ns() // 1_000_000
    seconds = None
    if settings.follow_seconds is None:
        show(JobProgress(0, None, 0, f"reads {', '.join(settings.topics)}"))
        parts = sketch(measure(spark, settings), settings.window)
    else:
        until = stop or threading.Event()
        parts, seconds = _follow(spark, settings, settings.follow_seconds, show, until)
    parts = parts.persist()
    try:
        windows = _windows(parts, settings)
        if settings.output is not None:
            windows.write.mode("overwrite").parquet(settings.output)
        by_partition = merge(parts, "topic", "partition").persist()
        partitions = _totals(by_partition, seconds, began_ms, "topic", "partition")
        (total,) = _totals(merge(by_partition), seconds, began_ms)
        by_partition.unpersist()
        count = parts.count()
        if settings.plot is not None:
            _draw(parts, settings, settings.plot)
    finally:
        parts.unpersist()
    show(JobProgress(total["records"], total["records"], 1, "measured"))
    return StatsReport(settings.follow_seconds is not None, count, total, tuple(partitions))


def measure(spark: "SparkSession", settings: StatsSettings) -> "DataFrame":
    """Each record as topic, partition, time (that its window is of), timestamp_ms, size and lag_ms."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    options = {"subscribe": ",".join(settings.topics), "columns": ",".join(READ_COLUMNS)}
    if settings.cluster is not None:
        options |= settings.cluster.to_options()
    if settings.path is not None:
        options["read.path"] = settings.path
    created_ms = f.unix_millis("timestamp")
    if settings.follow_seconds is not None:
        options["startingOffsets"] = json.dumps(to_json(_ends(settings)))
        records = spark.readStream.format("tidelog").options(**options).load()
        # In a stream this is when the micro-batch was planned, just after the broker said what there is.
        seen = f.current_timestamp()
        return _measured(records, seen, f.when(created_ms >= 0, f.unix_millis(seen) - created_ms))
    records = spark.read.format("tidelog").options(**options).load()
    earlier = Window.partitionBy("topic", "partition").orderBy("offset")
    newest = f.max(created_ms).over(earlier.rowsBetween(Window.unboundedPreceding, -1))
    behind = f.greatest(f.coalesce(newest, created_ms) - created_ms, f.lit(0))
    is_known = (f.col("timestampType") == 0) & (created_ms >= 0)
    return _measured(records, f.col("timestamp"), f.when(is_known, behind))


def _measured(records: "DataFrame", time: "Column", lag_ms: "Column") -> "DataFrame":
    from pyspark.sql import functions as f

    return records.select(
        "topic",
        "partition",
        time.alias("time"),
        f.unix_millis("timestamp").alias("timestamp_ms"),
        size_of_record().alias("size"),
        lag_ms.alias("lag_ms"),
    )


def _windows(parts: "DataFrame", settings: StatsSettings) -> "DataFrame":
    from pyspark.sql import functions as f

    found = metrics(parts, settings.window_seconds, *_WINDOW)
    start = f.timestamp_millis("window_ms").alias("window_start")
    return found.select("topic", "partition", start, *METRICS)


def _totals(merged: "DataFrame", seconds: float | None, began_ms: int, *keys: str) -> list[dict[str, Any]]:
    """METRICS and newest_age_ms of what was merged by `keys`, in their order."""
    from pyspark.sql import functions as f

    span = f.lit(seconds) if seconds is not None else (f.col("last_ms") - f.col("first_ms")) / 1000
    totals = []
    for row in metrics(merged, span, *keys, "last_ms").orderBy(*keys or ("last_ms",)).collect():
        values = row.asDict()
        last_ms = values.pop("last_ms")
        # Over no record at all, Spark's sums are None.
        counts = {name: values[name] or 0 for name in ("records", "bytes")}
        age = None if last_ms is None else began_ms - last_ms
        totals.append(values | counts | {"newest_age_ms": age})
    return totals


def _follow(
    spark: "SparkSession", settings: StatsSettings, seconds: int, show: ShowProgress, stop: threading.Event
) -> tuple["DataFrame", float]:
    """What arrives from now on, for `seconds` or until `stop`, and the time that took."""
    rows: list[Any] = []
    seen = batches = 0

    def take(batch: "DataFrame", _: int) -> None:
        nonlocal rows, seen, batches
        new = sketch(batch, settings.window).collect()
        rows += new
        seen, batches = seen + sum(row["records"] for row in new), batches + 1
        if len(rows) > _MOST_PARTS:
            rows = merge(spark.createDataFrame(rows, PARTS), *_WINDOW).collect()
        show(JobProgress(seen, None, batches, "watches"))

    measured = measure(spark, settings)
    began = time.monotonic()
    show(JobProgress(0, None, 0, f"watches {', '.join(settings.topics)} for {seconds} s"))
    query = measured.writeStream.foreachBatch(take).trigger(processingTime=_MICRO_BATCH).start()
    try:
        while not stop.is_set() and time.monotonic() < began + seconds:
            query.awaitTermination(_POLL_SECONDS)
        watched = time.monotonic() - began
        ends = _ends(settings)
        while not _has_reached(query, ends):
            query.awaitTermination(_POLL_SECONDS)
    finally:
        query.stop()
    return merge(spark.createDataFrame(rows, PARTS), *_WINDOW), watched


def _has_reached(query: "StreamingQuery", ends: Mapping[Place, int]) -> bool:
    reached = reported_offsets(query.lastProgress, "endOffset")
    return reached is not None and all(reached.get(place, 0) >= end for place, end in ends.items())


def _ends(settings: StatsSettings) -> dict[Place, int]:
    """Where each partition's log ends now."""
    bounds = find_bounds(settings.cluster or ClusterConfig(), settings.topics, None)
    return {place: end for place, (_, end) in bounds.items()}


def _draw(parts: "DataFrame", settings: StatsSettings, file: str) -> None:
    from tidelog.pipeline.jobs.stats_plot import draw

    by_topic = ("topic", "window_ms")
    topics = metrics(merge(parts, *by_topic), settings.window_seconds, *by_topic)
    partitions = metrics(parts, settings.window_seconds, *_WINDOW)
    draw(
        Path(file),
        [row.asDict() for row in topics.orderBy(*by_topic).collect()],
        [row.asDict() for row in partitions.orderBy(*_WINDOW).collect()],
        settings.window_seconds,
        lag_is_seen=settings.follow_seconds is not None,
    )
