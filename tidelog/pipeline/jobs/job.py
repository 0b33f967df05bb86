"""What all jobs have in common: progress, reports, and numbers for Prometheus.

A job is a module `pipeline.jobs.NAME` with `build(spark, settings)`, which returns a DataFrame and starts
nothing, and `run(spark, settings, on_progress)`, which does the work and returns a report. A job that may run
for long also takes `stop`, an event after which it ends at the next place where nothing is half done.

Owns the names in the metrics file: tidelog_pipeline_JOB_FIELD, gauges.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tidelog.pipeline.offsets import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is: rows and batches that are done, of how many rows (None: not known), and what it
    does now, in words."""

    rows: int
    total_rows: int | None
    batches: int
    text: str


OnProgress = Callable[[JobProgress], None]
ShowProgress = Callable[[JobProgress | Callable[[], JobProgress]], None]


def progress_to(on_progress: OnProgress | None) -> ShowProgress:
    """Hands progress, or what a function finds out about it, to `on_progress`.

    Never raises: what goes wrong with progress is a warning, because progress must not end a job.
    """

    def show(progress: JobProgress | Callable[[], JobProgress]) -> None:
        if on_progress is None:
            return
        try:
            on_progress(progress() if callable(progress) else progress)
        except Exception as error:
            _log.warning("progress is not shown: %s: %s", type(error).__name__, error)

    return show


class Report(Protocol):
    """The result of a job."""

    @property
    def exit_code(self) -> int:
        """0, or 1 where there is something that a person should look at."""

    def summary(self) -> dict[str, object]:
        """Flat; the first key is "event". Its numbers become gauges."""


def use_in_this_thread(spark: "SparkSession") -> None:
    """Let rows be written to the sink from the calling thread: Spark finds data sources that are registered
    in Python only if a session is the thread's own, and that is the one that made it."""
    spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


class MetricsFile:
    """A text file that Prometheus's node exporter reads: the job's numbers so far, at its end all of them.

    Only `check` raises where the file cannot be written; no job is lost for its gauges.
    """

    def __init__(self, path: Path, job: str) -> None:
        self._path = path
        self._job = job
        self._began = time.time()

    def check(self) -> None:
        """Raises OptionError if the file could not be written."""
        folder = self._path.parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise OptionError(f"metrics_file: {folder} is not a folder that can be written")

    def progress(self, progress: JobProgress) -> None:
        """Show how far the job is."""
        self._write({"rows": progress.rows, "batches": progress.batches})

    def finish(self, report: Report) -> None:
        """Show the numbers of its summary, when it ended, how long it took, and its exit code."""
        numbers = {
            name: float(value)
            for name, value in report.summary().items()
            if isinstance(value, int | float) and value == value  # NaN is no number to show
        }
        self._write(numbers | self._end(report.exit_code))

    def fail(self, exit_code: int) -> None:
        """Show that the job ended without a report: of its numbers none is known."""
        self._write(self._end(exit_code))

    def _end(self, exit_code: int) -> dict[str, float]:
        ended = time.time()
        return {
            "exit_code": exit_code,
            "duration_seconds": ended - self._began,
            "finished_timestamp_seconds": ended,
        }

    def _write(self, numbers: Mapping[str, float]) -> None:
        from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

        registry = CollectorRegistry()
        for name, value in numbers.items():
            words = name.replace("_", " ")
            gauge = Gauge(f"tidelog_pipeline_{self._job}_{name}", f"{self._job}: {words}", registry=registry)
            gauge.set(value)
        try:
            write_to_textfile(str(self._path), registry)
        except OSError as error:
            _log.warning("metrics file %s: %s", self._path, error)
