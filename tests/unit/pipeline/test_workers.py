"""A Python process of Spark tells the cause of an error alone, and nothing where Spark has read enough."""

import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tidelog.pipeline import data_source
from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.source.stream_source import TidelogStreamReader
from tidelog.pipeline.workers import fails_plainly

OF_A_WORKER = {"PYTHON_WORKER_FACTORY_SECRET": "s"}
HIDES = "SPARK_HIDE_TRACEBACK"
_READS_ENOUGH = """
import socket
from tidelog.pipeline.workers import rows_for_spark
ours, sparks = socket.socketpair()
for row in rows_for_spark([b"x"] * 3):
    ours.sendall(row)
    sparks.close()
"""
_LOSES_A_BROKER = """
import socket
from tidelog.pipeline.workers import rows_for_spark
def rows():
    ours, brokers = socket.socketpair()
    yield b"x"
    brokers.close()
    try:
        ours.sendall(b"y")
    except BrokenPipeError:
        yield b"again"
print(list(rows_for_spark(rows())))
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | OF_A_WORKER,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_process_whose_rows_nobody_reads_any_more_ends_without_a_word() -> None:
    done = run(_READS_ENOUGH)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")


def test_a_connection_to_a_broker_may_break() -> None:
    done = run(_LOSES_A_BROKER)
    assert (done.stdout, done.stderr) == ("[b'x', b'again']\n", "")


@fails_plainly
class Reader:
    def read(self, error: Exception) -> None:
        raise error


@pytest.mark.parametrize(
    ("of_process", "error", "hidden"),
    [
        (OF_A_WORKER, OptionError("what to do"), "1"),
        (OF_A_WORKER, KeyError("a bug"), None),
        ({}, OptionError("what to do"), None),
    ],
)
def test_only_in_a_worker_an_error_that_explains_itself_has_no_traceback(
    monkeypatch: pytest.MonkeyPatch, of_process: Mapping[str, str], error: Exception, hidden: str | None
) -> None:
    monkeypatch.setenv(HIDES, "")
    monkeypatch.delenv(HIDES)
    for name, value in of_process.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(type(error)):
        Reader().read(error)
    assert os.environ.get(HIDES) == hidden


def test_spark_finds_the_parameters_that_it_looks_for() -> None:
    """By them it decides how to call."""
    assert list(inspect.signature(TidelogStreamReader.latestOffset).parameters) == ["self", "start", "limit"]
    assert data_source.TidelogDataSource.name() == "tidelog"
