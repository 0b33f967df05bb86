"""Settings of jobs come from flags and a file, and their numbers end up where Prometheus finds them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidelog.pipeline.jobs.job import JobProgress, MetricsFile, choose, make_settings, names_of, teller
from tidelog.pipeline.source.offsets import OptionError


@dataclass(frozen=True, slots=True)
class Settings:
    path: str
    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    max_rows: int | None = None
    interval_seconds: float | None = None
    follow: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    exit_code: int = 1

    def summary(self) -> dict[str, object]:
        return {"event": "archive_finished", "rows": 12, "stopped": True, "lag": float("nan"), "path": "p"}


KNOWN = names_of(Settings)


def test_flags_go_before_the_jobs_table_and_that_before_what_stands_above() -> None:
    file = {
        "path": "above",
        "max_rows": 1,
        "follow": True,
        "archive": {"path": "table", "max_rows": 2},
        "audit": {"output": "not ours"},
    }
    flags: dict[str, object] = {"path": "flag", "topics": [], "max_rows": None, "follow": None}
    assert choose("archive", file, flags, KNOWN) == {"path": "flag", "max_rows": 2, "follow": True}


def test_a_flag_that_says_no_goes_before_a_file_that_says_yes() -> None:
    assert choose("archive", {"follow": True}, {"follow": False}, KNOWN) == {"follow": False}


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ({"topic": "t"}, "unknown setting 'topic'; archive knows follow, interval_seconds, master"),
        ({"archive": {"topic": "t"}}, "unknown setting 'topic'"),
        ({"archives": {}}, r"\[archives\] is no job; tables are \[archive\], \[audit\]"),
    ],
)
def test_names_that_mean_nothing_are_refused(file: dict[str, object], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        choose("archive", file, {}, KNOWN)


def test_values_get_the_type_of_their_field() -> None:
    values = {"path": "p", "topics": "one", "partitions": [0, 2], "interval_seconds": 5}
    assert make_settings(Settings, values) == Settings("p", ("one",), (0, 2), None, 5.0)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"path": 3}, "path = 3: expected text"),
        ({"path": "p", "topics": [1]}, r"topics = \[1\]: expected a list of text"),
        ({"path": "p", "partitions": [True]}, "expected a list of a whole number"),
        ({"path": "p", "max_rows": "many"}, "max_rows = 'many': expected a whole number"),
        ({"path": "p", "max_rows": True}, "expected a whole number"),
        ({"path": "p", "interval_seconds": float("nan")}, "interval_seconds = nan: expected a number"),
        ({"path": "p", "interval_seconds": float("inf")}, "expected a number"),
        ({"path": "p", "follow": 1}, "follow = 1: expected true or false"),
        ({}, "missing: path"),
    ],
)
def test_values_of_another_type_are_refused(values: dict[str, object], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        make_settings(Settings, values)


def test_the_metrics_file_holds_the_numbers_of_the_summary(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "archive.prom", "archive")
    metrics.check()
    metrics.progress(JobProgress(7, None, 2, "writes"))
    assert "tidelog_pipeline_archive_rows 7.0" in (tmp_path / "archive.prom").read_text().splitlines()
    metrics.finish(Report())
    lines = (tmp_path / "archive.prom").read_text().splitlines()
    assert "tidelog_pipeline_archive_rows 12.0" in lines
    assert "tidelog_pipeline_archive_stopped 1.0" in lines
    assert "tidelog_pipeline_archive_exit_code 1.0" in lines
    assert any(line.startswith("tidelog_pipeline_archive_finished_timestamp_seconds ") for line in lines)
    assert not any("_lag " in line or "_path " in line for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == ["archive.prom"], "no draft is left"


def test_a_metrics_file_that_cannot_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"metrics_file: .*absent is not a folder"):
        MetricsFile(tmp_path / "absent" / "archive.prom", "archive").check()


def unknown() -> JobProgress:
    raise KeyError("latestOffset")


@pytest.mark.parametrize("progress", [JobProgress(1, None, 1, "works"), unknown])
def test_progress_never_ends_a_job(progress: JobProgress | Callable[[], JobProgress]) -> None:
    def fail(_: JobProgress) -> None:
        raise OSError("nobody reads standard error")

    teller(fail)(progress)
    teller(None)(progress)


def test_progress_may_be_found_out_when_it_is_told() -> None:
    told: list[JobProgress] = []
    teller(told.append)(lambda: JobProgress(2, None, 1, "works"))
    assert told == [JobProgress(2, None, 1, "works")]
