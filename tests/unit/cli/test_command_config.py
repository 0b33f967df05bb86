"""`--command-config` is an option of every command that connects to a cluster, and shows no secret."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from tidelog.cli.app import app
from tidelog.cli.command_config import read_command_config, take_command_configs


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


def test_each_cluster_of_a_job_has_a_file_and_flags_go_before_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="hunter2";\nbootstrap.servers=a:1'
    )
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
