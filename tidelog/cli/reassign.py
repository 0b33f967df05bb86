"""`tidelog reassign`: give partitions replicas on other brokers, more of them or fewer.

Uses `client.Admin`. A plan is the JSON of `kafka-reassign-partitions.sh`. Owns how the throttle comes and
goes: the rate is set on all brokers, and the topics of the plan are those that it holds for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from tidelog.cli.failures import Failure, reading, run_with_admin
from tidelog.cli.options import DEFAULT_CLUSTER, AsJson, ToCluster, option
from tidelog.cli.tables import print_table
from tidelog.client import BrokerError, TopicPartition
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.client import Admin, Reassignment

app = typer.Typer(
    no_args_is_help=True, help="Move replicas of partitions to other brokers, or change their number."
)

File: TypeAlias = Annotated[
    str, typer.Argument(metavar="FILE", help="The plan, a JSON file; - is the standard input.")
]
Throttle: TypeAlias = Annotated[
    int | None,
    option(
        "--throttle",
        metavar="BYTES",
        min=1,
        help="Most bytes per second that a broker sends and receives for replicas that are not in sync.",
    ),
]
Wait: TypeAlias = Annotated[
    bool, typer.Option("--wait", help="Wait until no reassignment is in progress, then end the throttle.")
]
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_SET_ON_TOPIC, _SET_ON_BROKER = 1, 2
_LOOK_SECONDS = 0.5
_COLUMNS = ("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING")


@app.command()
def plan(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Names of topics. Internal ones too.", show_default="all"),
    ] = None,
    brokers: Annotated[
        str | None, option("--brokers", metavar="ID,ID...", help="Only on these brokers. Default: all.")
    ] = None,
    factor: Annotated[
        int | None,
        option("--replication-factor", min=1, help="Number of replicas. Default: as many as before."),
    ] = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Print a plan that spreads replicas evenly over brokers and racks. Nothing is changed.

    It names the partitions that are to get other replicas. Give it to `tidelog reassign start`.
    """
    ids = None if brokers is None else _broker_ids(brokers)
    partitions = run_with_admin(lambda admin: _planned(admin, topics, ids, factor), cluster)
    print(json.dumps({"version": 1, "partitions": partitions}, indent=1))


@app.command()
def start(
    file: File, throttle: Throttle = None, wait: Wait = False, cluster: ToCluster = DEFAULT_CLUSTER
) -> None:
    """Begin the reassignments of a plan. Clients may use the partitions meanwhile.

    A reassignment in progress for the same partitions is replaced. Without --wait, run
    `tidelog reassign status` later: it ends the throttle.
    """
    wanted = _read(file)

    async def work(admin: Admin) -> None:
        if throttle is not None:
            await _throttle(admin, {key.topic for key in wanted}, throttle)
        await admin.reassignments.alter(wanted)
        print(f"began to move {len(wanted)} partitions")
        if wait:
            await _wait(admin)

    run_with_admin(work, cluster)


@app.command()
def status(wait: Wait = False, as_json: AsJson = False, cluster: ToCluster = DEFAULT_CLUSTER) -> None:
    """Show the partitions that are being moved. If there are none, end the throttle."""

    async def work(admin: Admin) -> Mapping[TopicPartition, Reassignment]:
        if wait:
            await _wait(admin)
            return {}
        found: Mapping[TopicPartition, Reassignment] = await admin.reassignments.list()
        if not found:
            await _end_throttle(admin)
        return found

    found = run_with_admin(work, cluster)
    rows = [
        (*key, *(",".join(map(str, some)) for some in under_way)) for key, under_way in sorted(found.items())
    ]
    if rows or as_json:
        print_table(_COLUMNS, rows, as_json=as_json)
    else:
        print("no reassignment is in progress")


@app.command()
def cancel(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="Only the partitions of this plan.", show_default="all"),
    ] = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Give partitions that are being moved their former replicas."""
    only = None if file is None else _read(file).keys()

    async def work(admin: Admin) -> int:
        while True:
            under_way = [key for key in await admin.reassignments.list() if only is None or key in only]
            try:
                await admin.reassignments.alter(dict.fromkeys(under_way))
                break
            except BrokerError as error:
                if error.code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:  # Else one was completed meanwhile.
                    raise
        if not await admin.reassignments.list():
            await _end_throttle(admin)
        return len(under_way)

    print(f"cancelled the move of {run_with_admin(work, cluster)} partitions")


async def _planned(
    admin: Admin, topics: Sequence[str] | None, brokers: Sequence[int] | None, factor: int | None
) -> list[dict[str, object]]:
    from tidelog.cli.reassignment_plan import spread

    nodes = (await admin.describe_cluster()).brokers
    racks = {node.node_id: node.rack for node in nodes}
    if unknown := sorted({*(brokers or ())} - racks.keys()):
        raise Failure(f"--brokers: expected brokers that run, which are {sorted(racks)}, got {unknown}")
    present = {
        (topic.name, each.partition): each.replicas
        for topic in await admin.describe_topics(topics)
        for each in topic.partitions
    }
    try:
        moved = spread(present, brokers or sorted(racks), racks, factor)
    except ValueError as error:
        raise Failure(str(error)) from None
    return [
        {"topic": topic, "partition": partition, "replicas": replicas}
        for (topic, partition), replicas in moved.items()
        if tuple(replicas) != tuple(present[topic, partition])
    ]


async def _wait(admin: Admin) -> None:
    import asyncio

    while True:
        if not await admin.reassignments.list():
            return await _end_throttle(admin)
        await asyncio.sleep(_LOOK_SECONDS)


async def _throttle(admin: Admin, topics: set[str], rate: int) -> None:
    from tidelog.client import ConfigResource, ConfigResourceType

    every = dict.fromkeys(_THROTTLED, "*")
    await admin.alter_configs({ConfigResource(ConfigResourceType.TOPIC, each): every for each in topics})
    brokers = (await admin.describe_cluster()).brokers
    rates = dict.fromkeys(_RATES, str(rate))
    await admin.alter_configs(
        {ConfigResource(ConfigResourceType.BROKER, str(each.node_id)): rates for each in brokers}
    )
    print(f"at most {rate} bytes per second at each of {len(brokers)} brokers")


async def _end_throttle(admin: Admin) -> None:
    from tidelog.client import ConfigResource, ConfigResourceType

    brokers = (await admin.describe_cluster()).brokers
    throttled = await _with_settings(
        admin,
        [ConfigResource(ConfigResourceType.BROKER, str(each.node_id)) for each in brokers],
        _RATES,
        _SET_ON_BROKER,
    )
    if not throttled:
        return
    named = await _with_settings(
        admin,
        [ConfigResource(ConfigResourceType.TOPIC, each) for each in await admin.list_topics()],
        _THROTTLED,
        _SET_ON_TOPIC,
    )
    await admin.alter_configs({**throttled, **named})
    print("the throttle has ended", file=sys.stderr)


async def _with_settings(
    admin: Admin, resources: Sequence[Any], names: Sequence[str], source: int
) -> dict[Any, dict[str, str | None]]:
    """The resources that have some of these settings of their own, with the change that deletes them."""
    found = {
        resource: {each.name: None for each in entries if each.name in names and each.source == source}
        for resource, entries in (await admin.describe_configs(resources)).items()
    }
    return {resource: dict(own) for resource, own in found.items() if own}


def _broker_ids(text: str) -> list[int]:
    ids = text.split(",")
    if not all(each.strip().isdecimal() for each in ids) or len({*ids}) != len(ids):
        raise typer.BadParameter(f"expected ID,ID... without repetitions, got {text!r}")
    return [int(each) for each in ids]


def _read(file: str) -> dict[TopicPartition, Sequence[int] | None]:
    """Partition -> replicas. Raises Failure."""
    with reading(file):
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    try:
        return {
            TopicPartition(str(each["topic"]), int(each["partition"])): [int(one) for one in each["replicas"]]
            for each in json.loads(text)["partitions"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(
            f'{file}: expected {{"partitions": [{{"topic": "t", "partition": 0, "replicas": [1, 2]}}, …]}},'
            f" as `tidelog reassign plan` prints it: {error!r}"
        ) from None
