"""The options --set and --delete of commands that list settings or change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from tidelog.broker.configuration.settings import parse_assignment
from tidelog.cli.failures import run_with_admin
from tidelog.cli.options import option
from tidelog.protocol.settings import ConfigError

if TYPE_CHECKING:
    from tidelog.client import ConfigResource
    from tidelog.wire.cluster_config import ClusterConfig


def set_option(example: str) -> Any:
    """--set, whose help has the example."""
    return option(
        "--set", metavar="NAME=VALUE", help=f"Set a setting, for example {example}. May be repeated."
    )


def delete_option(applies: str) -> Any:
    """--delete, whose help says which value applies afterwards."""
    return option(
        "--delete", metavar="NAME", help=f"Delete a setting, so that {applies} applies. May be repeated."
    )


def read_changes(assignments: list[str] | None, deletions: list[str] | None) -> dict[str, str | None]:
    """What --set and --delete say: name -> the new value, or None. Raises BadParameter."""
    try:
        changes: dict[str, str | None] = dict(map(parse_assignment, assignments or []))
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--set") from None
    return changes | dict.fromkeys(deletions or [])


def change_settings(
    resource: ConfigResource, place: str, changes: dict[str, str | None], cluster: ClusterConfig
) -> None:
    """Change them, and print each. `place`: the resource in words."""
    run_with_admin(lambda admin: admin.alter_configs({resource: changes}), cluster)
    print_changes(changes, place)


def print_changes(changes: dict[str, str | None], place: str) -> None:
    for setting, value in changes.items():
        print(f"deleted {setting} of {place}" if value is None else f"set {setting}={value} for {place}")
