"""`tidelog topic`: create, list, describe, change and delete topics.

Uses `client.Admin`. Each change is printed on one line, so that scripts can read it.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tidelog.cli.failures import Failure, run, run_with_admin
from tidelog.cli.options import DEFAULT_CLUSTER, AsJson, ToCluster, Topic, assignment, option, topic_argument
from tidelog.cli.setting_changes import print_changes
from tidelog.cli.tables import as_objects, counted, format_timestamp, print_table
from tidelog.client import BrokerError, TopicAlreadyExistsError, TopicPartition

if TYPE_CHECKING:
    from tidelog.client import Admin, Consumer, TopicDescription
    from tidelog.wire.cluster_config import ClusterConfig

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, change and delete topics.")

Topics: TypeAlias = Annotated[list[str], topic_argument(help="Names of topics.")]
TopicConfigs: TypeAlias = Annotated[
    list[str] | None,
    option(
        "--config",
        metavar="NAME=VALUE",
        help="Set a setting of the topic, for example retention.ms=3600000. May be repeated.",
    ),
]
_SET_ON_TOPIC = 1
_COLUMNS = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "FIRST OFFSET", "NEXT OFFSET")


@app.command()
def create(
    topics: Topics,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="Number of partitions. -1: the broker's num.partitions.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", help="Number of replicas. -1: the broker's default.")
    ] = -1,
    configs: TopicConfigs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do not fail if the topic exists.")
    ] = False,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Create topics."""
    from tidelog.client import NewTopic

    settings = _settings(configs)

    async def work(admin: Admin) -> None:
        for name in topics:
            try:
                await admin.create_topics([NewTopic(name, partitions, replication_factor, settings)])
            except TopicAlreadyExistsError:
                if not if_not_exists:
                    raise
                print(f"exists {name}")
                continue
            (created,) = await admin.describe_topics([name])
            print(f"created {name} ({_partitions(created)})")

    run_with_admin(work, cluster)


@app.command("list")
def list_topics(as_json: AsJson = False, cluster: ToCluster = DEFAULT_CLUSTER) -> None:
    """Print the names of all topics, one per line."""
    for name in run_with_admin(lambda admin: admin.list_topics(), cluster):
        print(json.dumps({"topic": name}) if as_json else name)


@app.command()
def describe(topics: Topics, as_json: AsJson = False, cluster: ToCluster = DEFAULT_CLUSTER) -> None:
    """Show partitions, offsets and settings of topics."""
    run(_describe(topics, as_json, cluster), cluster)


async def _describe(names: list[str], as_json: bool, cluster: ClusterConfig) -> None:
    from tidelog.client import Admin, ConfigResource, ConfigResourceType, Consumer

    async with Admin(cluster=cluster) as admin, Consumer(cluster=cluster) as consumer:
        for described in await admin.describe_topics(names):
            resource = ConfigResource(ConfigResourceType.TOPIC, described.name)
            settings = (await admin.describe_configs([resource]))[resource]
            own = {entry.name: entry.value for entry in settings if entry.source == _SET_ON_TOPIC}
            rows = await _rows(described, consumer)
            columns: tuple[str, ...] = _COLUMNS
            if any(entry.name == "remote.storage.enable" and entry.value == "true" for entry in settings):
                columns = (*_COLUMNS, "FIRST LOCAL", "LAST REMOTE")
                places = await _places(described, consumer)
                rows = [(*row, *each) for row, each in zip(rows, places, strict=True)]
            if as_json:
                facts = {"topic": described.name, "topic_id": str(described.topic_id), "settings": own}
                print(json.dumps({**facts, "partitions": as_objects(columns, rows)}))
                continue
            shown = [f"{name}={value}" for name, value in own.items()]
            print(f"{described.name}  id {described.topic_id}", _partitions(described), *shown, sep="  ")
            print_table(columns, rows)
            await _print_old(described, consumer, {entry.name: entry.value or "" for entry in settings})


def _led(topic: TopicDescription) -> dict[int, TopicPartition]:
    """The partitions that have a leader: no other broker knows offsets."""
    led = [each.partition for each in topic.partitions if each.leader >= 0]
    return {index: TopicPartition(topic.name, index) for index in led}


async def _rows(described: TopicDescription, consumer: Consumer) -> list[tuple[object, ...]]:
    keys = _led(described)
    first = await consumer.beginning_offsets(keys.values())
    following = await consumer.end_offsets(keys.values())
    return [
        (
            each.partition,
            each.leader,
            each.leader_epoch,
            ",".join(map(str, each.replicas)),
            ",".join(map(str, each.isr)),
            *((first[key], following[key]) if (key := keys.get(each.partition)) else (None, None)),
        )
        for each in described.partitions
    ]


async def _places(topic: TopicDescription, consumer: Consumer) -> list[tuple[object, ...]]:
    """Of each partition the first offset on the leader's disk, and the last one in remote storage."""
    keys = _led(topic)
    found = await consumer.tiered_offsets(keys.values())
    places = [keys.get(each.partition) for each in topic.partitions]
    return [(None, None) if key is None else found[key] for key in places]


async def _print_old(topic: TopicDescription, consumer: Consumer, settings: dict[str, str]) -> None:
    """Name records that are older than any that retention leaves in a topic whose records are new."""
    retention_ms = int(settings.get("retention.ms", -1))
    if retention_ms < 0 or "delete" not in settings.get("cleanup.policy", ""):
        return
    keys = list(_led(topic).values())
    now_ms = int(time.time() * 1000)
    try:
        oldest = await consumer.offsets_for_times(dict.fromkeys(keys, 0))
        young = await consumer.offsets_for_times(dict.fromkeys(keys, max(now_ms - retention_ms, 0)))
    except BrokerError as error:
        print(f"warning: the ages of the records cannot be looked up: {error.message}")
        return
    # A segment stays until its youngest record is too old, so its oldest may be older by segment.ms.
    oldest_kept_ms = now_ms - retention_ms - int(settings.get("segment.ms", 0))
    old = {
        key.partition: found.timestamp
        for key in keys
        if (found := oldest[key]) is not None and (young[key] is None or found.timestamp < oldest_kept_ms)
    }
    if old:
        first, *others = old
        named = f"partition {first}" + (f" and {len(others)} others" if others else "")
        print(
            f"warning: the oldest record of {named} has the timestamp {format_timestamp(min(old.values()))}, "
            f"which is older than retention.ms={retention_ms}: it is deleted at one of the next checks. To "
            f"keep such records: tidelog topic alter {topic.name} --config retention.ms=-1"
        )


@app.command()
def alter(
    topics: Topics,
    configs: TopicConfigs = None,
    deletions: Annotated[
        list[str] | None,
        option(
            "--delete-config",
            metavar="NAME",
            help="Delete a setting of the topic, so that the broker's value applies. May be repeated.",
        ),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="New number of partitions, larger than before.")
    ] = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Change settings of topics, or add partitions. Other settings do not change."""
    from tidelog.client import ConfigResource, ConfigResourceType

    changes: dict[str, str | None] = {**_settings(configs)}
    twice = sorted(changes.keys() & set(deletions or []))
    if twice:
        raise typer.BadParameter(f"{twice[0]} is set by --config too", param_hint="--delete-config")
    changes |= dict.fromkeys(deletions or [])
    if not changes and partitions is None:
        raise typer.BadParameter("give --config NAME=VALUE, --delete-config NAME or --partitions")

    async def work(admin: Admin) -> None:
        for name in topics:
            if changes:
                await admin.alter_configs({ConfigResource(ConfigResourceType.TOPIC, name): changes})
            print_changes(changes, name)
            if partitions is not None:
                await admin.create_partitions({name: partitions})
                (grown,) = await admin.describe_topics([name])
                print(f"{name} has {_partitions(grown)}")

    run_with_admin(work, cluster)


@app.command()
def delete(topics: Topics, cluster: ToCluster = DEFAULT_CLUSTER) -> None:
    """Delete topics with all their records."""

    async def work(admin: Admin) -> None:
        for name in topics:
            await admin.delete_topics([name])
            print(f"deleted {name}")

    run_with_admin(work, cluster)


@app.command("delete-records")
def delete_records(
    topic: Topic,
    before_offset: Annotated[
        int | None, option("--before-offset", min=0, help="First offset to keep.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Delete all records.")] = False,
    partitions: Annotated[
        list[int] | None, option("--partition", min=0, help="Only of this partition. May be repeated.")
    ] = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Delete the oldest records of a topic.

    If the disk lost records, name the first offset after them: the log then begins there.
    """
    if every == (before_offset is not None):
        raise typer.BadParameter("give --before-offset or --all")
    before = -1 if before_offset is None else before_offset

    async def work(admin: Admin) -> None:
        (described,) = await admin.describe_topics([topic])
        known = [each.partition for each in described.partitions]
        for partition in partitions or known:
            if partition not in known:
                raise Failure(f"topic {topic!r} has no partition {partition}: it has 0 to {len(known) - 1}")
            key = TopicPartition(topic, partition)
            first = (await admin.delete_records({key: before}))[key]
            print(f"{topic}-{partition} begins at offset {first}")

    run_with_admin(work, cluster)


def _partitions(topic: TopicDescription) -> str:
    return counted(len(topic.partitions), "partition")


def _settings(texts: list[str] | None) -> dict[str, str]:
    named = (assignment(text, "--config") for text in texts or ())
    return {name.strip(): value.strip() for name, value in named}
