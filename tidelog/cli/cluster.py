"""`tidelog cluster`: what a cluster consists of, and what of it does not work."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tidelog.cli.failures import Failure, broker_failures, run_with_admin
from tidelog.cli.http_port import HttpAddress, NoAnswerError, ask, find, url
from tidelog.cli.options import DEFAULT_CLUSTER, AsJson, ToCluster, argument
from tidelog.cli.passwords import Iterations, Mechanisms, PasswordFile, mechanisms_of, read_password
from tidelog.cli.tables import as_objects, print_table

if TYPE_CHECKING:
    from tidelog.broker.configuration.broker_config import BrokerConfig
    from tidelog.broker.storage.disk import Disk
    from tidelog.client import Admin

T = TypeVar("T")
Settings = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The broker's settings, a TOML file.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the broker. May be repeated."),
]

app = typer.Typer(no_args_is_help=True, help="Show a cluster and its problems, and change its catalog.")
_NO_LEADER = -1
_SUCCESS = 200


@app.callback()
def _cluster() -> None:
    """Show a cluster and its problems, and change its catalog."""


@app.command()
def info(as_json: AsJson = False, cluster: ToCluster = DEFAULT_CLUSTER) -> None:
    """Show the cluster's id, its brokers, and how many topics and partitions it has."""
    columns = ("BROKER", "HOST", "PORT", "RACK", "CONTROLLER", "LEADS")
    facts, brokers = run_with_admin(_look, cluster)
    if as_json:
        print(json.dumps({**facts, "brokers": as_objects(columns, brokers)}))
        return
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<29}{value}")
    print_table(columns, brokers)


@app.command()
def status(http: HttpAddress = None, as_json: AsJson = False, cluster: ToCluster = DEFAULT_CLUSTER) -> None:
    """Show the problems of the cluster and their remedies.

    They are those on the page Overview of the console, for all brokers. Exits with 1 if there are problems.
    """
    address = http or run_with_admin(find, cluster)
    instead = "Name the HTTP port with --http; `tidelog cluster info` needs no HTTP port"
    if address is None:
        raise Failure(f"the controller does not name its HTTP port. {instead}")
    try:
        code, answer = ask(address, cluster, "GET", "/api/v1/overview")
    except NoAnswerError as error:
        raise Failure(f"{error} {instead}") from None
    if code != _SUCCESS:
        raise Failure(f"{url(address)} says: {answer.get('message', code)}")
    problems = answer["problems"]
    problems += [
        {
            "name": "broker_not_answering",
            "severity": "warning",
            "text": f"Broker {node_id} did not answer, so its problems are not known.",
            "remedy": "Check that it runs, and that the other brokers can connect to it.",
        }
        for node_id in answer.get("unanswered", ())
    ]
    if as_json:
        brokers = [each["broker"] for each in answer["brokers"]]
        print(json.dumps({"problems": problems, "brokers": brokers}))
    elif not problems:
        print(f"no problems found (brokers that answered: {len(answer['brokers'])})")
    else:
        for problem in problems:
            print(f"{problem['severity']}: {problem['text']}\n  {problem['remedy']}")
    if any(problem["severity"] != "notice" for problem in problems):
        raise typer.Exit(1)


@app.command("remove-broker")
def remove_broker(
    node_id: Annotated[int, typer.Argument(metavar="NODE_ID", help="The broker's node.id.")],
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Remove a broker that will not come back from the cluster.

    Stop it, and move its replicas to other brokers first. Otherwise this is refused.
    """
    run_with_admin(lambda admin: admin.unregister_broker(node_id), cluster)
    print(f"broker {node_id} is removed. If you start it again, give it an empty data folder")


@app.command("move-to-etcd")
def move_to_etcd(config_file: Settings = None, assignments: Assignments = None) -> None:
    """Move the catalog of a stopped broker from its data folder to etcd.

    Give the settings with which the broker is to run: data.dir, node.id and cluster.store. etcd must have no
    keys below cluster.store.prefix. If the command is interrupted, run it again.
    """
    from tidelog.broker.data_folder.etcd_catalogs import move_to_etcd

    if _while_stopped(config_file, assignments, move_to_etcd):
        print("moved. Now start the broker with the same settings, then the others")
    else:
        print("the catalog of this cluster is in etcd already: there is nothing to do")


@app.command("raise-producer-ids")
def raise_producer_ids(config_file: Settings = None, assignments: Assignments = None) -> None:
    """Accept an older catalog that was restored in etcd.

    It will assign no producer id that this broker knows. A partition with several replicas has no leader
    until all its brokers run; then its most complete replica leads. Run the command at each broker, while all
    brokers are stopped. Give the settings with which the broker runs.
    """
    from tidelog.broker.data_folder.etcd_catalogs import raise_producer_ids

    print(f"next producer id {_while_stopped(config_file, assignments, raise_producer_ids)}")


@app.command("add-user")
def add_user(
    user: Annotated[str, argument(metavar="USER", help="Name of the user.")],
    config_file: Settings = None,
    assignments: Assignments = None,
    password_file: PasswordFile = None,
    mechanisms: Mechanisms = None,
    iterations: Iterations = 4096,
) -> None:
    """Create the first user of a cluster over etcd, or change a password, while no broker runs.

    Give the settings of a broker: cluster.store and what it needs to connect. Without --password-file the
    command asks for the password, or reads the first line of the standard input.
    """
    import asyncio

    from tidelog.broker.data_folder.first_users import add_user_in_etcd
    from tidelog.broker.security.users import new_credentials
    from tidelog.broker.storage.disk import Disk

    with broker_failures():
        config = _settings(config_file, assignments)
        made = new_credentials(read_password(password_file), mechanisms_of(mechanisms), iterations)
        is_new = asyncio.run(add_user_in_etcd(config, Disk(), user, made))
    print(f"{'made' if is_new else 'changed'} {user}")


def _while_stopped(
    config_file: Path | None,
    assignments: list[str] | None,
    work: Callable[[BrokerConfig, Disk], Coroutine[Any, Any, T]],
) -> T:
    """What `work` returns, while no broker can use the data folder. Raises Failure."""
    import asyncio

    from tidelog.broker.replicas.ownership import locked
    from tidelog.broker.storage.disk import Disk

    disk = Disk()
    with broker_failures():
        config = _settings(config_file, assignments)
        if not config.data_dir.is_dir():
            raise Failure(f"{config.data_dir} is not a folder: data.dir must be that of the broker")
        with locked(disk, config.data_dir, shared=False):
            return asyncio.run(work(config, disk))


def _settings(config_file: Path | None, assignments: list[str] | None) -> BrokerConfig:
    """Of a broker, as `tidelog serve` takes them. Raises ConfigError."""
    from tidelog.broker.command import settings_given
    from tidelog.broker.configuration.broker_config import BrokerConfig

    return BrokerConfig.load(settings_given({}, assignments or []), environ=os.environ, file=config_file)


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
