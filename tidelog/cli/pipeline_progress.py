"""What the terminal shows while a job of `tidelog pipeline` runs.

Owns the line of progress on a terminal, the lines above it, and the place of Spark's own log: a file, which
is kept and named only if the job fails or finds something. Without a terminal there is no such line, and
Spark's log goes to standard error. The metrics file gets the numbers in both cases.

A rate counts from the first task that runs, so Spark's start is not in it.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipeline.jobs.job import JobProgress, MetricsFile

_log = logging.getLogger(__name__)
_METRICS_EVERY_S = 5.0
_LOOK_EVERY_S = 0.5
_STARVATION = "spark.starvation.timeout"
# Executors report what their tasks have read with each heartbeat; Spark's own interval is 10 s.
_LIVE = {"spark.executor.heartbeatInterval": "1s"}


class SparkActivity(NamedTuple):
    """What Spark does now: the rows that the tasks of running stages have read, how many of its stages are
    not done, and how many of their tasks run."""

    rows: int
    stages: int
    tasks: int


class Screen:
    """Where progress is shown: `bar` is rich's, None without a terminal."""

    def __init__(self, metrics: MetricsFile | None, bar: Any = None, spark_log: Path | None = None) -> None:
        self.spark_log = spark_log
        self.keeps_log = True
        self._metrics = metrics
        self._bar = bar
        self._task = bar.add_task("starts Spark", total=None, rows="") if bar is not None else None
        self._written_at = float("-inf")
        self._told_at: float | None = None
        self._began: float | None = None
        self._last: JobProgress | None = None
        self._reading = 0

    @property
    def spark_settings(self) -> dict[str, str]:
        """What Spark needs so that there is something to show."""
        return _LIVE if self._bar is not None else {}

    def advance(self, progress: JobProgress) -> None:
        """Show how far the job is."""
        now = time.monotonic()
        if self._began is None and progress.rows:
            self._began = self._told_at if self._told_at is not None else now
        self._told_at = now if self._told_at is None else self._told_at
        self._last = progress
        self._draw(now)
        if self._metrics is not None and now - self._written_at >= _METRICS_EVERY_S:
            self._written_at = now
            self._metrics.progress(progress)

    def show_activity(self, activity: SparkActivity) -> None:
        """Show how many rows Spark's tasks have read that are not in the job's progress yet."""
        now = time.monotonic()
        if self._began is None and activity.tasks:
            self._began = now
        self._reading = activity.rows
        self._draw(now)

    def say(self, line: str) -> None:
        """Print a line, above the progress where that is shown."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def _draw(self, now: float) -> None:
        if self._bar is None or self._last is None:
            return
        progress = self._last
        total = f" of {progress.total_rows:,}" if progress.total_rows is not None else ""
        rows = f"{progress.rows:,}{total} rows"
        if self._reading:
            rows += f", {self._reading:,} being read"
        done = progress.rows + self._reading
        if self._began is not None and done and now > self._began:
            rows += f", {done / (now - self._began):,.0f}/s"
        completed = done if progress.total_rows is None else min(done, progress.total_rows)
        self._bar.update(
            self._task, description=progress.text, completed=completed, total=progress.total_rows, rows=rows
        )


@contextmanager
def progress_shown(job: str, metrics: MetricsFile | None) -> Iterator[Screen]:
    """A screen, with a line of progress where standard error is a terminal."""
    if not sys.stderr.isatty():
        yield Screen(metrics)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rows]}"),
        TimeElapsedColumn(),
    )
    descriptor, name = tempfile.mkstemp(prefix=f"tidelog-{job}-", suffix=".log")
    os.close(descriptor)
    log = Path(name)
    screen: Screen | None = None
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            screen = Screen(metrics, bar, log)
            yield screen
    finally:
        if log.stat().st_size and (screen is None or screen.keeps_log):
            print(f"Spark's log: {log}", file=sys.stderr)
        else:
            log.unlink()


@contextmanager
def watched(spark: SparkSession, screen: Screen) -> Iterator[None]:
    """Ask Spark in a thread what it does, as long as the block runs."""
    master = str(spark.sparkContext.master)
    patience_s = _seconds(spark)
    waiting = Waiting(master, patience_s)
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            try:
                activity = _activity(spark)
            except Exception as error:
                # Spark has stopped, or is an unknown version: the job continues without this.
                _log.debug("Spark does not say what it does: %s", error)
                return
            screen.show_activity(activity)
            if (line := waiting.line(activity, time.monotonic())) is not None:
                screen.say(line)

    thread = threading.Thread(target=look, name="watch Spark", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Waiting:
    """Notices that no task of a running query runs for `patience_s`: the cluster gives it no executor."""

    def __init__(self, master: str, patience_s: float) -> None:
        self._master = master
        self._patience_s = patience_s
        self._since: float | None = None
        self._is_said = False

    def line(self, activity: SparkActivity, now: float) -> str | None:
        """What to print, once each time that the job has to wait."""
        if activity.tasks or not activity.stages:
            self._since, self._is_said = None, False
            return None
        if self._since is None:
            self._since = now
        if self._is_said or now - self._since < self._patience_s:
            return None
        self._is_said = True
        return (
            f"The job waits: {self._master} has not accepted any resources for it in {self._patience_s:g} s."
            " Are workers registered there, with free cores and as much free memory as an executor asks for?"
            " Start workers, end other applications, or ask for less: --conf spark.executor.memory=512m"
            " --conf spark.cores.max=1"
        )


def _seconds(spark: SparkSession) -> float:
    """How long Spark itself waits before it warns."""
    java: Any = spark.sparkContext._jsc.sc()
    return float(java.conf().getTimeAsSeconds(_STARVATION, "15s"))


def _activity(spark: SparkSession) -> SparkActivity:
    java: Any = spark.sparkContext._jsc.sc()
    stages = java.statusStore().activeStages()
    found = [stages.apply(index) for index in range(stages.size())]
    return SparkActivity(
        sum(each.inputRecords() for each in found), len(found), sum(each.numActiveTasks() for each in found)
    )
