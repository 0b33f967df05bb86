"""The command against a real broker: what a person types, and what they see."""

import json
import os
import re
import select
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.commands import PATIENCE_S, TIDELOG, Type, next_line, typed
from tests.conformance.conftest import RunningBroker
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.cli import producers


@pytest.fixture
def lines(tmp_path: Path) -> Callable[[str], str]:
    """A file with these lines, by its path."""

    def write(text: str) -> str:
        (tmp_path / "lines").write_text(text)
        return str(tmp_path / "lines")

    return write


def test_a_job_whose_topic_is_nowhere_says_so_before_spark_starts(
    broker: RunningBroker, tidelog: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.pipeline.spark.spark_session.start_session", None)  # A call would fail.
    servers = ("-b", broker.address)
    for command in (("audit",), ("stats",), ("archive", "--path", str(tmp_path / "archive"))):
        code, shown, error = tidelog("pipeline", *command, "nowhere", *servers)
        assert (code, shown) == (1, "")
        assert re.fullmatch(r"error: .*nowhere.*\n", error)
    assert "nowhere" not in tidelog("topic", "list")[1]


def test_producers_have_their_batches_however_many_answers_it_takes(
    tidelog: Type, lines: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "_ROWS_AT_ONCE", 2)
    tidelog("topic", "create", "written-by-five")
    for _ in range(5):
        tidelog("produce", "written-by-five", "-f", lines("1\n"))

    def answer() -> str:
        code, shown, problem = tidelog("producers", "written-by-five")
        assert code == 0
        return "" if problem else shown  # A broker of a busy machine may not answer another one in time.

    shown = wait_for(answer, "the batches of all producers", DEADLINE_SECONDS)
    assert sorted(row.split()[-1] for row in shown.splitlines()[1:]) == [
        f"0-0@{offset}" for offset in range(5)
    ]


def test_lines_typed_one_by_one_are_stored_one_by_one(broker: RunningBroker, tidelog: Type) -> None:
    """Both ends stay open: each line is read back before the next one is written."""
    tidelog("topic", "create", "typed")
    where = {"env": os.environ | {"TIDELOG_BOOTSTRAP_SERVERS": broker.address}}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **where}
    with (
        typed("consume", "typed", "--from-beginning", **pipes) as reader,
        typed("produce", "typed", stdin=subprocess.PIPE, **pipes) as writer,
    ):
        assert writer.stdin is not None
        for line in ("one\n", "two\n"):
            writer.stdin.write(line)
            writer.stdin.flush()
            assert next_line(reader) == line
        reported = writer.communicate(timeout=PATIENCE_S)[1]
        assert writer.returncode == 0
        assert reported.startswith("stored 2 records in typed (")
        reader.send_signal(signal.SIGINT)
        assert reader.communicate(timeout=PATIENCE_S) == ("", "")
        assert reader.returncode == 0


def test_a_writer_that_is_interrupted_has_stored_its_whole_lines(
    broker: RunningBroker, tidelog: Type
) -> None:
    tidelog("topic", "create", "interrupted")
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with typed("produce", "interrupted", "-b", broker.address, **pipes) as writer:
        assert writer.stdin is not None
        writer.stdin.write("one\ntwo\nhalf a li")
        writer.stdin.flush()
        read = tidelog("consume", "interrupted", "--from-beginning", "--max-messages", "2")
        assert read[1] == "one\ntwo\n"
        writer.send_signal(signal.SIGINT)
        assert writer.wait(PATIENCE_S) == 130
        assert writer.stderr is not None
        assert writer.stderr.read() == ""
    assert tidelog("topic", "describe", "interrupted")[1].split()[-1] == "2"


def test_a_reader_that_has_enough_is_no_failure(
    broker: RunningBroker, lines: Callable[[str], str], tidelog: Type
) -> None:
    tidelog("topic", "create", "long")
    tidelog("produce", "long", "-f", lines("x" * 1000 + "\n"), "-b", broker.address)
    tidelog("produce", "long", "-f", lines("\n".join("y" * 100 for _ in range(20_000))))
    command = " ".join((*TIDELOG, "consume", "long", "--from-beginning", "-b", broker.address))
    shown = subprocess.run(
        ["bash", "-c", f"{command} | head -c 1000; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, b"x" * 1000, b"")


@pytest.fixture
def served(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """`tidelog serve` as a person starts it, once it has said something."""
    settings = ["--host", "127.0.0.1", "--port", "0", "--http-port", "0", "--set", "num.partitions=4"]
    with typed(
        *("serve", "--data-dir", str(tmp_path / "data"), *settings),
        stdout=subprocess.PIPE,
        env=os.environ | {"TIDELOG_BOOTSTRAP_SERVERS": "elsewhere:1"},
    ) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], PATIENCE_S)[0]
        yield process


def test_serve_says_where_it_listens_and_ends_with_0(
    served: "subprocess.Popen[str]", tidelog: Type, tmp_path: Path
) -> None:
    process = served
    assert process.stdout is not None
    started = json.loads(next_line(process))
    assert started["event"] == "broker_started"
    address = f"127.0.0.1:{started['port']}"
    assert tidelog("topic", "create", "served", "-b", address)[1] == "created served (4 partitions)\n"
    ready = urllib.request.urlopen(
        f"http://127.0.0.1:{started['http_port']}/readyz", timeout=DEADLINE_SECONDS
    )
    assert ready.status == 200
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert json.loads(rest.splitlines()[-1])["event"] == "broker_stopped"
