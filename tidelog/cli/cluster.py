"""`tidelog cluster`: what a cluster consists of, and what of it does not work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from tidelog.cli.failures import run_with_admin
from tidelog.cli.options import DEFAULT_CLUSTER, AsJson, ToCluster

if TYPE_CHECKING:
    from tidelog.client import Admin

app = typer.Typer(no_args_is_help=True, help="Show what a cluster consists of.")
_NO_LEADER = -1


@app.callback()
def _cluster() -> None:
    """Show what a cluster consists of."""


@app.command()
def info(as_json: AsJson = False, cluster: ToCluster = DEFAULT_CLUSTER) -> None:
    """Show the cluster's id, its brokers, and how many topics and partitions it has."""
    import json

    from tidelog.cli.tables import as_objects, print_table

    columns = ("BROKER", "HOST", "PORT", "RACK", "CONTROLLER", "LEADS")
    facts, brokers = run_with_admin(_look, cluster)
    if as_json:
        print(json.dumps({**facts, "brokers": as_objects(columns, brokers)}))
        return
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<29}{value}")
    print_table(columns, brokers)


async def _look(admin: Admin) -> tuple[dict[str, Any], list[tuple[object, ...]]]:
    """What concerns the whole cluster, and a row per broker."""
    described = await admin.describe_cluster()
    topics = await admin.describe_topics()
    partitions = [each for topic in topics for each in topic.partitions]
    leaders = [each.leader for each in partitions]
    facts: dict[str, Any] = {
        "cluster_id": described.cluster_id,
        "topics": sum(not topic.is_internal for topic in topics),
        "internal_topics": sum(topic.is_internal for topic in topics),
        "partitions": len(partitions),
        "partitions_without_leader": leaders.count(_NO_LEADER),
        "partitions_under_replicated": sum(len(each.isr) < len(each.replicas) for each in partitions),
    }
    rows: list[tuple[object, ...]] = [
        (
            node.node_id,
            node.host,
            node.port,
            node.rack,
            "yes" if node.node_id == described.controller_id else "no",
            leaders.count(node.node_id),
        )
        for node in described.brokers
    ]
    return facts, rows
