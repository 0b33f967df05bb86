"""The numbers of a job end up where Prometheus finds them, and its progress never ends it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidelog.pipeline.jobs.job import JobProgress, MetricsFile, progress_to
from tidelog.pipeline.offsets import OptionError


@dataclass(frozen=True, slots=True)
class Report:
    exit_code: int = 1

    def summary(self) -> dict[str, object]:
        return {"event": "archive_finished", "rows": 12, "stopped": True, "lag": float("nan"), "path": "p"}


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


def test_a_metrics_file_that_cannot_be_written_is_shown_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"metrics_file: .*absent is not a folder"):
        MetricsFile(tmp_path / "absent" / "archive.prom", "archive").check()


def unknown() -> JobProgress:
    raise KeyError("latestOffset")


@pytest.mark.parametrize("progress", [JobProgress(1, None, 1, "works"), unknown])
def test_progress_never_ends_a_job(progress: JobProgress | Callable[[], JobProgress]) -> None:
    def fail(_: JobProgress) -> None:
        raise OSError("nobody reads standard error")

    progress_to(fail)(progress)
    progress_to(None)(progress)


def test_progress_may_be_found_out_when_it_is_shown() -> None:
    shown: list[JobProgress] = []
    progress_to(shown.append)(lambda: JobProgress(2, None, 1, "works"))
    assert shown == [JobProgress(2, None, 1, "works")]
