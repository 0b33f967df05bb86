"""What every command of `tidelog pipeline` does around its job: settings, Spark, progress, signals, the end.

Settings are checked before Spark starts; wrong ones exit with 2. The job runs, and its progress is shown
(`cli.pipeline_progress`).

The first Ctrl-C or SIGTERM asks a job that runs in rounds to end where nothing is half done, and its report
follows. A second one, or the first one in any other job, cancels the job; only work is lost. Before a job has
begun, any signal ends the command at once; SIGTERM then ends a job in rounds well.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidelog.cli.command_config import take_command_configs
from tidelog.cli.failures import Failure, reading, run
from tidelog.cli.pipeline_errors import as_flags, reason
from tidelog.cli.pipeline_progress import Screen, progress_shown, watched
from tidelog.cli.pipeline_reports import show
from tidelog.client import ClientError
from tidelog.pipeline.jobs.settings import CommonSettings, choose, cluster_prefix, make_settings, table_of
from tidelog.pipeline.offsets import OffsetsLostError, OptionError
from tidelog.protocol.settings import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipeline.jobs.job import Report
    from tidelog.wire.cluster_config import ClusterConfig

# So long a process that was killed may take to be gone.
_DYING_S = 0.5


_IN_ROUNDS = ("archive", "mirror", "replay", "stats")
"""Jobs that can end between two rounds."""


class _Stop(threading.Event):
    """Set by the first signal that comes after a job `has_begun`."""

    has_begun = False


def run_job(job: str, given: Mapping[str, Any]) -> None:
    """Run a job; `given` are its command's arguments by name, None if a flag was left out."""
    with _signals(rounds=job in _IN_ROUNDS) as stop:
        _run_job(job, given, stop)


def _run_job(job: str, given: Mapping[str, Any], stop: _Stop) -> None:
    from tidelog.pipeline.spark.spark_session import require_extra, start_session

    try:
        require_extra()
    except ModuleNotFoundError as error:
        raise Failure(str(error)) from None
    flags = dict(given)
    file = flags.pop("settings", None)
    values = _read_settings(Path(file)) if file is not None else {}

    from tidelog.pipeline.jobs.job import MetricsFile

    module = import_module(f"tidelog.pipeline.jobs.{job}")
    table = table_of(job)
    prefixes = (cluster_prefix(each) for each in settings_of(table))
    take_command_configs(flags, [prefix for prefix in prefixes if prefix is not None])
    try:
        chosen = choose(job, values, flags, table, CommonSettings)
        common = make_settings(CommonSettings, chosen)
        metrics = MetricsFile(Path(common.metrics_file), job) if common.metrics_file is not None else None
        spark_settings = common.spark_settings
        settings = make_settings(table, chosen)
        settings.check()
        if metrics is not None:
            metrics.check()
    except OptionError as error:
        raise typer.BadParameter(str(error)) from None
    try:
        _reach_brokers(settings)
        with progress_shown(job, metrics) as screen:
            session = partial(
                start_session,
                common.name or f"tidelog {job}",
                master=common.master,
                settings=screen.spark_settings | spark_settings,
                driver_log=screen.spark_log,
            )
            report = _run(job, module, settings, session, screen, stop)
            screen.keeps_log = bool(report.exit_code)
    except (typer.BadParameter, Failure) as error:
        if metrics is not None:
            metrics.fail(getattr(error, "exit_code", 1))
        raise
    if metrics is not None:
        metrics.finish(report)
    show(job, report)
    print(json.dumps(report.summary()), flush=True)
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _read_settings(file: Path) -> dict[str, Any]:
    try:
        with reading(file):
            return tomllib.loads(file.read_text())
    except tomllib.TOMLDecodeError as error:
        raise Failure(f"{file} is not TOML: {error}") from None


def _run(
    job: str,
    module: Any,
    settings: Any,
    start_session: Callable[[], SparkSession],
    screen: Screen,
    stop: _Stop,
) -> Report:
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    from tidelog.pipeline.jobs.archive_files import ArchiveError
    from tidelog.pipeline.mirror.session_folder import MirrorError
    from tidelog.pipeline.source.fetch import RecordsMissingError
    from tidelog.pipeline.spark.java import JavaNotFoundError

    # Each error of a query, in JSON, before it is printed below.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).disabled = True
    ours = (OffsetsLostError, RecordsMissingError, ArchiveError, MirrorError)
    try:
        spark = start_session()
        try:
            with _while_java_runs(stop), watched(spark, screen):
                arguments = {"stop": stop} if job in _IN_ROUNDS else {}
                stop.has_begun = True
                report: Report = module.run(spark, settings, screen.advance, **arguments)
        finally:
            with suppress(Py4JError, OSError):  # Nothing is left to stop.
                spark.stop()
    except OptionError as error:
        raise typer.BadParameter(as_flags(job, str(error))) from None
    except (*ours, ClientError, FileNotFoundError, JavaNotFoundError) as error:
        raise Failure(as_flags(job, " ".join(str(error).split()))) from None
    except (PySparkException, Py4JJavaError) as error:
        raise Failure(as_flags(job, reason(str(error), getattr(error, "_stackTrace", "")))) from None
    return report


def _reach_brokers(settings: Any) -> None:
    """Raises Failure if no broker answers, or none has a topic to read: before Spark starts, and without a
    client's long wait."""
    for name in ("cluster", "to_cluster", "from_cluster"):
        if (cluster := getattr(settings, name, None)) is not None:
            run(_find((), cluster), cluster)
    # Those of a replay may be in an archive only.
    if getattr(settings, "archive", None) is None and settings.topics:
        source = getattr(settings, "from_cluster", None) or settings.cluster
        if source is not None:
            run(_find(settings.topics, source), source)


async def _find(topics: Sequence[str], cluster: ClusterConfig) -> None:
    """Raises ClientError if the broker does not have one of the topics."""
    from tidelog.client import Admin

    if topics:
        async with Admin(cluster=cluster) as admin:
            await admin.describe_topics(topics)


@contextmanager
def _signals(*, rounds: bool) -> Iterator[_Stop]:
    """The event that the first signal sets. Without `rounds`, and before the job has begun, it raises
    KeyboardInterrupt at once, also if Spark has turned that into an error of its own. With `rounds`, SIGTERM
    before the beginning raises typer.Exit."""
    stop, broken_off, ends_well = _Stop(), threading.Event(), threading.Event()
    main_thread = threading.current_thread() is threading.main_thread()

    def receive(number: int, _: object) -> None:
        if stop.is_set() or not rounds or not stop.has_begun:
            broken_off.set()
            if rounds and not stop.has_begun and number == signal.SIGTERM:
                ends_well.set()
            # py4j would log where the query was cut off.
            logging.disable()
            raise KeyboardInterrupt
        stop.set()
        name = signal.Signals(number).name
        print(
            f"{name}: the job ends after the current round. A second signal stops it at once.",
            file=sys.stderr,
        )

    before = {}
    if main_thread:
        before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    except BaseException:
        if ends_well.is_set():
            raise typer.Exit from None
        if broken_off.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        logging.disable(logging.NOTSET)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _while_java_runs(stop: threading.Event) -> Iterator[None]:
    """Errors after the end of Spark's Java process become a Failure, or the end that `stop` asked for: a
    service manager signals all processes of a service at once."""
    try:
        yield
    except Exception:
        if not _java_has_ended():
            raise
        if stop.is_set():
            raise KeyboardInterrupt from None
        raise Failure(
            "Spark's Java process ended while the job ran. Was it killed, or out of memory? Run the job"
            " again: stored records are kept"
        ) from None


def _java_has_ended() -> bool:
    from pyspark import SparkContext

    java = getattr(SparkContext._gateway, "proc", None)
    if java is None:
        return False
    try:
        java.wait(_DYING_S)
    except subprocess.TimeoutExpired:
        return False
    return True
