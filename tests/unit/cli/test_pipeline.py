"""`tidelog pipeline` before Spark starts: what is missing or wrong is told at once, in one line."""

import inspect
import os
import signal
import socket
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from tests.waiting import DEADLINE_SECONDS
from tidelog.cli import pipeline, pipeline_run
from tidelog.cli.failures import Failure
from tidelog.cli.main import main
from tidelog.client import ClusterConfig
from tidelog.pipeline.jobs.settings import JOBS, CommonSettings, names_of, table_of
from tidelog.pipeline.spark import spark_session
from tidelog.protocol.settings import settings_of

COMMANDS = {job: pipeline.command_of(job) for job in JOBS}


def test_an_installation_without_the_extra_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "find_spec", lambda name: None if name == "numpy" else find_spec(name))
    needed = r"need numpy: .*pip install '\.\[pipeline\]'"
    with pytest.raises(Failure, match=needed):
        COMMANDS["audit"](topics=["orders"], bootstrap_servers="127.0.0.1:1")
    with pytest.raises(ModuleNotFoundError, match=needed):
        spark_session.start_session("orders")


def test_no_command_brings_spark_or_a_clients_machinery_along() -> None:
    """Imports are part of the start-up time of each command."""
    ask = "import sys, tidelog.cli.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    heavy = {"pyspark", "numpy", "pyarrow", "construct", "uvloop", "structlog", "tidelog.wire.cluster"}
    assert heavy & set(loaded.split()) == set()


@pytest.mark.parametrize("job", JOBS)
def test_a_commands_flags_are_its_tables_settings_with_their_meaning_and_default(
    job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a cluster the flags name the servers and a file; the file names what else there is."""
    tables = (table_of(job), CommonSettings)
    named = {name for table in tables for name in names_of(table)}
    of_clusters = {each.attribute for each in settings_of(ClusterConfig)} - {"bootstrap_servers"}
    flags = {name for name in named if not any(name.endswith(each) for each in of_clusters)}
    flags |= {name.replace("bootstrap_servers", "command_config") for name in flags}
    assert set(inspect.signature(COMMANDS[job]).parameters) == flags | {"settings"}
    assert main(["pipeline", job, "--help"]) == 0
    shown = "".join(capsys.readouterr().out.split())
    for each in (each for table in tables for each in settings_of(table)):
        assert "".join(each.description.split()) in shown
        if each.kind in (int, str) and each.default and not each.is_required:
            assert f"[default:({each.default})]".replace(" ", "") in shown


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["audit"], "an audit needs topics and bootstrap servers"),
        (["archive", "t", "-b", "x:1"], "an archive needs a path"),
        (
            ["archive", "t", "-b", "x:1", "--path", "p", "--compression", "brotli"],
            "compression: expected zstd, snappy, gzip, lz4 or none, got 'brotli'",
        ),
        (
            ["archive", "t", "-b", "x:1", "--path", "p", "--max-rows", "0"],
            "max_rows: expected a whole number of at least 1",
        ),
        (["archive", "t", "-b", "x:1", "--path", "s3://b/p"], "s3://b/p is not a path. Expected a folder"),
        (["replay"], "missing: bootstrap_servers"),
        (["replay", "-b", "x:1"], "a replay needs an archive, or topics"),
        (["replay", "t", "-b", "x:1"], "a replay of topics needs a session"),
        (["replay", "t", "-b", "x:1", "--session", "s"], "topics would be replayed onto themselves"),
        (["replay", "-b", "x:1", "--archive", "a", "--start-time", "now"], "start_time = 'now': expected a"),
        (
            ["replay", "-b", "x:1", "--archive", "a", "--start-offset", "7", "--end-offset", "7"],
            "start_offset 7 is not before end_offset 7",
        ),
        (
            ["mirror", "t", "-b", "x:1", "--checkpoint", "c", "--compression-type", "br"],
            "lz4 or zstd, got 'br'",
        ),
        (["mirror", "--topic-pattern", "(", "-b", "x:1", "--checkpoint", "c"], "not a regular expression"),
        (
            ["replay", "-b", "x:1", "--archive", "a", "--compression-type", "br"],
            "lz4 or zstd, got 'br'",
        ),
        (["replay", "-b", "x:1", "--archive", "a", "--where", "timestamp > now()"], "write the time down"),
        (["stats", "t", "-b", "x:1", "--window", "99999999 weeks"], "is longer than 36500 days"),
        (["audit", "t", "-b", "x:1", "--output", __file__], "is a file. Name a folder"),
        (
            ["stats", "t", "-b", "x:1", "--output", str(Path(__file__).parent)],
            "which is not part of an earlier result",
        ),
        (["stats", "t", "-b", "x:1", "--plot", f"{__file__}/plot.png"], "cannot be written"),
        (["audit", "--path", "p", "--conf", "spark.cores.max"], "is not like spark.executor.memory=1g"),
        (["audit", "--path", "p", "--conf", "cores=1"], "KEY begins with spark."),
        (["audit", "--path", "p", "--conf", "spark.master=x"], "give master instead"),
        (["audit", "--path", "p", "--packages", "a:b"], "packages: 'a:b' is not like GROUP:ARTIFACT:VERSION"),
        (["audit", "--path", "p", "--metrics-file", "absent/a.prom"], "metrics_file: absent is not a folder"),
    ],
)
def test_wrong_settings_exit_2_before_spark_starts(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", *arguments]) == 2
    assert reason in " ".join(capsys.readouterr().err.split())


def test_a_settings_file_is_judged_like_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text("[archive]\ntopics = ['t']\nbootstrap_servers = 'x:1'\nmax_rows = 'many'\n")
    assert main(["pipeline", "archive", "--settings", str(file)]) == 2
    assert "max_rows: expected a whole number of at least 1, got 'many'" in " ".join(
        capsys.readouterr().err.split()
    )
    file.write_text("topic = 't'\n")
    assert main(["pipeline", "archive", "--settings", str(file)]) == 2
    assert "unknown setting 'topic'" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"= no", b"\xff"])
def test_a_settings_file_that_cannot_be_read_exits_1(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.toml"
    if content is not None:
        file.write_bytes(content)
    assert main(["pipeline", "audit", "--settings", str(file)]) == 1
    assert str(file) in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_insists(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    with pipeline_run._signals(rounds=True) as stop:
        stop.has_begun = True
        os.kill(os.getpid(), number)
        assert stop.wait(5)
        assert "A second signal stops it at once" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("job", "code"), [("archive", 0), ("audit", 130)])
def test_a_job_that_has_not_begun_ends_at_once(job: str, code: int, tmp_path: Path) -> None:
    """It waits for the answer of a broker."""
    arguments = ["pipeline", job, "t", *(["--path", str(tmp_path)] if job == "archive" else [])]
    with socket.create_server(("127.0.0.1", 0)) as broker:
        arguments += ["-b", f"127.0.0.1:{broker.getsockname()[1]}"]
        with subprocess.Popen(
            [sys.executable, "-m", "tidelog", *arguments], stderr=subprocess.PIPE, text=True
        ) as command:
            connection, _ = broker.accept()
            with connection:  # If it were closed, the job would say so.
                connection.recv(1)
                command.send_signal(signal.SIGTERM)
                _, errors = command.communicate(timeout=DEADLINE_SECONDS)
    assert (command.returncode, errors) == (code, "")


def test_a_job_without_rounds_is_broken_off_at_once() -> None:
    with pipeline_run._signals(rounds=False), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_what_spark_makes_of_a_break_off_is_a_break_off() -> None:
    def query() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            raise RuntimeError("what was cut off cannot be cleared up either")

    with pytest.raises(KeyboardInterrupt), pipeline_run._signals(rounds=False):
        query()


@pytest.mark.parametrize(("asked", "expected"), [(False, Failure), (True, KeyboardInterrupt)])
def test_the_death_of_spark_s_java_is_a_failure_or_the_end_that_was_asked_for(
    asked: bool, expected: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service manager signals all processes of a service at once."""
    with subprocess.Popen(["true"]) as java:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
    stop = threading.Event()
    if asked:
        stop.set()
    with pytest.raises(expected), pipeline_run._while_java_runs(stop):
        raise ConnectionRefusedError


def test_a_broker_that_is_not_there_is_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = tmp_path / "stats.prom"
    assert main(["pipeline", "stats", "t", "-b", "127.0.0.1:1", "--metrics-file", str(metrics)]) == 1
    assert "no broker can be reached" in " ".join(capsys.readouterr().err.split())
    assert "tidelog_pipeline_stats_exit_code 1.0" in metrics.read_text().splitlines()
