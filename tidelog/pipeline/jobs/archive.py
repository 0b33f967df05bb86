"""The archive: topics to date-partitioned Parquet, each record once, for any reader.

Owns the rounds: each reads about `max_rows` records, from the end of the archive towards the log's end (as it
is, or as it was when the job began).

Invariants: only the archive says which offsets it holds. There is no checkpoint that could be lost or
contradict it. A killed run loses only its last round.
"""

import asyncio
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.pipeline.jobs.archive_compaction import compact
from tidelog.pipeline.jobs.archive_files import ArchiveError, DraftFile, write_drafts
from tidelog.pipeline.jobs.archive_log import Archive, missing_files
from tidelog.pipeline.jobs.archive_settings import ArchiveSettings
from tidelog.pipeline.jobs.copies import origin_of
from tidelog.pipeline.jobs.job import JobProgress, OnProgress, progress_to
from tidelog.pipeline.offsets import OffsetRange, Place
from tidelog.pipeline.options.source import SourceOptions, options_of_ranges, parse_options
from tidelog.pipeline.source.losses import count_losses
from tidelog.pipeline.source.micro_batches import batch_ranges, next_offsets
from tidelog.pipeline.source.reading import logs_of, report_losses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What a run added. `lost_offsets` were deleted from the log before they could be read. `missing_files`
    were in the archive before. `compacted_files` are fewer by compaction. `behind` counts the offsets that a
    stopped run left unread."""

    path: str
    rows: int = 0
    files: int = 0
    bytes: int = 0
    rounds: int = 0
    partitions: int = 0
    lost_offsets: int = 0
    missing_files: int = 0
    compacted_files: int = 0
    behind: int = 0

    @property
    def exit_code(self) -> int:
        """1 if offsets were lost or files are missing."""
        return 1 if self.lost_offsets or self.missing_files else 0

    def summary(self) -> dict[str, object]:
        """Flat, for programs."""
        return {"event": "archive_finished", **asdict(self)}


def build(spark: "SparkSession", settings: ArchiveSettings) -> "DataFrame":
    """The records of the first round of a new archive, as the source gives them.

    Raises OptionError, ClientError, FileNotFoundError.
    """
    settings.check()
    job = _Job(spark, settings)
    bounds = logs_of(job.options).bounds
    starts = {place: start for place, (start, _) in bounds.items()}
    ends = next_offsets(starts, bounds, settings.max_rows, None)
    return job.read(batch_ranges(starts, ends, bounds, None))


def run(
    spark: "SparkSession",
    settings: ArchiveSettings,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
) -> ArchiveReport:
    """Archive the records that are not archived yet. If `stop` is set, end after the current round.

    Raises OptionError, ArchiveError, OffsetsLostError, ClientError, FileNotFoundError.
    """
    settings.check()
    stopping = stop or threading.Event()
    show = progress_to(on_progress)
    job = _Job(spark, settings)
    with Archive(str(settings.path)) as archive:
        bounds = job.look(archive)
        missing = missing_files(archive.root)
        for each in missing:
            _log.warning("missing from the archive in %s: %s; restore it", archive.root, each)
        report = ArchiveReport(str(archive.root), partitions=len(bounds), missing_files=len(missing))
        compacted_at = -1
        while True:
            starts, lost = _starts(archive, bounds)
            waiting = sum(end - starts[place] for place, (_, end) in bounds.items())
            if stopping.is_set():
                return replace(report, behind=waiting)
            if waiting:
                show(JobProgress(report.rows, report.rows + waiting, report.rounds, "archives"))
                report, now = job.round(archive, report, starts, bounds)
                report = replace(report, lost_offsets=report.lost_offsets + lost)
                bounds = shortened(bounds, now)
            elif settings.compact and compacted_at != report.rounds:
                show(JobProgress(report.rows, report.rows, report.rounds, "joins small files"))
                compacted_at = report.rounds
                gone = compact(archive.root, archive.drafts, settings.rows_per_file, settings.compression)
                report = replace(report, compacted_files=report.compacted_files + gone)
            elif settings.interval_seconds is None:
                show(JobProgress(report.rows, report.rows, report.rounds, "has archived"))
                return report
            else:
                show(JobProgress(report.rows, None, report.rounds, "waits for records"))
                stopping.wait(min(settings.interval_seconds, threading.TIMEOUT_MAX))
                bounds = job.look(archive)


class _Job:
    def __init__(self, spark: "SparkSession", settings: ArchiveSettings) -> None:
        self._spark = spark
        self._settings = settings
        given = {
            "read.path": settings.read_path,
            "isolation.level": settings.isolation_level,
            "failOnDataLoss": str(settings.fail_on_data_loss).lower(),
            "minPartitions": settings.min_partitions,
            # A file has records of one partition, and a task writes its files.
            "maxPartitionsPerTask": 1,
        }
        cluster = settings.cluster.to_options() if settings.cluster is not None else {}
        self._given = cluster | {name: str(value) for name, value in given.items() if value is not None}
        self.options: SourceOptions = parse_options(self._given | {"subscribe": ",".join(settings.topics)})

    def look(self, archive: Archive) -> dict[Place, tuple[int, int]]:
        """The logs' bounds now. Raises ArchiveError if they are not the logs of the archive."""
        if self._settings.cluster is not None:
            archive.belong_to(*asyncio.run(origin_of(self._settings.cluster, self._settings.topics)))
        return logs_of(self.options).bounds

    def read(self, ranges: Iterable[OffsetRange], lost: Path | None = None) -> "DataFrame":
        """The records of the ranges, at most one per partition. Losses are saved in the folder `lost`."""
        options = self._given | options_of_ranges(ranges)
        if lost is not None:
            options["losses.path"] = str(lost)
        return self._spark.read.format("tidelog").options(**options).load()

    def round(
        self,
        archive: Archive,
        before: ArchiveReport,
        starts: Mapping[Place, int],
        bounds: Mapping[Place, tuple[int, int]],
    ) -> tuple[ArchiveReport, dict[Place, tuple[int, int]]]:
        """Archive one round of records from `starts` on. Also returns the logs' bounds after the reading."""
        settings = self._settings
        ends = next_offsets(starts, bounds, settings.max_rows, None)
        losses: list[str] | None = None if settings.fail_on_data_loss else []
        ranges = batch_ranges(starts, ends, bounds, losses)
        report_losses(losses)
        # Records that are deleted after the bounds were read and before a task reads them.
        lost = archive.drafts / f"lost-{before.rounds}"
        files: list[DraftFile] = []
        if ranges:
            records, drafts = self.read(ranges, lost), archive.drafts / str(before.rounds)
            files = write_drafts(records, drafts, settings.compression, settings.rows_per_file)
        # Before the commit: what was read could be of a topic that was created again meanwhile.
        now = self.look(archive)
        archive.commit({place: end for place, end in ends.items() if end != starts[place]}, files)
        after = replace(
            before,
            rows=before.rows + sum(each.rows for each in files),
            files=before.files + len(files),
            bytes=before.bytes + sum((archive.root / each.name).stat().st_size for each in files),
            rounds=before.rounds + 1,
            lost_offsets=before.lost_offsets + count_losses(lost),
        )
        return after, now


def shortened(
    bounds: Mapping[Place, tuple[int, int]], now: Mapping[Place, tuple[int, int]]
) -> dict[Place, tuple[int, int]]:
    """The same ends, with the starts that retention has moved."""
    return {place: (min(max(start, now[place][0]), end), end) for place, (start, end) in bounds.items()}


def _starts(archive: Archive, bounds: Mapping[Place, tuple[int, int]]) -> tuple[dict[Place, int], int]:
    """The next offset of each partition, and the number of lost offsets. Raises ArchiveError."""
    ends = {place: end for place, end in archive.ends.items() if place in bounds}
    lost = 0
    for place, end in ends.items():
        log_start, log_end = bounds[place]
        if end > log_end:
            raise ArchiveError(
                f"{place} ends at offset {log_end}, and the archive in {archive.root} has its records up to"
                f" {end}: the log lost records, or is another topic of that name; use another folder"
            )
        lost += max(0, log_start - end)
    return {place: ends.get(place, log_start) for place, (log_start, _) in bounds.items()}, lost
