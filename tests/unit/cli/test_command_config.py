"""`--command-config` is an option of every command that connects to a cluster, and shows no secret."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tidelog.cli.app import app
from tidelog.cli.command_config import read_command_config, take_command_configs
from tidelog.cli.main import main

FILE = """
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="alice" password="hunter2";
"""


def commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, each in getattr(group, "commands", {}).items():
        if getattr(each, "commands", None):
            yield from commands(each, *names, name)
        else:
            yield (*names, name), each


def test_each_command_with_servers_has_the_option() -> None:
    found = dict(commands(typer.main.get_command(app)))
    by_name = {name: {each.name for each in command.params} for name, command in found.items()}
    with_servers = {name for name, options in by_name.items() if "cluster" in options}
    assert len(with_servers) > 20
    assert with_servers == {name for name, options in by_name.items() if "command_config" in options}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("security.protocl=SSL", "unknown property 'security.protocl': did you mean security.protocol?"),
        ("speed=3", "unknown property 'speed': known are bootstrap."),
        ("ssl.truststore.type=JKS", "expected PEM"),
        (FILE + "security.protocol=PLAINTEXT", "needs security_protocol=SASL_PLAINTEXT or SASL_SSL"),
        (FILE + "request.timeout.ms=soon", "request.timeout.ms: expected a whole number"),
        ("=hunter2", "line 1: expected NAME=VALUE"),
    ],
)
def test_a_wrong_file_exits_2_and_names_what_is_wrong(
    content: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(content)
    assert main(["topic", "list", "--command-config", str(file)]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert reason in shown
    assert "hunter2" not in shown


def test_a_file_that_is_not_there_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "--command-config", "absent.properties"]) == 1
    assert "cannot read absent.properties" in capsys.readouterr().err


def test_the_file_names_the_servers_unless_a_flag_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDELOG_BOOTSTRAP_SERVERS", raising=False)
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\n")
    assert main(["topic", "list", "--command-config", str(file)]) == 1
    assert "127.0.0.1:1:" in capsys.readouterr().err
    assert main(["topic", "list", "--command-config", str(file), "-b", "127.0.0.1:2"]) == 1
    assert "127.0.0.1:2:" in capsys.readouterr().err


def test_each_cluster_of_a_job_has_a_file_and_flags_go_before_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(FILE + "bootstrap.servers=a:1")
    taken: dict[str, Any] = {"to_command_config": str(file)}
    take_command_configs(taken, ["to_"])
    assert taken["to_bootstrap_servers"] == "a:1"
    flags: dict[str, Any] = {
        "command_config": None,
        "to_command_config": str(file),
        "to_bootstrap_servers": "b:2",
    }
    take_command_configs(flags, ["", "to_"])
    settings = read_command_config(file)
    assert settings.pop("bootstrap_servers") == "a:1"
    assert flags == {"to_bootstrap_servers": "b:2"} | {
        f"to_{name}": value for name, value in settings.items()
    }
