"""`tidelog broker`: show and change the settings of running brokers.

Uses `client.Admin`. Each change is printed on one line, so that scripts can read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.failures import run_with_admin
from tidelog.cli.options import DEFAULT_CLUSTER, AsJson, ToCluster
from tidelog.cli.setting_changes import change_settings, delete_option, read_changes, set_option
from tidelog.cli.tables import print_table

if TYPE_CHECKING:
    from tidelog.client import Admin, ConfigEntry, ConfigResource
    from tidelog.wire.cluster_config import ClusterConfig

app = typer.Typer(no_args_is_help=True, help="Show and change the settings of running brokers.")
_SOURCES = {2: "this broker", 3: "all brokers", 4: "start", 5: "default"}


@app.callback()
def _broker() -> None:
    """Show and change the settings of running brokers."""


@app.command()
def config(
    broker: Annotated[
        int | None,
        typer.Option("--broker", metavar="ID", help="Only of this broker.", show_default="all brokers"),
    ] = None,
    assignments: Annotated[list[str] | None, set_option("log.retention.ms=3600000")] = None,
    deletions: Annotated[list[str] | None, delete_option("the value from the broker's start")] = None,
    as_json: AsJson = False,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """List the settings of running brokers, or change them.

    No restart is needed. A value for one broker overrides a value for all brokers. Both override the value
    that the broker was started with.
    """
    changes = read_changes(assignments, deletions)
    if changes:
        _change(broker, changes, cluster)
    else:
        _list(broker, as_json, cluster)


def _change(broker: int | None, changes: dict[str, str | None], cluster: ClusterConfig) -> None:
    from tidelog.client import ConfigResource, ConfigResourceType

    name, place = ("", "all brokers") if broker is None else (str(broker), f"broker {broker}")
    change_settings(ConfigResource(ConfigResourceType.BROKER, name), place, changes, cluster)


def _list(broker: int | None, as_json: bool, cluster: ClusterConfig) -> None:
    from tidelog.client import ConfigResource, ConfigResourceType

    async def look(admin: Admin) -> dict[ConfigResource, list[ConfigEntry]]:
        known = [node.node_id for node in (await admin.describe_cluster()).brokers]
        asked = [
            ConfigResource(ConfigResourceType.BROKER, str(each)) for each in known if broker in (None, each)
        ] or [ConfigResource(ConfigResourceType.BROKER, str(broker))]
        return await admin.describe_configs(asked)

    rows = [
        (
            resource.name,
            entry.name,
            "(secret)" if entry.value is None else entry.value,
            _SOURCES.get(entry.source, entry.source),
            "no" if entry.read_only else "yes",
        )
        for resource, entries in run_with_admin(look, cluster).items()
        for entry in entries
    ]
    print_table(("BROKER", "SETTING", "VALUE", "SET FOR", "CHANGEABLE"), rows, as_json=as_json)
