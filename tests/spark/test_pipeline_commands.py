"""`tidelog pipeline NAME`: the report for people, the last line for programs, the exit code."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.brokers import RunningBroker, broker_with_orders
from tidelog.cli.main import main
from tidelog.pipeline.jobs import audit
from tidelog.pipeline.jobs.job import Report


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with broker_with_orders(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.mark.usefixtures("shared_spark")
def test_a_commands_last_line_and_its_metrics_tell_the_same(
    broker: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, metrics = tmp_path / "jobs.toml", tmp_path / "archive.prom"
    settings.write_text(
        f"bootstrap_servers = '{broker.bootstrap_servers}'\n"
        f"[archive]\npath = '{tmp_path / 'archive'}'\nmax_rows = 1\n"
    )
    given = ["archive", "orders", "--max-rows", "60", "--settings", str(settings)]
    assert main(["pipeline", *given, "--metrics-file", str(metrics)]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    summary = json.loads(last)
    assert (summary["event"], summary["rows"], summary["rounds"]) == ("archive_finished", 100, 2)
    assert ["rows", "100"] in [line.split() for line in table]
    assert "tidelog_pipeline_archive_rows 100.0" in metrics.read_text().splitlines()


@pytest.mark.usefixtures("shared_spark")
def test_what_can_be_expected_to_fail_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "audit", "--path", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: no segments below {tmp_path}")


@pytest.mark.usefixtures("shared_spark")
def test_an_error_without_a_text_is_one_line_that_names_its_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(spark: object, settings: object, advance: object) -> Report:
        raise StreamingQueryException(
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:  SQLSTATE: XXKST",
            "a.StreamingQueryException\nCaused by: java.util.ConcurrentModificationException\n",
        )

    monkeypatch.setattr(audit, "run", fails)
    assert main(["pipeline", "audit", "--path", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        "error: Spark failed with java.util.ConcurrentModificationException without a text (SQLSTATE XXKST)\n"
    )
