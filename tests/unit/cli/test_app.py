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


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["topic", "nope"],
        ["produce"],
        ["consume", "t", "--max-messages", "many"],
        ["serve", "--set", "x"],
        ["serve", "--nope"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_explained_and_exits_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "t", "--from-beginning", "--offset", "3"],
        ["consume", "t", "--json", "--key-separator", ":"],
        ["produce", "t", "--compression", "brotli"],
        ["produce", "t", "--header", "no-value"],
        ["topic", "create", "t", "--config", "no-value"],
    ],
    ids=" ".join,
)
def test_options_that_contradict_each_other_exit_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "Error: Invalid value" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "advice"),
    [
        ("--prot", "did you mean --port?"),
        ("--listeners", "write --set listeners=VALUE"),
        ("--log-segment-byte", "did you mean log.segment.bytes?"),
    ],
)
def test_serve_names_the_flag_or_setting_that_was_probably_meant(
    flag: str, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", flag, "1"]) == 2
    assert advice in capsys.readouterr().err


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
