"""The audit: does each partition hold every record of each idempotent producer once, and in its order?

Owns the meaning of the findings. They are judged per (topic, partition, producer, epoch), by offset:
- duplicate: a sequence that came before;
- gap: sequences that never come although later ones do, or that an epoch leaves out at its start: a new
  epoch, or the first one of a log that begins at offset 0 (else retention may have removed them);
- reordered: a sequence that comes for the first time after a later one;
- epoch_regression: an epoch below one that the same producer already used in the partition.

Sequences wrap from 2147483647 to 0; two adjacent ones in the log are taken as less than 2^30 apart. Records
without a producer's identity cannot be judged and are only counted. In a compacted topic the
records that compaction removed show as gaps: only the other kinds are errors there.
Read-only and repeatable: the ends are fixed when it begins.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.pipeline.jobs.audit_settings import AuditSettings
from tidelog.pipeline.jobs.job import JobProgress, OnProgress, progress_to
from tidelog.pipeline.offsets import OffsetRange, Place
from tidelog.pipeline.options.source import options_of_ranges, parse_paths
from tidelog.pipeline.segments import data_folders
from tidelog.pipeline.source.fetch import find_bounds, find_logs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KINDS = ("duplicate", "gap", "reordered", "epoch_regression")
COLUMNS = ("topic", "partition", "offset", "producer_id", "producer_epoch", "sequence")
_SEQUENCES = 2**31
_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit found. `findings` counts by kind, `shown` holds the first of them by place."""

    records: int
    unidentified: int
    producers: int
    findings: dict[str, int]
    shown: tuple[dict[str, Any], ...]

    @property
    def is_clean(self) -> bool:
        """True when there is no finding of any kind."""
        return not any(self.findings.values())

    @property
    def exit_code(self) -> int:
        """1 where there is a finding."""
        return 0 if self.is_clean else 1

    def summary(self) -> dict[str, object]:
        """Flat, for programs."""
        counts = {name: getattr(self, name) for name in ("records", "unidentified", "producers")}
        return {"event": "audit_finished", **counts, **self.findings}


def build(spark: "SparkSession", settings: AuditSettings) -> "DataFrame":
    """The findings, one row each: see `find`. Raises OptionError, ClientError, FileNotFoundError."""
    return find(records(spark, settings), whole_logs(settings))


def run(spark: "SparkSession", settings: AuditSettings, on_progress: OnProgress | None = None) -> AuditReport:
    """Do the audit, write the findings where `output` says (replacing what exists), and report."""
    from pyspark.sql import functions as f

    show = progress_to(on_progress)
    show(JobProgress(0, None, 0, "reads the records"))
    read = records(spark, settings).persist()
    try:
        identified = f.col("producer_id") >= 0
        producers = f.count_distinct(f.when(identified, f.col("producer_id")))
        total, judged, known = read.agg(
            f.count(f.lit(1)), f.count(f.when(identified, 1)), producers
        ).collect()[0]
        show(JobProgress(total, total, 1, "judges them"))
        # Asked after the reading: retention cannot have taken anything before it.
        found = find(read, whole_logs(settings)).persist()
        counts = {row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()}
        if settings.output is not None:
            found.write.mode("overwrite").parquet(settings.output)
        shown = found.orderBy("topic", "partition", "offset", "kind").limit(_MOST_SHOWN).collect()
        found.unpersist()
    finally:
        read.unpersist()
    return AuditReport(
        records=total,
        unidentified=total - judged,
        producers=known,
        findings={kind: counts.get(kind, 0) for kind in KINDS},
        shown=tuple(row.asDict() for row in shown),
    )


def records(spark: "SparkSession", settings: AuditSettings) -> "DataFrame":
    """COLUMNS of every record that is to be judged."""
    settings.check()
    options = {"columns": ",".join(COLUMNS)}
    if settings.path is None:
        cluster = settings.cluster.to_options() if settings.cluster is not None else {}
        options |= {**cluster, "subscribe": ",".join(settings.topics)}
    else:
        folders, bounds = _files(settings, settings.path)
        ranges = [OffsetRange(*place, start, end) for place, (start, end) in bounds.items()]
        options |= {"read.path": ",".join(folders), **options_of_ranges(ranges)}
    return spark.read.format("tidelog").options(**options).load()


def whole_logs(settings: AuditSettings) -> list[Place]:
    """The partitions whose logs still begin at offset 0. Raises ClientError, FileNotFoundError."""
    if settings.path is not None:
        _, bounds = _files(settings, settings.path)
    elif settings.cluster is not None:
        bounds = find_bounds(settings.cluster, settings.topics, None)
    else:
        return []
    return [place for place, (start, _) in bounds.items() if not start]


def _files(settings: AuditSettings, path: str) -> tuple[list[str], data_folders.Bounds]:
    """The data folders, and the bounds of the logs in their segment files: to the high watermarks where a
    broker names them, else to the last whole batch."""
    folders = [Path(each) for each in parse_paths(path)]
    for folder in folders:
        data_folders.require_readable(folder)
    found = data_folders.find_segments(folders, settings.topics)
    homes = sorted({str(segment.home) for segment in found})
    if settings.cluster is None:
        return homes, data_folders.bounds_in_files(data_folders.by_place(found))
    logs = find_logs(settings.cluster, None, sorted({segment.place for segment in found}))
    ends = {place: end for place, (_, end) in logs.bounds.items()}
    return homes, data_folders.bounds_in_files(data_folders.at_leaders(found, logs.leaders), ends)


def find(records: "DataFrame", whole: Iterable[Place] = ()) -> "DataFrame":
    """The findings in a DataFrame with COLUMNS, one row each. `whole` names the partitions of which it holds
    everything from offset 0 on.

    Columns: topic, partition, producer_id, producer_epoch, kind (of KINDS), the offset and sequence where it
    shows, and `amount`: how many sequences a gap leaves out, 1 for the others.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    producer = ["topic", "partition", "producer_id"]
    run = [*producer, "producer_epoch"]
    in_order = Window.partitionBy(*run).orderBy("offset")
    before = (Window.unboundedPreceding, -1)
    by_place = Window.partitionBy(*run).orderBy("place")
    previous = f.lag("sequence").over(in_order)
    distance = f.pmod(f.col("sequence") - previous + _SEQUENCES // 2, f.lit(_SEQUENCES)) - _SEQUENCES // 2
    judged = (
        records.where("producer_id >= 0 and sequence >= 0")
        .withColumn("sequence", f.col("sequence").cast("long"))
        .withColumn("distance", f.coalesce(distance, f.lit(0)))
        # The position of a sequence from the run's first record, so without the wrap.
        .withColumn("place", f.sum("distance").over(in_order))
        .withColumn("copy", f.row_number().over(Window.partitionBy(*run, "place").orderBy("offset")))
        .withColumn("highest", f.max("place").over(in_order.rowsBetween(*before)))
        .withColumn("lower", f.max("place").over(by_place.rangeBetween(*before)))
        .withColumn("first_epoch", f.min("producer_epoch").over(Window.partitionBy(*producer)))
        .withColumn(
            "highest_epoch",
            f.max("producer_epoch").over(
                Window.partitionBy(*producer).orderBy("offset").rowsBetween(*before)
            ),
        )
    )
    is_new = f.col("copy") == 1
    is_whole = f.concat_ws("-", "topic", "partition").isin(*map(str, whole))
    starts_epoch = f.col("lower").isNull() & (is_whole | (f.col("producer_epoch") > f.col("first_epoch")))
    missing = f.when(starts_epoch, f.col("sequence")).otherwise(f.col("place") - f.col("lower") - 1)
    one = f.lit(1).cast("long")
    found = f.array_compact(
        f.array(
            _finding("duplicate", ~is_new, one),
            _finding("gap", is_new & (missing > 0), missing),
            _finding("reordered", is_new & (f.col("place") < f.col("highest")), one),
            _finding("epoch_regression", f.col("producer_epoch") < f.col("highest_epoch"), one),
        )
    )
    exploded = judged.select(*run, "offset", "sequence", f.explode(found).alias("found"))
    return exploded.select(*run, "found.kind", "offset", "sequence", "found.amount")


def _finding(kind: str, condition: "Column", amount: "Column") -> "Column":
    from pyspark.sql import functions as f

    return f.when(condition, f.struct(f.lit(kind).alias("kind"), amount.alias("amount")))
