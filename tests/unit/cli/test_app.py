"""The command line: what it prints where, and with which exit code it ends."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.cli.app import app
from tidelog.cli.main import main
from tidelog.protocol.settings import as_text, settings_of


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands(each, (*path, name))


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in _commands(typer.main.get_command(app)):
        assert main([*command, "--help"]) == 0, command
        assert " ".join(("usage: tidelog", *command)) in capsys.readouterr().out.lower()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("clu", ["cluster"]), ("cluster i", ["info"]), ("consume t --isol", ["--isolation"])],
)
def test_a_shell_is_offered_what_can_follow(typed: str, offered: list[str]) -> None:
    asked = {
        "_TIDELOG_COMPLETE": "complete_bash",
        "COMP_WORDS": f"tidelog {typed}",
        "COMP_CWORD": str(len(typed.split())),
    }
    # In a process of its own: an answer ends the process.
    script = "import sys; from tidelog.cli.main import main; sys.exit(main([]))"
    answer = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.splitlines() == offered


def test_the_flags_of_serve_say_what_the_brokers_table_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    shown = "".join(capsys.readouterr().out.split())
    for each in settings_of(BrokerConfig):
        if each.name in ("host", "port", "data.dir", "http.port", "faults.enable"):
            assert "".join(f"{each.description} Default: {as_text(each.default)}.".split()) in shown


def test_version_is_the_distribution_s(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tidelog {version('tidelog')}\n"


def test_serve_reports_a_bad_setting_and_exits_1() -> None:
    # In a process of its own: serve sets up the logging of the whole process, for good.
    script = (
        "import sys\n"
        "from tidelog.cli.app import run_command\n"
        "sys.exit(run_command(['serve', '--set', 'log.segment.byte=5']))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "did you mean log.segment.bytes?" in ended.stderr
