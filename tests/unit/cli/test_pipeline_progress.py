"""What a person sees of a job that runs: rows, a rate without Spark's start, and why a job waits."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tidelog.cli.pipeline_progress import Screen, SparkActivity, Waiting, progress_shown
from tidelog.pipeline.jobs.job import JobProgress, MetricsFile

MASTER = "spark://host:7077"
MakeTerminal: TypeAlias = Callable[[], "Terminal"]
IDLE, STARVED, BUSY = SparkActivity(0, 0, 0), SparkActivity(0, 1, 0), SparkActivity(5, 1, 2)


class Terminal(io.StringIO):
    """Standard error as a person sees it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def make_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], Terminal]:
    """To be called in the test: pytest puts its own standard error in place after the fixtures."""

    def make() -> Terminal:
        terminal = Terminal()
        monkeypatch.setattr("sys.stderr", terminal)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")
        return terminal

    return make


def shown_rows(screen: Screen) -> str:
    return str(screen._bar.tasks[0].fields["rows"])


def test_progress_is_a_line_on_a_terminal_and_numbers_in_a_file(
    make_terminal: MakeTerminal, tmp_path: Path
) -> None:
    terminal = make_terminal()
    metrics = MetricsFile(tmp_path / "job.prom", "archive")
    with progress_shown("archive", metrics) as screen:
        screen.advance(JobProgress(1200, 5000, 1, "archives"))
        screen.advance(JobProgress(2400, None, 2, "waits for records"))
    shown = terminal.getvalue()
    assert "archives" in shown or "waits for records" in shown
    assert "2,400 rows" in shown
    assert "tidelog_pipeline_archive_rows 1200.0" in (tmp_path / "job.prom").read_text().splitlines()


@pytest.mark.parametrize("is_task_seen", [True, False])
def test_a_rate_counts_from_the_first_task_or_from_the_first_progress_where_none_was_seen(
    make_terminal: MakeTerminal, monkeypatch: pytest.MonkeyPatch, is_task_seen: bool
) -> None:
    make_terminal()
    now = 1000.0 if is_task_seen else 1060.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with progress_shown("mirror", None) as screen:
        screen.advance(JobProgress(0, None, 0, "mirrors"))
        if is_task_seen:
            now = 1060.0  # Spark has started.
            screen.show_activity(SparkActivity(0, 1, 1))
            assert shown_rows(screen) == "0 rows"
        now = 1062.0
        screen.advance(JobProgress(3000, None, 1, "mirrors"))
        assert shown_rows(screen) == "3,000 rows, 1,500/s"


def test_rows_are_shown_while_they_are_read(
    make_terminal: MakeTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_terminal()
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with progress_shown("archive", None) as screen:
        screen.show_activity(SparkActivity(700, 1, 1))
        screen.advance(JobProgress(0, 5000, 0, "archives"))
        now = 1.0
        screen.show_activity(SparkActivity(4000, 1, 1))
        assert shown_rows(screen) == "0 of 5,000 rows, 4,000 being read, 4,000/s"
        screen.show_activity(SparkActivity(0, 0, 0))
        screen.advance(JobProgress(5000, 5000, 1, "archives"))
        assert shown_rows(screen) == "5,000 of 5,000 rows, 5,000/s"


@pytest.mark.parametrize("is_good", [True, False])
def test_spark_s_log_is_a_file_that_is_named_where_something_is_wrong(
    is_good: bool, make_terminal: MakeTerminal, tmp_path: Path
) -> None:
    terminal = make_terminal()
    with progress_shown("audit", None) as screen:
        assert screen.spark_log is not None
        screen.spark_log.write_text("26/11/22 WARN NativeCodeLoader")
        screen.keeps_log = not is_good
    assert [each for each in tmp_path.iterdir() if each.suffix == ".log"] == (
        [] if is_good else [screen.spark_log]
    )
    assert ("Spark's log: " in terminal.getvalue()) is not is_good
    assert "NativeCodeLoader" not in terminal.getvalue()


def test_lines_are_printed_above_the_progress_or_to_standard_error(
    make_terminal: MakeTerminal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = make_terminal()
    with progress_shown("stats", None) as screen:
        screen.say("[a line]")
    assert "[a line]" in terminal.getvalue()
    monkeypatch.undo()
    with progress_shown("stats", None) as screen:
        assert (screen.spark_log, screen.spark_settings) == (None, {})
        screen.say("[a line]")
    assert capsys.readouterr().err == "[a line]\n"


def test_a_job_that_gets_no_resources_says_so_once_each_time_it_waits() -> None:
    waiting = Waiting(MASTER, 15)
    looks = [(IDLE, 0), (STARVED, 1), (STARVED, 15), (STARVED, 16), (STARVED, 60), (BUSY, 61), (STARVED, 62)]
    lines = [waiting.line(activity, now) for activity, now in [*looks, (IDLE, 90), (STARVED, 91)]]
    (line,) = filter(None, lines)
    assert lines.index(line) == 3
    assert line.startswith(f"The job waits: {MASTER} has not accepted any resources for it in 15 s.")
    assert "--conf spark.executor.memory" in line
    assert waiting.line(STARVED, 106) == line
